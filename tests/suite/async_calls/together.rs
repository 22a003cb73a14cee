//! The answers of several calls are written in one transaction, and no answer suffers from the others in it.

use std::sync::{Arc, Mutex};

use diesel::connection::{SimpleConnection, TransactionManager};
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use queueable::{AsyncCalls, Failure, HandlerResult, Lease, Message, Outcome, Queueable, Status};
use tokio::runtime::Runtime;
use tokio::sync::Barrier;

use super::{Gate, PATIENCE, book, poller, runtime, until, with_status};
use crate::db::Conn;
use crate::suite::bank::{Bank, payment_queue, payments};
use crate::suite::lease::Charge;

/// Has so many calls answer at the same time, and one worker apply their answers.
fn apply_with(
    bank: &Bank,
    runtime: &Runtime,
    calls: usize,
    apply: impl Fn(&Charge, &i64, &mut Message<'_, Conn>) -> HandlerResult + Send + Sync + 'static,
) -> queueable::Tally {
    let barrier = Arc::new(Barrier::new(calls));
    let calls = AsyncCalls::of(
        move |charge: &Charge, _: &Lease| {
            let (barrier, answer) = (barrier.clone(), charge.amount_cents);
            Box::pin(async move {
                barrier.wait().await;
                Ok(answer)
            })
        },
        apply,
    )
    .in_flight(calls)
    .runtime(runtime.handle().clone());
    Charge::poller(bank.pool(1), calls).workers(1).run_until_idle().unwrap()
}

#[test]
fn answers_that_wait_for_a_worker_are_committed_together() {
    let (bank, runtime) = (Bank::new(), runtime());
    let ids = bank.enqueue(1..=300);
    // The row whose answer was applied last, as others see it.
    let (seen_by, last) = (Mutex::new(bank.connect()), Mutex::new(None::<i64>));
    let shared = Arc::new(Mutex::new(0));
    let counts = shared.clone();
    let tally = apply_with(&bank, &runtime, 300, move |charge, receipt, message| {
        if let Some(last) = last.lock().unwrap().replace(charge.id) {
            let row = payments::table.find(last).select(payment_queue::status);
            let status: Status = row.get_result(&mut *seen_by.lock().unwrap())?;
            *counts.lock().unwrap() += usize::from(status == Status::InProgress);
        }
        book(charge.id, *receipt, message)
    });
    assert_eq!((tally.succeeded, tally.interrupted, tally.lost), (300, 0, 0));
    assert_eq!(bank.booked(), ids);
    let shared = *shared.lock().unwrap();
    assert!(shared > 100, "only {shared} of 300 answers shared a transaction with the one before");
    assert!(ids.iter().all(|id| bank.state(*id).try_count == 1));
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

#[test]
fn an_answer_that_cannot_be_applied_costs_its_neighbours_nothing() {
    let (bank, runtime) = (Bank::new(), runtime());
    // Every tenth row misbehaves, each in its own way.
    let ids = bank.enqueue((0..100).map(|row| if row % 10 == 5 { row / 10 } else { 0 }));
    apply_with(&bank, &runtime, 100, |charge, _, message| {
        let _ = book(charge.id, 1, message)?;
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
fn a_row_that_changed_during_its_call_is_lost_alone() {
    let (bank, runtime, gate) = (Bank::new(), runtime(), Gate::new());
    let ids = bank.enqueue(1..=40);
    let pass = gate.pass();
    let calls = calls!(Charge, runtime, move |charge: &Charge, _: &Lease| pass(charge.id));
    let handle = poller(&bank, calls.in_flight(40)).workers(1).start().unwrap();
    gate.entered(40);
    let odd = diesel::dsl::sql::<BigInt>("amount_cents % 4").eq(1);
    assert_eq!(Charge::queue().filter(odd).skip(&mut bank.connect()).unwrap(), 10);
    gate.open();
    until("the others are settled", || with_status(&bank, Status::Success) == 30);
    until("the rows are given up", || handle.tally().lost == 10);
    let tally = handle.shutdown(PATIENCE).tally;
    assert_eq!((tally.succeeded, tally.lost, tally.interrupted), (30, 10, 0));
    let others: Vec<i64> = ids.into_iter().enumerate().filter(|(row, _)| row % 4 != 0).map(|(_, id)| id).collect();
    assert_eq!(bank.booked(), others);
    assert_eq!(with_status(&bank, Status::Skipped), 10);
}
