//! Async calls: a transaction with several answers whose end the worker does not see, and a shutdown without grace.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use diesel::prelude::*;
use fail::FailScenario;
use queueable::{AsyncCalls, Lease, Message, Queueable, Status, Tally};
use tokio::sync::Barrier;

use super::{PATIENCE, Patient, book};
use crate::db::Conn;
use crate::suite::bank::{Bank, payment_queue, payments};

const CALLS: usize = 60;

/// Has so many calls answer at the same time. At this fail point, the first transaction with several answers panics.
fn panic_once_at(fail_point: &'static str) -> (Bank, Tally, usize) {
    let scenario = FailScenario::setup();
    let bank = Bank::new();
    let ids = bank.enqueue((1..).take(CALLS));
    // How many answers the current transaction has applied, and how many the one that has panicked.
    let (applied, lost) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counts, noted) = (applied.clone(), lost.clone());
    let panics = move || {
        let answers = counts.swap(0, Ordering::SeqCst);
        if answers > 1 && noted.compare_exchange(0, answers, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            panic!("at the fail point {fail_point}");
        }
    };
    fail::cfg_callback(fail_point, panics).unwrap();
    let barrier = Arc::new(Barrier::new(CALLS));
    let apply = move |patient: &Patient, answer: &i64, message: &mut Message<'_, Conn>| {
        applied.fetch_add(1, Ordering::SeqCst);
        book(patient.id, *answer, message)
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let calls = AsyncCalls::of(
        move |_: &Patient, _: &Lease| {
            let barrier = barrier.clone();
            Box::pin(async move {
                barrier.wait().await;
                Ok(7)
            })
        },
        apply,
    )
    .in_flight(CALLS)
    .runtime(runtime.handle().clone());
    let tally = Patient::poller(bank.pool(1), calls).workers(1).run_until_idle().unwrap();
    scenario.teardown();
    assert_eq!(bank.booked(), ids, "every payment is booked once");
    (bank, tally, lost.load(Ordering::SeqCst))
}

fn assert_all_succeeded(bank: &Bank, tally: &Tally) {
    assert_eq!(usize::try_from(tally.succeeded), Ok(CALLS), "{tally:?}");
    assert_eq!((tally.lost, tally.interrupted), (0, 0), "{tally:?}");
    let succeeded = payments::table.filter(payment_queue::status.eq(Status::Success)).count();
    let succeeded: i64 = succeeded.get_result(&mut bank.connect()).unwrap();
    assert_eq!(usize::try_from(succeeded), Ok(CALLS));
}

#[test]
fn answers_that_were_committed_unseen_count_once_and_are_not_applied_again() {
    let (bank, tally, answers) = panic_once_at("committed");
    assert_all_succeeded(&bank, &tally);
    assert!(answers > 1);
}

#[test]
fn answers_that_were_not_committed_are_applied_again() {
    let (bank, tally, answers) = panic_once_at("committing");
    assert_all_succeeded(&bank, &tally);
    assert!(answers > 1);
}

/// Tells whether a heartbeat runs in this process.
fn heart_beats() -> bool {
    let threads = std::fs::read_dir("/proc/self/task").expect("the threads of the process");
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.into_iter().any(|name| name.trim_end() == "queueable-heart")
}

#[test]
fn a_heartbeat_that_leaves_before_it_hears_that_the_grace_is_over_gives_the_rows_back() {
    let scenario = FailScenario::setup();
    let bank = Bank::new();
    bank.enqueue([1, 2, 3]);
    fail::cfg_callback("leases-revoked", || {
        let deadline = Instant::now() + PATIENCE;
        while heart_beats() {
            assert!(Instant::now() < deadline, "the heartbeat does not leave");
            std::thread::yield_now();
        }
    })
    .unwrap();
    let (begin, begun) = mpsc::channel();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let calls = AsyncCalls::of(
        move |_: &Patient, _: &Lease| {
            begin.send(()).unwrap();
            Box::pin(std::future::pending())
        },
        |patient: &Patient, answer: &i64, message: &mut Message<'_, Conn>| book(patient.id, *answer, message),
    );
    let calls = calls.in_flight(3).runtime(runtime.handle().clone());
    let handle = Patient::poller(bank.pool(1), calls).workers(1).start().unwrap();
    (0..3).for_each(|_| begun.recv_timeout(PATIENCE).expect("a call begins"));
    let shutdown = handle.shutdown(Duration::ZERO);
    assert_eq!((shutdown.rolled_back, shutdown.tally.interrupted), (3, 3));
    // The shutdown does not wait for it longer than a second.
    let given_back = payments::table.filter(payment_queue::status.eq(Status::NotAttempted)).count();
    let deadline = Instant::now() + PATIENCE;
    while given_back.get_result::<i64>(&mut bank.connect()) != Ok(3) {
        assert!(Instant::now() < deadline, "the rows are not given back");
        std::thread::yield_now();
    }
    scenario.teardown();
}
