//! Promises that only PostgreSQL makes.

mod busy_table;
#[path = "chinook_snake.rs"]
mod chinook;
mod concurrent_builds;
mod group_locks;
mod isolation;
mod kept_plans;
mod low_water;
mod old_snapshot;
mod prepared_statements;
mod returning;
mod row_locks;
mod slow_claim;
mod transactional_ddl;
mod uuid_key;

use std::time::Duration;

use diesel::connection::{AnsiTransactionManager, SimpleConnection, TransactionManager};
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel::sql_types::{BigInt, Text};
use diesel_migrations::MigrationHarness;
use queueable::{Error, Message, Migrations, Outcome, QueueState, Queueable, Status};

use crate::db::{Conn, Database, quote};
use crate::suite::bank::{Bank, Payment, book, payments};
use crate::suite::names::a_table_elsewhere_works;
use crate::suite::rerun_on_change::{Document, Library};
use crate::suite::warnings::{await_warning, keep_warnings};

#[test]
fn an_infinite_time_is_an_error_value_and_never_due() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2]);
    let mut connection = bank.connect();
    connection.batch_execute("UPDATE payments SET next_attempt_time = 'infinity' WHERE id = 1").unwrap();
    let state = payments::table.find(1).select(Payment::queue_state()).get_result::<QueueState>(&mut connection);
    assert!(matches!(state, Err(DieselError::DeserializationError(_))), "{state:?}");
    assert_eq!(bank.run(book).succeeded, 1);
    assert_eq!(bank.booked(), ids[1..]);
}

#[test]
fn a_row_that_is_due_since_ever_fails_alone() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2]);
    bank.connect().batch_execute("UPDATE payments SET next_attempt_time = '-infinity' WHERE id = 1").unwrap();
    let tally = bank.run(book);
    assert_eq!((tally.succeeded, tally.retried), (1, 1));
    assert_eq!(bank.booked(), ids[1..]);
    assert_eq!(bank.state(ids[0]).status, Status::Error);
}

#[test]
fn held_rows_that_the_filter_does_not_pick_are_not_waited_for() {
    let bank = Bank::new();
    bank.enqueue([1, 2]);
    let mut connection = bank.connect();
    let mut holder = bank.connect();
    AnsiTransactionManager::begin_transaction(&mut holder).unwrap();
    diesel::update(payments::table.find(1)).set(payments::amount_cents.eq(9)).execute(&mut holder).unwrap();
    let others = Payment::queue().filter(payments::amount_cents.eq(2)).wait(Duration::from_millis(50));
    assert_eq!(others.retry_now(&mut connection).unwrap(), 1);
    assert_eq!(others.delete(&mut connection).unwrap(), 1);
    AnsiTransactionManager::rollback_transaction(&mut holder).unwrap();
}

#[test]
fn a_column_whose_name_differs_by_case_is_another_column() {
    mod cased {
        diesel::table! { payments (id) { id -> BigInt, #[sql_name = "Status"] own_status -> Text, } }
    }
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = cased::payments)]
    #[queue(module = cased_queue)]
    #[allow(dead_code, reason = "only its table is compared")]
    struct Cased {
        id: i64,
    }
    let bank = Bank::before_the_queue();
    bank.connect().batch_execute("ALTER TABLE payments ADD COLUMN \"Status\" TEXT NOT NULL DEFAULT 'active'").unwrap();
    bank.connect().run_pending_migrations(Migrations::new().entity::<Payment>()).unwrap();
    bank.enqueue([1]);
    assert_eq!(bank.run(book).succeeded, 1);
    assert_eq!(Cased::check_schema(&mut bank.connect()).unwrap(), []);
}

#[test]
fn a_poller_warns_of_tables_that_inherit_from_the_queues() {
    keep_warnings();
    let bank = Bank::new();
    bank.connect().batch_execute("CREATE TABLE late_payments () INHERITS (payments)").unwrap();
    assert_eq!(bank.run(book).succeeded, 0);
    await_warning(&["other tables inherit from", "payments", "do not reach their rows"]);
}

