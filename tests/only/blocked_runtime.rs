//! Calls that block the thread on which the async calls of a queue run, which is the same on every database.

use std::future::pending;
use std::thread;
use std::time::Duration;

use queueable::{AsyncCalls, Failure, Lease, Poller, Queueable};
use tokio::runtime::{Builder, Runtime};

use crate::db::Conn;
use crate::suite::bank::Bank;
use crate::suite::lease::{Charge, apply};
use crate::suite::warnings::{await_warning, keep_warnings};

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A poller whose calls run on the runtime in which this is called.
fn poller(bank: &Bank) -> Poller<Conn> {
    let calls = AsyncCalls::of(|charge: &Charge, _: &Lease| Box::pin(async { Ok(charge.amount_cents) }), apply);
    Charge::poller(bank.pool(1), calls).workers(1)
}

#[test]
fn to_run_until_idle_on_the_only_thread_of_the_calls_runtime_is_an_error() {
    let one_worker = || Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let error_on = |runtime: Runtime| {
        let bank = Bank::new();
        bank.enqueue([100]);
        let task = async move { (poller(&bank).run_until_idle().unwrap_err().to_string(), bank) };
        let (error, bank) = runtime.block_on(async { tokio::spawn(task).await.unwrap() });
        assert!(bank.booked().is_empty());
        error
    };
    // Each takes some seconds.
    let other = thread::spawn(move || error_on(one_worker()));
    for error in [error_on(one_thread()), other.join().unwrap()] {
        assert_eq!(
            error,
            "run_until_idle is blocking the tokio runtime that has to run the async calls of Charge, expected \
             `run_until_idle_async().await`, or a call inside `tokio::task::spawn_blocking`, or calls on another runtime: \
             `AsyncCalls::runtime(handle)`"
        );
    }
}

#[test]
fn what_the_error_names_runs_until_idle_on_a_runtime_of_one_thread() {
    let bank = Bank::new();
    bank.enqueue([100, 200]);
    let tally = one_thread().block_on(async { poller(&bank).run_until_idle_async().await }).unwrap();
    assert_eq!(tally.succeeded, 2);
    bank.enqueue([300]);
    let tally = one_thread().block_on(async {
        let poller = poller(&bank);
        tokio::task::spawn_blocking(|| poller.run_until_idle()).await.unwrap()
    });
    assert_eq!((tally.unwrap().succeeded, bank.booked().len()), (1, 3));
}

#[test]
fn a_shutdown_that_blocks_the_calls_for_which_it_waits_warns() {
    keep_warnings();
    let bank = Bank::new();
    bank.enqueue([100]);
    one_thread().block_on(async {
        let (begin, mut begun) = tokio::sync::mpsc::unbounded_channel();
        let calls = AsyncCalls::of(
            move |_: &Charge, _: &Lease| {
                let _ = begin.send(());
                Box::pin(pending())
            },
            apply,
        );
        let handle = Charge::poller(bank.pool(1), calls).workers(1).start_async().await.unwrap();
        begun.recv().await.unwrap();
        handle.shutdown(Duration::from_secs(7));
    });
    await_warning(&["blocks the tokio runtime of the async calls", "shutdown_async", "Charge"]);
}

#[test]
#[expect(clippy::redundant_closure, reason = "a closure without types is what is tried here")]
fn closures_without_types_are_handlers() {
    let bank = Bank::new();
    bank.enqueue([100]);
    let poller = Poller::new(bank.pool(1)).serve_lease_with::<Charge, _>(
        |charge, lease| if lease.lease_lost() { Err(Failure::retry("lost")) } else { Ok(charge.amount_cents) },
        |charge, receipt, message| apply(charge, receipt, message),
    );
    assert_eq!((poller.workers(1).run_until_idle().unwrap().succeeded, bank.booked().len()), (1, 1));
}
