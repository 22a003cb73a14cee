//! The answers of several calls are written in one transaction, and no answer suffers from the others in it.

use std::sync::{Arc, Mutex};

use diesel::prelude::*;
use diesel::sql_types::BigInt;
use queueable::{AsyncCalls, HandlerResult, Lease, Message, Queueable, Status};
use tokio::runtime::Runtime;
use tokio::sync::Barrier;

use super::{Gate, PATIENCE, book, poller, runtime, until, with_status};
use crate::db::Conn;
use crate::suite::bank::{Bank, payment_queue, payments};
use crate::suite::lease::Charge;
use crate::suite::lease_together::assert_neighbours_lose_nothing;

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

/// Applies answers that all wait for the worker, and returns how many shared a transaction with the one before.
fn shared_answers(runtime: &Runtime) -> usize {
    let bank = Bank::new();
    let ids = bank.enqueue(1..=300);
    // The row whose answer was applied last, as others see it.
    let (seen_by, last) = (Mutex::new(bank.connect()), Mutex::new(None::<i64>));
    let shared = Arc::new(Mutex::new(0));
    let counts = shared.clone();
    let tally = apply_with(&bank, runtime, 300, move |charge, receipt, message| {
        if let Some(last) = last.lock().unwrap().replace(charge.id) {
            let row = payments::table.find(last).select(payment_queue::status);
            let status: Status = row.get_result(&mut *seen_by.lock().unwrap())?;
            *counts.lock().unwrap() += usize::from(status == Status::InProgress);
        }
        book(charge.id, *receipt, message)
    });
    assert_eq!((tally.succeeded, tally.interrupted, tally.lost), (300, 0, 0));
    assert_eq!(bank.booked(), ids);
    assert!(ids.iter().all(|id| bank.state(*id).try_count == 1));
    *shared.lock().unwrap()
}

#[test]
fn answers_that_wait_for_a_worker_are_committed_together() {
    let runtime = runtime();
    // The slower the machine applies an answer, the fewer wait for their neighbours.
    let shared = (0..10).map(|_| shared_answers(&runtime)).find(|shared| *shared > 100);
    assert!(
        shared.is_some(),
        "in none of ten runs did more than 100 of 300 answers share a transaction with the one before"
    );
}

#[test]
fn an_answer_that_cannot_be_applied_costs_its_neighbours_nothing() {
    let runtime = runtime();
    assert_neighbours_lose_nothing(|bank, apply| {
        apply_with(bank, &runtime, 100, apply);
    });
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
