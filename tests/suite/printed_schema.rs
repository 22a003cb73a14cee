//! After `diesel print-schema` the queue's columns stand in `schema.rs`, with Diesel's own types: everything goes on
//! compiling and working, and both spellings mean the same columns. The roots mount the `table!` of their database.

use diesel::prelude::*;
use queueable::{HandlerResult, Message, Outcome, QueueState, Queueable, Status, assert_schema};

use crate::db::Conn;
use crate::printed::{Key, Time, payments};
use crate::suite::bank::Bank;

diesel::table! {
    companies (id) { id -> BigInt, balance_cents -> BigInt, }
}

diesel::joinable!(payments -> companies (company_id));
diesel::allow_tables_to_appear_in_same_query!(companies, payments);

#[derive(Debug, Clone, PartialEq, Queryable, Selectable, Identifiable, AsChangeset, Queueable)]
#[diesel(table_name = payments)]
#[queue(timeout = "30s")]
struct Payment {
    id: Key,
    company_id: i64,
    amount_cents: i64,
}

#[derive(Insertable)]
#[diesel(table_name = payments)]
struct NewPayment {
    company_id: i64,
    amount_cents: i64,
}

fn refuse_seven(payment: &Payment, message: &mut Message<'_, Conn>) -> HandlerResult {
    if payment.amount_cents == 7 {
        return Err(std::io::Error::other("seven").into());
    }
    diesel::update(companies::table.find(payment.company_id))
        .set(companies::balance_cents.eq(companies::balance_cents + payment.amount_cents))
        .execute(message.connection())?;
    Ok(Outcome::Done)
}

/// Payments that were processed: one that succeeded, and one that waits for its second try. A third is not queued.
fn processed() -> Bank {
    let bank = Bank::new();
    let connection = &mut bank.connect();
    for amount_cents in [100, 7] {
        diesel::insert_into(payments::table)
            .values((NewPayment { company_id: 1, amount_cents }, Payment::due_now()))
            .execute(connection)
            .unwrap();
    }
    diesel::insert_into(payments::table)
        .values(NewPayment { company_id: 2, amount_cents: 300 })
        .execute(connection)
        .unwrap();
    let tally = Payment::poller(bank.pool(1), refuse_seven).workers(1).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.retried), (1, 1));
    bank
}

#[test]
fn the_entity_is_processed_and_the_schema_has_no_differences() {
    let bank = processed();
    let connection = &mut bank.connect();
    let balance: i64 = companies::table.find(1).select(companies::balance_cents).get_result(connection).unwrap();
    assert_eq!(balance, 100);
    assert_schema!(connection, Payment);
}

#[test]
fn both_spellings_stand_in_one_query() {
    let bank = processed();
    let connection = &mut bank.connect();
    let (payment, text, tries, status, state): (Payment, String, i32, Status, QueueState) = payments::table
        .filter(payments::status.eq(payment_queue::status))
        .filter(payment_queue::status.eq(Status::Error).and(payments::try_count.eq(payment_queue::try_count)))
        .filter(payments::next_attempt_time.is_not_null())
        .order((payments::last_attempt_error_message, payment_queue::try_count.desc()))
        .select((
            Payment::as_select(),
            payments::status,
            payments::try_count,
            payment_queue::status,
            Payment::queue_state(),
        ))
        .get_result(connection)
        .unwrap();
    assert_eq!((payment.amount_cents, text.as_str(), tries, status), (7, "ERROR", 1, Status::Error));
    let message: Option<String> =
        payments::table.find(payment.id).select(payments::last_attempt_error_message).get_result(connection).unwrap();
    assert_eq!(message, state.last_attempt_error_message);
    let time: Option<Time> =
        payments::table.find(payment.id).select(payments::next_attempt_time).get_result(connection).unwrap();
    assert_eq!(time.is_some(), state.next_attempt_time.is_some());
    // The columns of `schema.rs` can also be selected from joins, and grouped by beside the domain's.
    let joined: Vec<(i64, String)> = companies::table
        .inner_join(payments::table)
        .filter(payment_queue::try_count.gt(0))
        .order(payments::id)
        .select((companies::id, payments::status))
        .load(connection)
        .unwrap();
    assert_eq!(joined, [(1, "SUCCESS".to_owned()), (1, "ERROR".to_owned())]);
    let mut counts: Vec<(i64, String, i64)> = payments::table
        .group_by((payments::company_id, payments::status))
        .select((payments::company_id, payments::status, diesel::dsl::count_star()))
        .load(connection)
        .unwrap();
    counts.sort();
    let expected = [(1, "ERROR", 1), (1, "SUCCESS", 1), (2, "NOT_ATTEMPTED", 1)];
    assert_eq!(counts, expected.map(|(company, status, count)| (company, status.to_owned(), count)));
}

#[test]
fn a_struct_that_is_saved_late_writes_no_queue_column() {
    let bank = Bank::new();
    let connection = &mut bank.connect();
    diesel::insert_into(payments::table)
        .values((NewPayment { company_id: 1, amount_cents: 100 }, Payment::due_now()))
        .execute(connection)
        .unwrap();
    let mut early: Payment = payments::table.select(Payment::as_select()).get_result(connection).unwrap();
    assert_eq!(Payment::poller(bank.pool(1), refuse_seven).workers(1).run_until_idle().unwrap().succeeded, 1);
    let settled: QueueState = payments::table.select(Payment::queue_state()).get_result(connection).unwrap();
    early.amount_cents = 101;
    assert_eq!(diesel::update(&early).set(&early).execute(connection), Ok(1));
    let now: (Payment, QueueState) =
        payments::table.select((Payment::as_select(), Payment::queue_state())).get_result(connection).unwrap();
    assert_eq!(now, (early, settled));
    // By their names in `schema.rs` the columns can be set, as by the others.
    diesel::update(payments::table)
        .set((payments::status.eq("SKIPPED"), payment_queue::try_count.eq(5)))
        .execute(connection)
        .unwrap();
    let skipped: QueueState = payments::table.select(Payment::queue_state()).get_result(connection).unwrap();
    assert_eq!((skipped.status, skipped.try_count), (Status::Skipped, 5));
}
