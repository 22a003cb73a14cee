//! Handlers that do not return: the server ends their sessions, and the work goes on without their threads.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use queueable::{AsyncCalls, Event, HandlerResult, Lease, Message, Outcome, Poller, PollerSettings, Queueable, Status};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, ledger, payments};
use crate::suite::events::{listener, name};
use crate::suite::group::{booked, entity};
use crate::suite::lease::{Charge, apply};

const PATIENCE: Duration = Duration::from_secs(60);

/// The amount whose handler does not return.
const ENDLESS: i64 = 1;

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = impatient_queue, retry = fixed("1h"), timeout = "3s")]
struct Impatient {
    id: i64,
    amount_cents: i64,
}

entity!(Together, together_queue, timeout = "12s", group = 20);

/// A poller with one worker, whose handlers the test observes.
struct Stage {
    poller: Poller<Conn>,
    /// The rows whose handlers have begun, each with the name of its thread.
    begun: Receiver<(i64, String)>,
    /// Lets the endless handler return when it is dropped.
    release: Sender<()>,
}

impl Stage {
    fn new(bank: &Bank, connections: u32) -> Self {
        let (begin, begun) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let (begin, released) = (Mutex::new(begin), Mutex::new(released));
        let handler = move |payment: &Impatient, _: &mut Message<'_, Conn>| -> HandlerResult {
            let name = thread::current().name().unwrap_or_default().to_owned();
            let _ = begin.lock().unwrap().send((payment.id, name));
            if payment.amount_cents == ENDLESS {
                let _ = released.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(PATIENCE);
            }
            Ok(Outcome::Done)
        };
        let mut settings = PollerSettings::default();
        settings.workers = 1;
        settings.pool_timeout = Duration::from_millis(100);
        let poller = Impatient::poller(bank.database.pool(connections), handler).settings(settings);
        Stage { poller, begun, release }
    }
}

fn enqueue(bank: &Bank) -> (i64, i64) {
    let ids = bank.enqueue([ENDLESS, 2]);
    let long_ago = chrono::Utc::now() - chrono::TimeDelta::hours(1);
    diesel::update(payments::table.find(ids[0])).set(Impatient::due_at(long_ago)).execute(&mut bank.connect()).unwrap();
    (ids[0], ids[1])
}

/// Waits until the row is in this state.
fn await_status(bank: &Bank, id: i64, status: Status) {
    let (_nobody, pace) = mpsc::channel::<()>();
    let reached = (0..3000).any(|_| {
        let _ = pace.recv_timeout(Duration::from_millis(10));
        bank.state(id).status == status
    });
    assert!(reached, "{:?}", bank.state(id));
}

#[test]
fn a_handler_that_does_not_return_fails_at_once_and_another_thread_takes_its_place() {
    let bank = Bank::new();
    let (endless, other) = enqueue(&bank);
    let Stage { poller, begun, release } = Stage::new(&bank, 3);
    let (listener, heard) = listener();
    let handle = poller.on_event(listener).start().unwrap();
    assert_eq!(begun.recv_timeout(PATIENCE), Ok((endless, "queueable-0".to_owned())));
    assert_eq!(begun.recv_timeout(PATIENCE), Ok((other, "queueable-substitute".to_owned())));
    let state = bank.state(endless);
    assert_eq!((state.status, state.try_count), (Status::Error, 1));
    assert!(state.last_attempt_error_message.unwrap().contains("longer than its timeout of 3s"));
    await_status(&bank, other, Status::Success);
    // The handler still runs.
    let shutdown = handle.shutdown(PATIENCE);
    assert_eq!((shutdown.tally.retried, shutdown.tally.succeeded, shutdown.rolled_back), (1, 1, 0));
    drop(release);
    assert_eq!(bank.state(endless).try_count, 1);
    assert_eq!(told_of(endless, heard), ["Begun", "TimedOut", "WillRetry", "WorkerStuck"]);
}

/// Returns the names of the events of a row.
fn told_of(id: i64, heard: Receiver<Event>) -> Vec<String> {
    let of_row = |event: &Event| event.attempt().is_some_and(|attempt| *attempt.key == id.to_string());
    heard.iter().filter(of_row).map(|event| name(&event)).collect()
}

#[test]
fn a_poller_that_runs_until_idle_does_not_wait_for_a_handler_without_an_end() {
    let bank = Bank::new();
    enqueue(&bank);
    let Stage { poller, release, .. } = Stage::new(&bank, 3);
    let tally = poller.run_until_idle().unwrap();
    assert_eq!((tally.retried, tally.succeeded), (1, 1));
    drop(release);
}

#[test]
fn a_worker_that_may_not_be_replaced_goes_on_when_its_handler_has_returned() {
    let bank = Bank::new();
    let (endless, other) = enqueue(&bank);
    let Stage { poller, begun, release } = Stage::new(&bank, 3);
    let handle = poller.max_stuck_workers(0).start().unwrap();
    begun.recv_timeout(PATIENCE).unwrap();
    await_status(&bank, endless, Status::Error);
    drop(release);
    assert_eq!(begun.recv_timeout(PATIENCE), Ok((other, "queueable-0".to_owned())));
    let tally = handle.shutdown(PATIENCE).tally;
    assert_eq!((tally.retried, tally.succeeded), (1, 1));
}

