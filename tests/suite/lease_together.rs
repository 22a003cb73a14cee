//! Lease mode: the answers of quick calls are written in one transaction, and no answer suffers from the others in it.

use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::{SimpleConnection, TransactionManager};
use diesel::prelude::*;
use queueable::{Failure, HandlerResult, Lease, LeaseHandler, Message, Outcome, Poller, Queueable, Status};

use crate::db::Conn;
use crate::suite::bank::{Bank, payment_queue, payments};
use crate::suite::lease::{Charge, apply};

const PATIENCE: Duration = Duration::from_secs(60);

fn call(charge: &Charge, _: &Lease) -> Result<i64, Failure> {
    Ok(charge.amount_cents)
}

fn poller(bank: &Bank, workers: u32, handler: impl LeaseHandler<Charge, Conn> + 'static) -> Poller<Conn> {
    Charge::poller(bank.pool(workers), handler).workers(workers as usize).claim_batch(50)
}

/// Waits until the condition is true.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn the_answers_of_quick_calls_are_committed_together() {
    let bank = Bank::new();
    let ids = bank.enqueue(1..=300);
    // The row whose answer was applied last, as others see it.
    let (seen_by, last) = (Mutex::new(bank.connect()), Mutex::new(None::<i64>));
    let shared = Arc::new(Mutex::new(0));
    let counts = shared.clone();
    let apply = move |charge: &Charge, receipt: &i64, message: &mut Message<'_, Conn>| {
        if let Some(last) = last.lock().unwrap().replace(charge.id) {
            let row = payments::table.find(last).select(payment_queue::status);
            let status: Status = row.get_result(&mut *seen_by.lock().unwrap())?;
            *counts.lock().unwrap() += usize::from(status == Status::InProgress);
        }
        apply(charge, receipt, message)
    };
    let tally = poller(&bank, 1, (call, apply)).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.interrupted, tally.lost), (300, 0, 0));
    assert_eq!(bank.booked(), ids);
    let shared = *shared.lock().unwrap();
    // A machine that stands still for some milliseconds ends a transaction early.
    assert!(shared > 30, "only {shared} of 300 answers shared a transaction with the one before");
    assert!(ids.iter().all(|id| bank.state(*id).try_count == 1));
}

#[test]
fn a_row_that_is_claimed_alone_has_a_transaction_of_its_own() {
    let bank = Bank::new();
    let ids = bank.enqueue(1..=20);
    let seen_by = Mutex::new(bank.connect());
    let apply = move |charge: &Charge, receipt: &i64, message: &mut Message<'_, Conn>| {
        let leased = payments::table.filter(payment_queue::status.eq(Status::InProgress)).count();
        let leased: i64 = leased.get_result(&mut *seen_by.lock().unwrap())?;
        assert_eq!(leased, 1, "the last row is settled, and the next one not claimed");
        apply(charge, receipt, message)
    };
    let tally = poller(&bank, 1, (call, apply)).claim_batch(1).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.retried), (20, 0));
    assert_eq!(bank.booked(), ids);
}

/// What the handler of a row does to the transaction in which it is applied.
fn misbehave(how: i64, message: &mut Message<'_, Conn>) -> HandlerResult {
    match how {
        1 => Err(Failure::retry("the books are closed")),
        2 => panic!("a bug in the answer"),
        3 => {
            let _ = message.connection().batch_execute("INSERT INTO no_such_table VALUES (1)");
            Ok(Outcome::Done)
        }
        4 => {
            let _ = message.connection().batch_execute("COMMIT");
            Ok(Outcome::Done)
        }
        5 => {
            let _ = message.connection().batch_execute("ROLLBACK");
            Ok(Outcome::Done)
        }
        6 => {
            // A transaction of the handler's own, which it leaves open.
            let connection = message.connection();
            <Conn as Connection>::TransactionManager::begin_transaction(connection)?;
            Ok(Outcome::Done)
        }
        7 => Ok(Outcome::Skip),
        8 => Ok(Outcome::Delete),
        9 => Err(Failure::fatal("the card is void")),
        _ => Ok(Outcome::Done),
    }
}