#[test]
fn an_index_whose_build_was_cut_short_is_named_and_mended() {
    let bank = Bank::new();
    let mut connection = bank.connect();
    let cut_short = "UPDATE pg_index SET indisvalid = false \
                     WHERE indexrelid = 'queueable_payments_3d307857d9304fe5'::regclass";
    connection.batch_execute(cut_short).unwrap();
    let Err(Error::Unsafe(found)) = bank.poller(book).start() else { panic!("it started") };
    assert_eq!(found.len(), 1);
    assert!(found[0].mend.contains("as a text of its own, and outside a transaction"), "{found:?}");
    for statement in found[0].mend.split("; ") {
        connection.batch_execute(statement).unwrap();
    }
    assert!(bank.poller(book).run_until_idle().is_ok());

    connection.batch_execute(cut_short).unwrap();
    connection.batch_execute("DELETE FROM __diesel_schema_migrations").unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Payment>()).unwrap();
    assert!(bank.poller(book).run_until_idle().is_ok());
}

#[test]
fn a_table_in_a_schema_works() {
    let database = Database::new();
    database.connect().batch_execute("CREATE SCHEMA queueable_elsewhere").unwrap();
    a_table_elsewhere_works(&database.pool(4));
}

#[test]
fn two_hundred_thousand_rows_are_migrated_without_a_rewrite() {
    let bank = Bank::before_the_queue();
    let mut connection = bank.connect();
    connection
        .batch_execute("INSERT INTO payments (company_id, amount_cents) SELECT 1, i FROM generate_series(1, 200000) i")
        .unwrap();
    let mut file = || -> i64 {
        sql::<BigInt>("SELECT pg_relation_filenode('payments')::bigint").get_result(&mut connection).unwrap()
    };
    let before = file();
    bank.connect().run_pending_migrations(Migrations::new().entity::<Payment>()).unwrap();
    assert_eq!(file(), before);
    assert_eq!(Payment::queue().pending().count(&mut bank.connect()).unwrap(), 0);
    bank.connect().revert_last_migration(Migrations::new().entity::<Payment>()).unwrap();
    assert_eq!(file(), before);
}

#[test]
fn a_claim_by_an_update_takes_no_more_rows_than_asked_for_whatever_the_plan() {
    use crate::suite::lease::{Gate, apply, poller};
    let bank = crate::suite::bank::Bank::new();
    // A plan that runs the subquery again for every row of the table.
    bank.connect()
        .batch_execute(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET enable_hashjoin = off', current_database());
             EXECUTE format('ALTER DATABASE %I SET enable_mergejoin = off', current_database());
             EXECUTE format('ALTER DATABASE %I SET enable_material = off', current_database());
             EXECUTE format('ALTER DATABASE %I SET enable_hashagg = off', current_database());
             EXECUTE format('ALTER DATABASE %I SET enable_sort = off', current_database()); END $$",
        )
        .unwrap();
    bank.enqueue(1..=20);
    let (gate, call) = Gate::new();
    let style = queueable::ClaimStyle::UpdateThenSelect;
    let handle = poller(&bank, (call, apply)).claim_style(style).claim_batch(2).start().unwrap();
    gate.entered();
    let leased = crate::suite::bank::payments::table
        .filter(crate::suite::bank::payment_queue::status.eq(queueable::Status::InProgress))
        .count()
        .get_result::<i64>(&mut bank.connect())
        .unwrap();
    assert_eq!(leased, 2);
    gate.open();
    handle.shutdown(std::time::Duration::from_secs(60));
}

#[test]
fn sessions_that_wait_for_work_are_not_ended_by_the_servers_limit() {
    let bank = Bank::new();
    bank.enqueue([1]);
    let mut connection = bank.connect();
    let name: String = diesel::select(sql::<Text>("current_database()::text")).get_result(&mut connection).unwrap();
    connection.batch_execute(&format!("ALTER DATABASE {} SET idle_session_timeout = '1s'", quote(&name))).unwrap();
    let handler = |payment: &Payment, message: &mut Message<'_, Conn>| {
        let limit = diesel::select(sql::<Text>("current_setting('idle_session_timeout')"));
        let limit: String = limit.get_result(message.connection())?;
        assert_eq!(limit, "0");
        book(payment, message)
    };
    assert_eq!(bank.run(handler).succeeded, 1);
}