#[test]
fn a_substitute_that_gets_no_connection_asks_again() {
    let bank = Bank::new();
    let (endless, other) = enqueue(&bank);
    // One session for the worker, one for the poller.
    let Stage { poller, begun, release } = Stage::new(&bank, 2);
    let (listener, heard) = listener();
    let handle = poller.on_event(listener).start().unwrap();
    begun.recv_timeout(PATIENCE).unwrap();
    let mut events = std::iter::from_fn(|| heard.recv_timeout(PATIENCE).ok());
    assert!(events.any(|event| matches!(event, Event::WorkerStuck { is_replaced: true, .. })));
    assert_eq!(bank.state(endless).status, Status::Error);
    drop(release);
    assert_eq!(begun.recv_timeout(PATIENCE), Ok((other, "queueable-substitute".to_owned())));
    assert_eq!(handle.shutdown(PATIENCE).tally.succeeded, 1);
}

#[test]
fn a_handler_that_does_not_return_to_its_group_fails_alone_and_the_others_go_on() {
    let bank = Bank::new();
    let mut ids = bank.enqueue(2..=200);
    // The stuck handler books nothing, because its amount has another meaning in the ledger.
    ids.extend(bank.enqueue([ENDLESS]));
    let endless = ids[199];
    ids.extend(bank.enqueue(201..=300));
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let handler = move |together: &Together, message: &mut Message<'_, Conn>| -> HandlerResult {
        let payment: Payment = together.payment();
        if payment.amount_cents == ENDLESS {
            let _ = released.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(PATIENCE);
        }
        // Not the company's balance: a neighbour would wait for the group of the stuck handler, beyond its own timeout.
        diesel::insert_into(ledger::table)
            .values((ledger::payment_id.eq(payment.id), ledger::amount_cents.eq(payment.amount_cents)))
            .execute(message.connection())?;
        Ok(Outcome::Done)
    };
    let (listener, heard) = listener();
    let tally = Together::poller(bank.pool(4), handler).workers(2).on_event(listener).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.retried, tally.failed, tally.lost), (299, 1, 0, 0));
    let state = bank.state(endless);
    assert_eq!((state.status, state.try_count), (Status::Error, 1));
    assert!(state.last_attempt_error_message.unwrap().contains("longer than its timeout of 12s"));
    drop(release);
    // Its groups are given up or undone until the message has its own time. Another worker may begin it between the end
    // of an attempt's session and the record of its failure; that attempt is interrupted.
    let told = told_of(endless, heard);
    let times = |name: &str| told.iter().filter(|told| *told == name).count();
    assert_eq!(times("WillRetry"), 1, "{told:?}");
    assert_eq!(times("Begun"), times("Interrupted") + 1, "{told:?}");
    assert!(times("TimedOut") > 0 && times("WorkerStuck") > 0, "{told:?}");
    ids.remove(199);
    assert_eq!(booked(&bank), ids);
}

/// How long the transactions of a queue in lease mode may take by default, and a slow machine's time on top.
const TRANSACTION_PATIENCE: Duration = Duration::from_secs(180);

#[test]
fn an_answer_whose_handler_does_not_return_takes_no_other_answer_with_it() {
    let bank = Bank::new();
    let ids = bank.enqueue(1..=20);
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let barrier = Arc::new(tokio::sync::Barrier::new(20));
    let calls = AsyncCalls::of(
        move |_: &Charge, _: &Lease| {
            let barrier = barrier.clone();
            Box::pin(async move {
                barrier.wait().await;
                Ok(())
            })
        },
        move |charge: &Charge, (): &(), message: &mut Message<'_, Conn>| {
            if charge.amount_cents == ENDLESS {
                let _ = released.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(TRANSACTION_PATIENCE);
            }
            apply(charge, &7, message)
        },
    );
    let calls = calls.in_flight(20).runtime(runtime.handle().clone());
    let handle = Charge::poller(bank.pool(2), calls).workers(1).start().unwrap();
    let ended = || handle.tally().succeeded + handle.tally().retried;
    let (_nobody, pace) = mpsc::channel::<()>();
    let deadline = Instant::now() + TRANSACTION_PATIENCE;
    while ended() < 20 {
        assert!(Instant::now() < deadline, "not all rows are settled: {:?}", handle.tally());
        let _ = pace.recv_timeout(Duration::from_millis(10));
    }
    drop(release);
    let tally = handle.shutdown(PATIENCE).tally;
    assert_eq!((tally.succeeded, tally.retried, tally.lost, tally.interrupted), (19, 1, 0, 0));
    assert_eq!(bank.booked(), ids[1..], "the others are booked once");
    let state = bank.state(ids[0]);
    assert_eq!((state.status, state.try_count), (Status::Error, 1));
}
