//! What the three modes lock, and what they repeat: cells of `docs/choosing-a-mode.md` that no other test covers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use diesel::prelude::*;
use queueable::{Error, Lease, Message, Outcome, Queueable};

use crate::db::{Conn, NAME};
use crate::suite::bank::{Bank, Payment, payments};
use crate::suite::lease::Charge;

/// A payment that shares its transaction with others.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group = 10, retry = fixed("1h"), timeout = "30s")]
pub(crate) struct Grouped {
    pub(crate) id: i64,
    pub(crate) amount_cents: i64,
}

/// Tells whether another session holds the row's lock.
fn is_locked(connection: &mut Conn, id: i64) -> bool {
    let queue = Payment::queue().filter(payments::id.eq(id)).wait(Duration::from_millis(20));
    match queue.skip(connection) {
        Err(Error::Held(_)) => true,
        skipped => {
            assert_eq!(skipped.unwrap(), 1);
            false
        }
    }
}

#[test]
fn a_row_is_locked_while_its_handler_runs_and_its_neighbours_are_not() {
    let bank = Arc::new(Bank::new());
    let ids = bank.enqueue([1, 2]);
    let (asked, neighbour) = (bank.clone(), ids[1]);
    let tally = bank.run(move |payment: &Payment, _: &mut Message<'_, Conn>| {
        let mut connection = asked.connect();
        assert!(is_locked(&mut connection, payment.id));
        // SQLite has one lock for all.
        assert!(NAME == "sqlite" || !is_locked(&mut connection, neighbour));
        Ok(Outcome::Done)
    });
    assert_eq!(tally.succeeded, if NAME == "sqlite" { 2 } else { 1 });
}

#[test]
fn all_rows_of_a_group_are_locked_until_the_group_ends() {
    let bank = Arc::new(Bank::new());
    // A backlog makes the groups grow.
    let ids = bank.enqueue(1..=40);
    let asked = bank.clone();
    let handled = Arc::new(Mutex::new(Vec::new()));
    let seen = handled.clone();
    let found = Arc::new(AtomicBool::new(false));
    let locked = found.clone();
    let handler = move |row: &Grouped, _: &mut Message<'_, Conn>| {
        let before = seen.lock().unwrap().last().copied();
        seen.lock().unwrap().push(row.id);
        if let (Some(before), false, 20) = (before, locked.load(Ordering::SeqCst), row.amount_cents) {
            let mut connection = asked.connect();
            // The row before this one has been handled, and is still locked like this one.
            assert!(is_locked(&mut connection, row.id) && is_locked(&mut connection, before));
            locked.store(true, Ordering::SeqCst);
        }
        Ok(Outcome::Done)
    };
    let tally = Grouped::poller(bank.pool(1), handler).workers(1).run_until_idle().unwrap();
    assert_eq!(tally.succeeded, 40);
    assert!(found.load(Ordering::SeqCst));
    assert_eq!(handled.lock().unwrap().len(), ids.len());
}

#[test]
fn a_leased_row_is_locked_while_its_answer_is_applied_and_not_while_it_is_called_for() {
    let bank = Arc::new(Bank::new());
    let id = bank.enqueue([1])[0];
    let (called, applied) = (bank.clone(), bank.clone());
    let handler = (
        move |charge: &Charge, _: &Lease| {
            let row = payments::table.find(charge.id);
            diesel::update(row).set(payments::amount_cents.eq(2)).execute(&mut called.connect())?;
            Ok(())
        },
        move |charge: &Charge, _: &(), _: &mut Message<'_, Conn>| {
            assert!(is_locked(&mut applied.connect(), charge.id));
            Ok(Outcome::Done)
        },
    );
    let tally = Charge::poller(bank.pool(2), handler).workers(1).run_until_idle().unwrap();
    assert_eq!(tally.succeeded, 1);
    let amount = payments::table.find(id).select(payments::amount_cents).get_result(&mut bank.connect());
    assert_eq!(amount, Ok(2));
}
