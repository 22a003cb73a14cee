//! The worker leases rows with one statement, which is its own transaction.

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_migrations::MigrationHarness;
use queue_core::internals::statement::Scope;
use queue_core::internals::{LowWater, RowKey};
use queueable::{Failure, Lease, Message, Migrations, Outcome, QueueState, Queueable, Status};

use crate::db::{Conn, Database, KEEP_SEVEN};
use crate::suite::bank::{Bank, Payment, payments};
use crate::suite::keyed::{erased, queue};
use crate::suite::lease::{Charge, apply};
use crate::suite::low_water::due_at;

const LEASE: Duration = Duration::from_secs(60);

diesel::table! { by_both (company, number) { company -> Text, number -> BigInt, status -> Text, amount -> BigInt, } }

/// An entity with its own status beside the queue's.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = by_both, primary_key(company, number))]
#[queue(prefix = "work_", lease = "60s", retry = fixed("1h"))]
struct ByBoth {
    number: i64,
    company: String,
    status: String,
    amount: i64,
}

#[test]
fn the_rows_come_as_they_were_in_the_order_of_their_due_times_with_what_their_rows_say_now() {
    let bank = Bank::new();
    let ids: Vec<_> = [30, 10, 40, 20].map(|minute| due_at(&bank, minute)).into();
    let low_water = LowWater::of::<Conn>(queue::<Charge>().options, false);
    let claim_floor = low_water.claim_floor();
    let except: Vec<_> = ids[3..].iter().map(|id| RowKey::new(*id, id.to_string())).collect();
    let scope = Scope { except: &except, claim_floor: Some(&claim_floor), ..Scope::ALL };
    let rows = erased::<Charge>().lease_at_once(&mut bank.connect(), LEASE, 2, scope).unwrap().rows;
    claim_floor.keep();
    assert_eq!(rows.iter().map(|(row, _)| *row.key).collect::<Vec<_>>(), [ids[1], ids[0]]);
    for (row, began) in &rows {
        let (_, before) = row.message.as_ref().unwrap();
        assert_eq!((before.status, before.try_count, before.last_attempt_time), (Status::NotAttempted, 0, None));
        assert!(before.next_attempt_time.unwrap() < chrono::Utc::now() - chrono::TimeDelta::days(1));
        let now = bank.state(*row.key);
        assert_eq!((now.status, now.try_count), (Status::InProgress, 1));
        assert_eq!(now.last_attempt_time, began.map(Into::into));
        let lease = now.next_attempt_time.unwrap() - now.last_attempt_time.unwrap();
        assert!((lease - chrono::TimeDelta::minutes(1)).abs() < chrono::TimeDelta::seconds(1), "{lease}");
    }
    assert_eq!(bank.state(ids[2]).status, Status::NotAttempted);
}

#[test]
fn a_row_that_a_trigger_keeps_is_told_from_its_neighbours() {
    let bank = Bank::new();
    bank.connect().batch_execute(KEEP_SEVEN).unwrap();
    let ids = bank.enqueue([1, 7, 3]);
    let rows = erased::<Charge>().lease_at_once(&mut bank.connect(), LEASE, 3, Scope::ALL).unwrap().rows;
    let mut written: Vec<_> = rows.iter().map(|(row, began)| (*row.key, began.is_some())).collect();
    written.sort_unstable();
    assert_eq!(written, [(ids[0], true), (ids[1], false), (ids[2], true)]);
}

#[test]
fn a_row_that_a_rule_at_the_commit_keeps_does_not_stop_its_neighbours() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 7, 3]);
    bank.connect()
        .batch_execute(
            "CREATE FUNCTION keep_seven_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             IF NEW.amount_cents = 7 THEN RAISE EXCEPTION 'seven stays'; END IF; RETURN NULL; END $$; \
             CREATE CONSTRAINT TRIGGER keep_seven_at_commit AFTER UPDATE ON payments DEFERRABLE INITIALLY DEFERRED \
             FOR EACH ROW EXECUTE FUNCTION keep_seven_at_commit()",
        )
        .unwrap();
    let (called, calls) = mpsc::channel();
    let called = Mutex::new(called);
    let call = move |charge: &Charge, _: &Lease| -> Result<i64, Failure> {
        called.lock().unwrap().send(charge.id)?;
        Ok(charge.amount_cents)
    };
    let handle = Charge::poller(bank.pool(1), (call, apply)).workers(1).start().unwrap();
    let called: Vec<_> = [(); 2].map(|()| calls.recv_timeout(LEASE)).into();
    assert_eq!(called, [Ok(ids[0]), Ok(ids[2])]);
    assert_eq!(handle.shutdown(LEASE).tally.succeeded, 2);
    assert_eq!(bank.state(ids[1]).status, Status::NotAttempted);
}