#[test]
fn a_copy_of_the_table_with_indexes_of_other_names_is_worked() {
    let bank = Bank::new();
    let mut connection = bank.connect();
    connection
        .batch_execute(
            "CREATE TABLE copied (LIKE payments INCLUDING ALL); ALTER TABLE payments RENAME TO originals; \
             ALTER TABLE copied RENAME TO payments",
        )
        .unwrap();
    let indexes = "SELECT count(*) FROM pg_indexes WHERE tablename = 'payments' AND indexname NOT LIKE 'queueable%'";
    assert_eq!(sql::<BigInt>(indexes).get_result(&mut connection), Ok(2_i64));
    connection
        .batch_execute("INSERT INTO payments (id, company_id, amount_cents, next_attempt_time) VALUES (7, 1, 1, now())")
        .unwrap();
    assert_eq!(bank.run(book).succeeded, 1);
    // A migration adds no second one.
    connection.batch_execute("DELETE FROM __diesel_schema_migrations").unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Payment>()).unwrap();
    let all = "SELECT count(*) FROM pg_indexes WHERE tablename = 'payments'";
    assert_eq!(sql::<BigInt>(all).get_result(&mut connection), Ok(2_i64));
}

/// The trigger is one of an earlier version, which compared the columns in this way.
#[test]
fn a_trigger_that_no_dump_gives_back_is_named_at_start_with_its_mend() {
    let library = Library::new();
    let mut connection = library.connect();
    let triggers = |connection: &mut Conn| -> Vec<String> {
        let names = "SELECT tgname::text FROM pg_trigger WHERE tgrelid = 'documents'::regclass AND NOT tgisinternal";
        sql::<Text>(names).load(connection).unwrap()
    };
    let now = triggers(&mut connection).remove(0);
    let before = format!("{}00000000", &now[..now.len() - 8]);
    connection
        .batch_execute(&format!(
            "DROP TRIGGER {now} ON documents; ALTER FUNCTION {now}() RENAME TO {before}; \
             CREATE TRIGGER {before} BEFORE UPDATE ON documents FOR EACH ROW \
             WHEN (ROW(OLD.title, OLD.body)::record *<> ROW(NEW.title, NEW.body)::record) EXECUTE FUNCTION {before}()"
        ))
        .unwrap();
    let done = |_: &Document, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let refused = Document::poller(library.pool(1), done).workers(1).run_until_idle();
    let Err(Error::Unsafe(findings)) = refused else { panic!("{refused:?}") };
    assert!(findings[0].problem.contains(&before) && findings[0].problem.contains(&now), "{findings:?}");
    connection.batch_execute(&findings[0].mend).unwrap();
    assert_eq!(triggers(&mut connection), [now]);
    library.run(done);
}

#[test]
fn an_order_of_values_that_no_index_takes_is_refused_before_the_first_change() {
    diesel::table! { albums (id) { id -> BigInt, tags -> Array<Text>, } }

    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = albums)]
    #[queue(order_by = tags)]
    #[allow(dead_code, reason = "only the queue reads it")]
    struct Album {
        id: i64,
    }

    let database = Database::new();
    let mut connection = database.connect();
    connection.batch_execute("CREATE TABLE albums (id BIGSERIAL PRIMARY KEY, tags TEXT[] NOT NULL)").unwrap();
    let error = format!("{:?}", connection.run_pending_migrations(Migrations::new().entity::<Album>()).unwrap_err());
    assert!(
        error.contains("the column tags of \\\"albums\\\" is of type text[], whose values may be too long"),
        "{error}"
    );
    let columns = sql::<BigInt>("SELECT COUNT(*) FROM information_schema.columns WHERE table_name = 'albums'");
    assert_eq!(columns.get_result::<i64>(&mut connection), Ok(2));
}

/// Diesel and the queue keep statements prepared, and know nothing of it.
#[test]
fn a_handler_that_takes_away_the_sessions_prepared_statements_fails_alone() {
    let bank = Bank::new();
    let ids = bank.enqueue([1; 8]);
    let odd = ids[3];
    let tally = bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| {
        let outcome = book(payment, message)?;
        if payment.id == odd {
            message.connection().batch_execute("DEALLOCATE ALL")?;
        }
        Ok(outcome)
    });
    assert_eq!((tally.succeeded, tally.retried), (7, 1), "{tally:?}");
    let state = bank.state(odd);
    let text = state.last_attempt_error_message.unwrap_or_default();
    assert_eq!((state.status, state.try_count), (Status::Error, 1), "{text}");
    assert!(text.contains("prepared statement"), "{text}");
    assert_eq!(bank.booked(), ids.into_iter().filter(|id| *id != odd).collect::<Vec<_>>());
}
