//! `assert_schema!` compares the derive, the application's `table!` and the live table, and names every difference with
//! what mends it.

use std::panic::{self, AssertUnwindSafe};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::bounds::ComparesSchema;
use queueable::{Finding, Migrations, Queueable, Stage, assert_schema};

use crate::db::{self, BIGINT, Conn, TIME};
use crate::suite::bank::Bank;

diesel::table! {
    payments (id) {
        id -> BigInt,
        company_id -> BigInt,
        amount_cents -> BigInt,
        try_count -> Nullable<Integer>,
    }
}

#[derive(Queryable, Selectable, Queueable)]
#[allow(dead_code)]
struct Payment {
    id: i64,
    company_id: i64,
}

mod with_more {
    diesel::table! {
        payments (id) {
            id -> BigInt,
            company_id -> BigInt,
            note -> Nullable<Text>,
            next_attempt_time -> Nullable<Text>,
            #[sql_name = "Amount_Cents"]
            amount -> BigInt,
        }
    }
}

/// A queue of the same payments in a program that knows other columns.
#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = with_more::payments)]
#[queue(module = other_queue)]
#[allow(dead_code)]
struct WithMore {
    id: i64,
}

diesel::table! {
    ledger (id) { id -> BigInt, payment_id -> BigInt, }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Stage)]
#[allow(dead_code)]
enum Step {
    Book,
    Report,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = ledger)]
#[queue(lease = "60s", priority, stage = Step, timestamps(created, begin))]
#[allow(dead_code)]
struct Ledger {
    id: i64,
    payment_id: i64,
}

mod sound {
    diesel::table! { payments (id) { id -> BigInt, company_id -> BigInt, amount_cents -> BigInt, } }
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = sound::payments)]
#[queue(module = sound_queue)]
#[allow(dead_code)]
struct Sound {
    id: i64,
}

fn problems(found: &[Finding]) -> Vec<&str> {
    found.iter().map(|finding| finding.problem.as_str()).collect()
}

/// Returns the text of a panic.
fn panic_of(run: impl FnOnce()) -> String {
    let panic = panic::catch_unwind(AssertUnwindSafe(run)).expect_err("it does not panic");
    *panic.downcast::<String>().expect("a text")
}