/// Enqueues a hundred rows, every tenth of which misbehaves, each in its own way, has `work` process them with this handler's
/// second half, and asserts that the other rows are none the worse for it.
pub(crate) fn assert_neighbours_lose_nothing(
    work: impl FnOnce(&Bank, fn(&Charge, &i64, &mut Message<'_, Conn>) -> HandlerResult),
) {
    let bank = Bank::new();
    let ids = bank.enqueue((0..100).map(|row| if row % 10 == 5 { row / 10 } else { 0 }));
    work(&bank, |charge, _, message| {
        let _ = apply(charge, &1, message)?;
        misbehave(charge.amount_cents, message)
    });
    let booked = bank.booked();
    let times = |id: i64| booked.iter().filter(|booked| **booked == id).count();
    for (row, id) in ids.iter().enumerate() {
        let how = if row % 10 == 5 { row / 10 } else { 0 };
        if how == 8 {
            let left: i64 = payments::table.find(id).count().get_result(&mut bank.connect()).unwrap();
            assert_eq!((left, times(*id)), (0, 1), "the handler has removed row {row}");
            continue;
        }
        let state = bank.state(*id);
        let (status, tries) = (state.status, state.try_count);
        match how {
            0 => assert_eq!((status, tries, times(*id)), (Status::Success, 1, 1), "row {row}: {state:?}"),
            7 => assert_eq!((status, times(*id)), (Status::Skipped, 1), "row {row}: {state:?}"),
            9 => assert_eq!((status, tries, times(*id)), (Status::Failed, 1, 0), "row {row}: {state:?}"),
            // PostgreSQL takes no statement after one that has failed.
            3 if status == Status::Success => assert_eq!((tries, times(*id)), (1, 1), "row {row}: {state:?}"),
            // Where the server lets a handler commit, its own effects stay.
            4 => assert!((status, tries) == (Status::Error, 1) && times(*id) <= 1, "row {row}: {state:?}"),
            _ => assert_eq!((status, tries, times(*id)), (Status::Error, 1, 0), "row {row}: {state:?}"),
        }
    }
    let text = |how: usize| bank.state(ids[how * 10 + 5]).last_attempt_error_message.unwrap();
    assert_eq!(text(1), "the books are closed");
    assert_eq!(text(2), "the handler panicked: a bug in the answer");
}

#[test]
fn an_answer_that_cannot_be_applied_costs_its_neighbours_nothing() {
    assert_neighbours_lose_nothing(|bank, apply| {
        poller(bank, 1, (call, apply)).run_until_idle().unwrap();
    });
}

#[test]
fn a_call_that_fails_costs_its_neighbours_nothing() {
    let bank = Bank::new();
    let ids = bank.enqueue(0..60);
    let call = |charge: &Charge, _: &Lease| match charge.amount_cents % 6 {
        1 => Err(Failure::retry("no route to the bank")),
        3 => panic!("a bug in the call"),
        5 => Err(Failure::fatal("the card is void")),
        amount => Ok(amount),
    };
    let tally = poller(&bank, 2, (call, apply)).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.retried, tally.failed), (30, 20, 10));
    let even: Vec<_> = ids.iter().copied().step_by(2).collect();
    assert_eq!(bank.booked(), even);
}

/// A call that waits for the test in the rows of this amount.
fn waits_in(amount: i64) -> (impl Fn(&Charge, &Lease) -> Result<i64, Failure> + Send + Sync, Waiting) {
    let (begin, begun) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (begin, released) = (Mutex::new(begin), Mutex::new(released));
    let (called, others) = mpsc::channel();
    let others = Mutex::new(others);
    let call = move |charge: &Charge, _: &Lease| {
        if charge.amount_cents != amount {
            let _ = called.send(());
            return Ok(charge.amount_cents);
        }
        // A shutdown gives a row back that another worker has taken and whose call it has not begun.
        (1..amount).for_each(|_| others.lock().unwrap().recv_timeout(PATIENCE).unwrap());
        let _ = begin.lock().unwrap().send(());
        // It ends when the sender is dropped.
        let _ = released.lock().unwrap().recv_timeout(PATIENCE);
        Ok(charge.amount_cents)
    };
    (call, Waiting { begun, release })
}

struct Waiting {
    begun: mpsc::Receiver<()>,
    release: mpsc::Sender<()>,
}

