//! Tests of the service's handler, by the test kit. Run them with `cargo test -p queueable-services --test axum_service`.

#[allow(unused, reason = "the service needs more of it")]
mod payments;

use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::testing::{SqliteDatabase, SqliteTemplate, TestQueue, assert_schema, days, now};
use queueable::{Migrations, QueueState, Queueable, Status};

use self::payments::{Charge, Payment, ledger, payments as table};

static SERVICE: SqliteTemplate = SqliteTemplate::new(|connection| {
    payments::create_tables(connection)?;
    connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
    Ok(())
});

/// A database with one payment that a request has enqueued.
fn with_payment(amount_cents: i64) -> SqliteDatabase {
    let mut service = SERVICE.begin();
    diesel::insert_into(table::table)
        .values((table::id.eq(1), table::company_id.eq(3345), table::amount_cents.eq(amount_cents), Payment::due_now()))
        .execute(&mut service.connection)
        .unwrap();
    service
}

fn booked(connection: &mut SqliteConnection) -> Vec<(i64, i64)> {
    ledger::table.load(connection).unwrap()
}

fn state(connection: &mut SqliteConnection) -> QueueState {
    table::table.find(1).select(Payment::queue_state()).get_result(connection).unwrap()
}

#[test]
fn a_payment_is_booked_once() {
    let connection = &mut with_payment(1999).connection;
    assert_eq!(Payment::drain(connection, &Charge).unwrap().succeeded(), 1);
    assert_eq!(booked(connection), [(1, 1999)]);
    assert!(Payment::drain(connection, &Charge).unwrap().attempts.is_empty());
}

#[test]
fn a_payment_above_the_limit_fails_for_good_and_is_not_booked() {
    let connection = &mut with_payment(1_000_001).connection;
    let drained = Payment::drain(connection, &Charge).unwrap();
    assert_eq!(drained.to_string(), "Payment 1: try 1 gave up: more than 1000000 cents are charged by hand\n");
    assert_eq!((state(connection).status, booked(connection)), (Status::Failed, vec![]));
}

#[test]
fn a_payment_that_stands_in_the_ledger_already_is_tried_ten_times_within_a_day() {
    let connection = &mut with_payment(1999).connection;
    let before = (ledger::payment_id.eq(1), ledger::amount_cents.eq(5));
    diesel::insert_into(ledger::table).values(before).execute(connection).unwrap();
    let begun = now(connection).unwrap();
    let drained = Payment::drain_until_idle(connection, &Charge).unwrap();
    assert_eq!((drained.retried(), drained.failed()), (9, 1), "{drained}");
    assert!(now(connection).unwrap() - begun < days(1));
    let state = state(connection);
    assert!(state.last_attempt_error_message.unwrap().contains("UNIQUE constraint failed: ledger.payment_id"));
    assert_eq!(booked(connection), [(1, 5)]);
}

#[test]
fn the_tables_have_what_the_queue_needs() {
    assert_schema!(&mut SERVICE.open().connection, Payment);
}
