//! Finished rows go to one pool, refused ones to another: a row moves to another table in the transaction that settles
//! it.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use queueable::{Failure, HandlerResult, Lease, Message, Outcome, Queueable, Tally};

use crate::db::{BIGINT, Conn};
use crate::suite::bank::{Bank, Payment, payments};
use crate::suite::lease::Charge;

diesel::table! {
    finished_payments (id) { id -> BigInt, amount_cents -> BigInt, }
}
diesel::table! {
    refused_payments (id) { id -> BigInt, amount_cents -> BigInt, }
}

/// A payment that shares its transaction with others.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group = 10, retry = fixed("1h"), timeout = "30s")]
struct Grouped {
    id: i64,
    amount_cents: i64,
}

/// Moves the row: an insert in the message's transaction, and `Delete` as its outcome.
fn move_row(id: i64, amount_cents: i64, message: &mut Message<'_, Conn>) -> HandlerResult {
    if amount_cents < 0 {
        diesel::insert_into(refused_payments::table)
            .values((refused_payments::id.eq(id), refused_payments::amount_cents.eq(amount_cents)))
            .execute(message.connection())?;
    } else {
        diesel::insert_into(finished_payments::table)
            .values((finished_payments::id.eq(id), finished_payments::amount_cents.eq(amount_cents)))
            .execute(message.connection())?;
    }
    if amount_cents == 13 {
        return Err(Failure::retry("after the move"));
    }
    Ok(Outcome::Delete)
}

/// Runs five payments, one of which fails after its move, and one of which is refused.
fn moved(serve: impl FnOnce(Pool<ConnectionManager<Conn>>) -> Tally) {
    let bank = Bank::new();
    let tables = ["finished_payments", "refused_payments"].map(|table| {
        format!("CREATE TABLE {table} (id {BIGINT} PRIMARY KEY NOT NULL, amount_cents {BIGINT} NOT NULL);")
    });
    bank.connect().batch_execute(&tables.concat()).unwrap();
    let ids = bank.enqueue([1, 2, 13, -4, 5]);
    let tally = serve(bank.pool(2));
    assert_eq!((tally.succeeded, tally.retried), (4, 1));
    let mut connection = bank.connect();
    let left: Vec<i64> = payments::table.select(payments::id).load(&mut connection).unwrap();
    assert_eq!(left, [ids[2]], "what failed is where it was");
    let finished = finished_payments::table.select(finished_payments::id).order(finished_payments::id);
    assert_eq!(finished.load::<i64>(&mut connection).unwrap(), [ids[0], ids[1], ids[4]]);
    let refused = refused_payments::table.select(refused_payments::id);
    assert_eq!(refused.load::<i64>(&mut connection).unwrap(), [ids[3]]);
}

#[test]
fn a_row_moves_to_its_pool_in_the_transaction_that_settles_it() {
    moved(|pool| {
        let handler = |row: &Payment, message: &mut Message<'_, Conn>| move_row(row.id, row.amount_cents, message);
        Payment::poller(pool, handler).workers(1).run_until_idle().unwrap()
    });
}

#[test]
fn a_row_of_a_group_moves_to_its_pool_in_the_groups_transaction() {
    moved(|pool| {
        let handler = |row: &Grouped, message: &mut Message<'_, Conn>| move_row(row.id, row.amount_cents, message);
        Grouped::poller(pool, handler).workers(1).run_until_idle().unwrap()
    });
}

#[test]
fn a_leased_row_moves_to_its_pool_in_the_transaction_that_applies_the_answer() {
    moved(|pool| {
        let call = |_: &Charge, _: &Lease| Ok(());
        let apply = |row: &Charge, _: &(), message: &mut Message<'_, Conn>| move_row(row.id, row.amount_cents, message);
        Charge::poller(pool, (call, apply)).workers(1).run_until_idle().unwrap()
    });
}