fn execute(connection: &mut Conn, sql: &str) {
    connection.batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Runs the SQL of the findings until there are none.
fn mend<Q: Queueable>(connection: &mut Conn)
where
    Conn: ComparesSchema<Q>,
{
    for _ in 0..4 {
        let found = Q::check_schema(connection).unwrap();
        if found.is_empty() {
            return;
        }
        for finding in found.iter().filter(|finding| !finding.problem.contains("no usable index")) {
            execute(connection, &finding.mend);
        }
        for finding in found.iter().filter(|finding| finding.problem.contains("no usable index")) {
            finding.mend.split("; ").for_each(|statement| execute(connection, statement));
        }
    }
    panic!("not mended: {:?}", Q::check_schema(connection));
}

#[test]
fn a_migrated_table_has_no_differences() {
    let bank = Bank::new();
    let connection = &mut bank.connect();
    // `table!` need not have all columns.
    execute(connection, "ALTER TABLE payments ADD COLUMN note INTEGER");
    connection.run_pending_migrations(Migrations::new().entity::<Ledger>()).unwrap();
    assert_schema!(connection, Sound, Ledger,);
    // A pooled connection too, and within a test's transaction.
    let pool = bank.pool(1);
    assert_schema!(&mut pool.get().unwrap(), crate::suite::bank::Payment);
    connection.begin_test_transaction().unwrap();
    assert_schema!(connection, Sound, Ledger);
}

#[test]
fn all_differences_of_all_entities_are_in_one_message() {
    let bank = Bank::before_the_queue();
    let connection = &mut bank.connect();
    let message = panic_of(|| assert_schema!(connection, WithMore, Ledger));
    assert!(message.starts_with("the derive, `table!` and the live table differ:\n- WithMore: "), "{message}");
    for expected in [
        "\n- WithMore: the table ",
        "has no column next_attempt_time, which the entity's migration adds; to mend it: ALTER TABLE ",
        "\n- WithMore: `table!` has a column note, which the table ",
        "run the application's migration that adds it, or regenerate `table!` with `diesel print-schema`",
        "no usable index queueable_payments_3d307857d9304fe5 for the claim; to mend it: CREATE INDEX ",
        "\n- Ledger: the table ",
        "has no column stage, which",
        "has no column begin_time, which",
        "no usable index queueable_ledger_",
    ] {
        assert!(message.contains(expected), "no `{expected}` in {message}");
    }
    assert!(!message.contains("has a column company_id"), "{message}");
    // The name is another one where case counts.
    assert_eq!(message.contains("a column Amount_Cents"), db::NAME == "postgres", "{message}");
    // The queue's columns are told of once, although `table!` has one of them.
    let lines = message.lines().filter(|line| line.starts_with("- WithMore"));
    assert_eq!(lines.filter(|line| line.contains("no column next_attempt_time")).count(), 1, "{message}");
}

#[test]
fn what_is_found_is_mended_by_its_sql() {
    let bank = Bank::before_the_queue();
    let connection = &mut bank.connect();
    assert!(!Sound::check_schema(connection).unwrap().is_empty());
    mend::<Sound>(connection);
    mend::<Ledger>(connection);
    assert_schema!(connection, Sound, Ledger);
}

#[test]
fn wrong_types_and_a_missing_index_are_found_together() {
    let bank = Bank::new();
    let connection = &mut bank.connect();
    let on = if db::NAME == "mysql" { " ON payments" } else { "" };
    execute(connection, &format!("DROP INDEX queueable_payments_3d307857d9304fe5{on}"));
    execute(connection, "ALTER TABLE payments DROP COLUMN try_count");
    execute(connection, &format!("ALTER TABLE payments ADD COLUMN try_count {BIGINT} NOT NULL DEFAULT 0"));
    let found = Sound::check_schema(connection).unwrap();
    let found = problems(&found);
    assert!(found.iter().any(|problem| problem.starts_with("the column try_count is of type bigint")), "{found:?}");
    assert!(found.iter().any(|problem| problem.contains("no usable index")), "{found:?}");
    mend::<Sound>(connection);
}

#[test]
fn a_queue_column_that_no_migration_has_added_is_named_and_can_be_marked() {
    let bank = Bank::new();
    let connection = &mut bank.connect();
    execute(connection, "ALTER TABLE payments DROP COLUMN try_count");
    execute(connection, "ALTER TABLE payments ADD COLUMN try_count INTEGER NOT NULL DEFAULT 0");
    execute(connection, "INSERT INTO payments (company_id, amount_cents, try_count) VALUES (1, 1, 7)");
    let found = Sound::check_schema(connection).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    let expected = "a column try_count, which the queue writes, but which no migration of the queue has added";
    assert!(found[0].problem.ends_with(expected), "{found:?}");
    assert!(found[0].mend.contains("if it is the application's, give the queue names of its own"), "{found:?}");
    // The other program's `table!` lists it, with another nullability.
    let listed = problems(&Payment::check_schema(connection).unwrap()).join("\n");
    assert!(listed.contains("a column try_count, which the queue writes, and which `table!` lists, but"), "{listed}");
    assert!(listed.contains("declares the column try_count of"), "{listed}");
    assert!(listed.contains("as `Nullable`, but it is NOT NULL"), "{listed}");
    execute(connection, &found[0].mend);
    assert_schema!(connection, Sound);
    let tries: i32 = sound::payments::table.select(sound_queue::try_count).get_result(connection).unwrap();
    assert_eq!(tries, 7);
}

#[test]
fn a_table_with_a_column_of_the_applications_own_is_not_offered_the_rest_of_a_queue() {
    let bank = Bank::before_the_queue();
    let connection = &mut bank.connect();
    execute(connection, &format!("ALTER TABLE payments ADD COLUMN next_attempt_time {TIME}"));
    let found = Sound::check_schema(connection).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].problem.ends_with("has no queue, but a column next_attempt_time of its own"), "{found:?}");
}

#[test]
fn a_queue_column_that_table_lists_as_never_null_is_named() {
    mod wrong {
        diesel::table! { payments (id) { id -> BigInt, last_attempt_error_message -> Text, } }
    }
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = wrong::payments)]
    #[queue(module = wrong_queue)]
    #[allow(dead_code)]
    struct Wrong {
        id: i64,
    }
    let bank = Bank::new();
    let found = Wrong::check_schema(&mut bank.connect()).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].problem.contains("last_attempt_error_message"), "{found:?}");
    assert!(found[0].problem.ends_with("as NOT NULL, but it may be null"), "{found:?}");
    assert!(found[0].mend.starts_with("write `Nullable<..>` there"), "{found:?}");
}

#[test]
fn a_generated_column_that_table_lists_is_not_lacking() {
    mod with_generated {
        diesel::table! { payments (id) { id -> BigInt, doubled -> Nullable<BigInt>, } }
    }
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = with_generated::payments)]
    #[queue(module = with_generated_queue)]
    #[allow(dead_code)]
    struct WithGenerated {
        id: i64,
    }
    let bank = Bank::new();
    let connection = &mut bank.connect();
    let kept = if db::NAME == "sqlite" { "VIRTUAL" } else { "STORED" };
    let column = format!("doubled {BIGINT} GENERATED ALWAYS AS (amount_cents * 2) {kept}");
    execute(connection, &format!("ALTER TABLE payments ADD COLUMN {column}"));
    assert_schema!(connection, WithGenerated);
}

#[test]
fn a_missing_table_and_a_view_are_one_sentence_each() {
    let bank = Bank::before_the_queue();
    let connection = &mut bank.connect();
    execute(
        connection,
        "ALTER TABLE payments RENAME TO real_payments; CREATE VIEW payments AS SELECT * FROM real_payments",
    );
    let found = Sound::check_schema(connection).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].problem.contains("is a view"), "{found:?}");
    execute(connection, "DROP VIEW payments");
    let found = Sound::check_schema(connection).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].problem.starts_with("there is no table "), "{found:?}");
}
