//! Diesel's features for PostgreSQL and SQLite only: `RETURNING`, and a conflict on a named column.

use chrono::DateTime;
use diesel::prelude::*;
use diesel::upsert::excluded;
use queueable::columns::Instant;
use queueable::{QueueState, Queueable, Status};

use crate::suite::bank::{Bank, NewPayment, Payment, payment_queue, payments};

#[test]
fn an_insert_and_an_update_return_queue_columns() {
    let bank = Bank::new();
    let mut connection = bank.connect();
    let (payment, state): (Payment, QueueState) = diesel::insert_into(payments::table)
        .values((NewPayment { company_id: 1, amount_cents: 100 }, Payment::due_at(DateTime::UNIX_EPOCH)))
        .returning((Payment::as_returning(), Payment::queue_state()))
        .get_result(&mut connection)
        .unwrap();
    assert_eq!((payment.amount_cents, state.next_attempt_time), (100, Some(DateTime::UNIX_EPOCH)));
    let changed: Vec<(i64, Status)> = diesel::update(payments::table.filter(payment_queue::try_count.eq(0)))
        .set(payment_queue::status.eq(Status::Skipped))
        .returning((payments::id, payment_queue::status))
        .get_results(&mut connection)
        .unwrap();
    assert_eq!(changed, [(payment.id, Status::Skipped)]);
    let deleted: Option<Instant> = diesel::delete(payments::table.find(payment.id))
        .returning(payment_queue::next_attempt_time)
        .get_result(&mut connection)
        .unwrap();
    assert_eq!(deleted, Some(Instant::from(DateTime::UNIX_EPOCH)));
}

#[test]
fn a_conflict_leaves_the_row_alone_or_enqueues_it_anew() {
    let bank = Bank::new();
    let mut connection = bank.connect();
    let id = bank.enqueue([100])[0];
    diesel::update(payments::table.find(id))
        .set((payment_queue::status.eq(Status::Error), payment_queue::try_count.eq(7)))
        .execute(&mut connection)
        .unwrap();
    let row = (payments::id.eq(id), NewPayment { company_id: 1, amount_cents: 200 }, Payment::due_now());

    let inserted = diesel::insert_into(payments::table)
        .values(row.clone())
        .on_conflict(payments::id)
        .do_nothing()
        .execute(&mut connection);
    assert_eq!(inserted, Ok(0));
    assert_eq!(bank.state(id).try_count, 7);

    let updated = diesel::insert_into(payments::table)
        .values(row)
        .on_conflict(payments::id)
        .do_update()
        .set((
            payments::amount_cents.eq(excluded(payments::amount_cents)),
            payment_queue::status.eq(excluded(payment_queue::status)),
            payment_queue::try_count.eq(excluded(payment_queue::try_count)),
            payment_queue::next_attempt_time.eq(excluded(payment_queue::next_attempt_time)),
        ))
        .execute(&mut connection);
    assert_eq!(updated, Ok(1));
    assert_eq!((bank.state(id).status, bank.state(id).try_count), (Status::NotAttempted, 0));
}