#[test]
fn a_database_that_is_stricter_by_default_is_no_hindrance() {
    let bank = Bank::new();
    bank.connect()
        .batch_execute(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database());
             EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$",
        )
        .unwrap();
    let mut connection = bank.connect();
    connection.batch_execute("SET default_transaction_read_only = off").unwrap();
    for amount in 1..=100 {
        let row = (payments::company_id.eq(1), payments::amount_cents.eq(amount), Payment::due_now());
        diesel::insert_into(payments::table).values(row).execute(&mut connection).unwrap();
    }
    let call = |charge: &Charge, _: &Lease| Ok::<_, Failure>(charge.amount_cents);
    let tally = Charge::poller(bank.pool(4), (call, apply)).workers(4).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.interrupted), (100, 0));
}

#[test]
fn a_key_of_two_columns_and_columns_of_the_entitys_own_with_our_names_are_no_hindrance() {
    let database = Database::new();
    let mut connection = database.connect();
    connection
        .batch_execute(
            "CREATE TABLE by_both (company TEXT, number BIGINT, status TEXT NOT NULL, amount BIGINT NOT NULL, \
             PRIMARY KEY (number, company))",
        )
        .unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<ByBoth>()).unwrap();
    for (company, number, amount) in [("a", 1, 1), ("a", 2, 2), ("b", 1, 3)] {
        let key = (by_both::company.eq(company), by_both::number.eq(number));
        let row = (key, by_both::status.eq("open"), by_both::amount.eq(amount), ByBoth::due_now());
        diesel::insert_into(by_both::table).values(row).execute(&mut connection).unwrap();
    }
    let call = |row: &ByBoth, _: &Lease| {
        assert_eq!(row.status, "open");
        Ok::<_, Failure>(format!("{}{}", row.company, row.number))
    };
    let apply = |row: &ByBoth, answer: &String, message: &mut Message<'_, Conn>| {
        diesel::update(by_both::table.filter(by_both::amount.eq(row.amount)))
            .set(by_both::status.eq(answer))
            .execute(message.connection())?;
        Ok(Outcome::Done)
    };
    let poller = ByBoth::poller(database.pool(3), (call, apply)).workers(1).claim_batch(3);
    assert_eq!(poller.run_until_idle().unwrap().succeeded, 3);
    let rows: Vec<(String, QueueState)> = by_both::table
        .order(by_both::amount)
        .select((by_both::status, ByBoth::queue_state()))
        .load(&mut connection)
        .unwrap();
    let rows: Vec<_> = rows.iter().map(|(status, state)| (status.as_str(), state.status, state.try_count)).collect();
    assert_eq!(rows, [("a1", Status::Success, 1), ("a2", Status::Success, 1), ("b1", Status::Success, 1)]);
}

#[test]
fn a_table_whose_rule_forbids_the_one_statement_is_claimed_in_steps_as_many_rows_at_a_time() {
    let bank = Bank::new();
    bank.enqueue(1..=40);
    bank.connect()
        .batch_execute(
            "CREATE TABLE audit (payment_id BIGINT NOT NULL, writer BIGINT NOT NULL);
             CREATE RULE audit AS ON UPDATE TO payments WHERE NEW.status = 'IN_PROGRESS'
             DO ALSO INSERT INTO audit VALUES (OLD.id, txid_current())",
        )
        .unwrap();
    let call = |charge: &Charge, _: &Lease| Ok::<_, Failure>(charge.amount_cents);
    let poller = Charge::poller(bank.pool(1), (call, apply)).workers(1).claim_batch(8);
    let tally = poller.run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.interrupted, tally.retried), (40, 0, 0));
    let claims =
        "SELECT count(*) FROM (SELECT 1 FROM audit GROUP BY writer HAVING count(DISTINCT payment_id) = 8) AS claims";
    assert_eq!(sql::<BigInt>(claims).get_result::<i64>(&mut bank.connect()), Ok(5));
}