#[test]
fn answers_do_not_wait_for_a_slow_call_behind_them_while_another_worker_is_here() {
    let bank = Bank::new();
    let ids = bank.enqueue(1..=20);
    // No row is left that would give the other worker a turn.
    let (call, waiting) = waits_in(20);
    let handle = poller(&bank, 2, (call, apply)).start().unwrap();
    waiting.begun.recv_timeout(PATIENCE).unwrap();
    until("all others are settled", || handle.tally().succeeded == 19);
    assert_eq!(bank.state(ids[19]).status, Status::InProgress);
    drop(waiting.release);
    until("the last one is settled", || handle.tally().succeeded == 20);
    assert_eq!(bank.booked(), ids);
    handle.shutdown(PATIENCE);
}

#[test]
fn answers_before_a_slow_call_are_written_during_a_shutdown() {
    let bank = Bank::new();
    let ids = bank.enqueue(1..=20);
    let (call, waiting) = waits_in(20);
    let handle = poller(&bank, 2, (call, apply)).start().unwrap();
    waiting.begun.recv_timeout(PATIENCE).unwrap();
    let stopping = thread::spawn(move || handle.shutdown(PATIENCE).tally);
    until("all others are settled", || bank.booked().len() == 19);
    drop(waiting.release);
    let tally = stopping.join().unwrap();
    assert_eq!((tally.succeeded, tally.interrupted, tally.lost), (20, 0, 0));
    assert_eq!(bank.booked(), ids);
}

#[test]
fn rows_whose_answers_wait_for_a_call_at_shutdown_are_settled_or_given_back() {
    let bank = Bank::new();
    let ids = bank.enqueue(1..=20);
    let (call, waiting) = waits_in(10);
    let handle = poller(&bank, 1, (call, apply)).start().unwrap();
    waiting.begun.recv_timeout(PATIENCE).unwrap();
    handle.shutdown(Duration::ZERO);
    drop(waiting.release);
    let booked = bank.booked();
    until("no row is leased", || ids.iter().all(|id| bank.state(*id).status != Status::InProgress));
    for id in &ids {
        let state = bank.state(*id);
        match booked.contains(id) {
            true => assert_eq!((state.status, state.try_count), (Status::Success, 1), "{id}"),
            false => assert_eq!((state.status, state.try_count), (Status::NotAttempted, 0), "{id}: no try is used"),
        }
    }
    assert!(!booked.contains(&ids[9]));
    let tally = poller(&bank, 1, (self::call, apply)).run_until_idle().unwrap();
    assert_eq!(usize::try_from(tally.succeeded).unwrap() + booked.len(), 20);
    assert_eq!(bank.booked(), ids);
}

/// A payment whose call has less time than its lease.
#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = hurried_queue, lease = "60s", timeout = "5s", retry = fixed("1h"))]
struct Hurried {
    id: i64,
    amount_cents: i64,
}

#[test]
fn answers_before_a_call_that_does_not_return_are_applied_when_it_is_given_up() {
    let bank = Bank::new();
    let ids = bank.enqueue(1..=20);
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let call = move |payment: &Hurried, _: &Lease| {
        if payment.amount_cents == 10 {
            // It ends when the sender is dropped.
            let _ = released.lock().unwrap().recv_timeout(PATIENCE);
        }
        Ok(payment.id)
    };
    let apply = |payment: &Hurried, receipt: &i64, message: &mut Message<'_, Conn>| {
        apply(&Charge { id: payment.id, amount_cents: payment.amount_cents }, receipt, message)
    };
    // The worker that is left behind keeps its connection.
    let handle = Hurried::poller(bank.pool(3), (call, apply)).workers(1).claim_batch(50).start().unwrap();
    until("all others are settled", || handle.tally().succeeded == 19);
    let state = bank.state(ids[9]);
    assert_eq!((state.status, state.try_count), (Status::Error, 1));
    assert!(state.last_attempt_error_message.unwrap().contains("longer than its timeout of 5s"));
    drop(release);
    handle.shutdown(PATIENCE);
    let others: Vec<_> = ids.iter().copied().filter(|id| *id != ids[9]).collect();
    assert_eq!(bank.booked(), others);
}
