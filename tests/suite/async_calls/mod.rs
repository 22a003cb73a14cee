//! Lease mode with async calls: many calls wait on a tokio runtime, and a few workers claim their rows and write their
//! answers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{
    AsyncCalls, AsyncLeaseHandler, CallFuture, Event, Failure, HandlerResult, Lease, LeaseHandler, Message, Migrations,
    Outcome, Pause, Poller, Queueable, Status,
};
use tokio::runtime::Runtime;
use tokio::sync::{Barrier, Semaphore};

use crate::db::Conn;
use crate::suite::bank::{Bank, ledger, payment_queue, payments};
use crate::suite::lease::{Charge, apply};
use crate::suite::warnings::{await_warning, keep_warnings};

const PATIENCE: Duration = Duration::from_secs(60);

/// A payment under a lease that is short enough for a test to see its extension, and longer than a machine may pause.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = brief_queue, lease = "8s", retry = fixed("1h"))]
struct Brief {
    id: i64,
    amount_cents: i64,
}

/// A payment whose call has less time than its lease.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = hurried_queue, lease = "60s", timeout = "100ms", retry = fixed("1h"))]
struct Hurried {
    id: i64,
    amount_cents: i64,
}

/// Payments that are called one at a time.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = alone_queue, exclusive, lease = "60s", retry = fixed("1h"))]
struct Alone {
    id: i64,
    amount_cents: i64,
}

/// Payments that are called one at a time for each company.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = serial_queue, serial_by = company_id, lease = "60s", retry = fixed("1h"))]
struct Serial {
    id: i64,
    company_id: i64,
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Makes the calls of a queue on the payments, whose answers are booked in the ledger.
macro_rules! calls {
    ($entity:ty, $runtime:expr, $call:expr) => {{
        let book =
            |payment: &$entity, receipt: &i64, message: &mut Message<'_, Conn>| book(payment.id, *receipt, message);
        AsyncCalls::of($call, book).runtime($runtime.handle().clone())
    }};
}

// After the macro, which it uses.
mod ends;
mod together;

fn book(id: i64, receipt: i64, message: &mut Message<'_, Conn>) -> HandlerResult {
    diesel::insert_into(ledger::table)
        .values((ledger::payment_id.eq(id), ledger::amount_cents.eq(receipt)))
        .execute(message.connection())?;
    Ok(Outcome::Done)
}

fn poller(bank: &Bank, calls: impl LeaseHandler<Charge, Conn> + 'static) -> Poller<Conn> {
    Charge::poller(bank.pool(2), calls).workers(2)
}

/// Waits until the condition is true.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

fn with_status(bank: &Bank, status: Status) -> i64 {
    payments::table.filter(payment_queue::status.eq(status)).count().get_result(&mut bank.connect()).unwrap()
}

/// Calls that wait until the test lets them go, one for each permit.
struct Gate {
    permits: Arc<Semaphore>,
    entered: mpsc::Receiver<i64>,
    enter: mpsc::Sender<i64>,
    inside: Arc<Inside>,
}

/// How many futures of calls exist.
#[derive(Default)]
struct Inside {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// Counts a future until it is dropped.
struct Counted(Arc<Inside>);

impl Counted {
    fn new(inside: &Arc<Inside>) -> Self {
        let now = inside.now.fetch_add(1, Ordering::SeqCst) + 1;
        inside.most.fetch_max(now, Ordering::SeqCst);
        Counted(inside.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Gate {
    fn new() -> Self {
        let (enter, entered) = mpsc::channel();
        Gate { permits: Arc::new(Semaphore::new(0)), entered, enter, inside: Arc::default() }
    }

    /// Returns what a call does: it notes that it is inside, and waits for a permit.
    fn pass(&self) -> impl Fn(i64) -> CallFuture<'static, i64> + Send + Sync + 'static {
        let (permits, enter, inside) = (self.permits.clone(), Mutex::new(self.enter.clone()), self.inside.clone());
        move |id| {
            let (permits, counted) = (permits.clone(), Counted::new(&inside));
            let _ = enter.lock().unwrap().send(id);
            Box::pin(async move {
                let _counted = counted;
                permits.acquire().await?.forget();
                Ok(id)
            })
        }
    }

    /// Waits until so many more calls have begun, and returns their rows.
    fn entered(&self, calls: usize) -> Vec<i64> {
        (0..calls).map(|_| self.entered.recv_timeout(PATIENCE).expect("a call begins")).collect()
    }

    fn let_go(&self, calls: usize) {
        self.permits.add_permits(calls);
    }

    fn open(&self) {
        self.let_go(Semaphore::MAX_PERMITS / 2);
    }

    fn inside(&self) -> usize {
        self.inside.now.load(Ordering::SeqCst)
    }
}

#[test]
fn the_answers_of_async_calls_are_applied_together_with_their_states() {
    struct Bill;

    impl AsyncLeaseHandler<Charge, Conn> for Bill {
        type Answer = i64;

        async fn call(&self, charge: &Charge, lease: &Lease) -> Result<i64, Failure> {
            // A call may wait for the runtime's timer.
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert_eq!((lease.try_number(), lease.queue_state().status), (1, Status::InProgress));
            assert_eq!(lease.idempotency_key(), format!("payments.status:{}", charge.id));
            assert!(!lease.lease_lost() && !lease.remaining().is_zero());
            Ok(charge.amount_cents)
        }

        fn apply(&self, charge: &Charge, receipt: &i64, message: &mut Message<'_, Conn>) -> HandlerResult {
            apply(charge, receipt, message)
        }
    }

    let (bank, runtime) = (Bank::new(), runtime());
    let ids = bank.enqueue(1..=40);
    let calls = runtime.block_on(async { AsyncCalls::new(Arc::new(Bill)).in_flight(7) });
    let tally = poller(&bank, calls).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.lost, tally.interrupted), (40, 0, 0));
    assert_eq!(bank.booked(), ids);
    let state = bank.state(ids[0]);
    assert_eq!((state.status, state.try_count, state.next_attempt_time), (Status::Success, 1, None));
}

#[test]
fn hundreds_of_calls_wait_at_the_same_time_for_two_workers() {
    let (bank, runtime) = (Bank::new(), runtime());
    let ids = bank.enqueue(1..=300);
    // It opens when all of them are inside.
    let barrier = Arc::new(Barrier::new(300));
    let calls = calls!(Charge, runtime, move |charge: &Charge, _: &Lease| {
        let barrier = barrier.clone();
        Box::pin(async move {
            barrier.wait().await;
            Ok(charge.amount_cents)
        })
    });
    assert_eq!(poller(&bank, calls.in_flight(300)).run_until_idle().unwrap().succeeded, 300);
    assert_eq!(bank.booked(), ids);
}

#[test]
fn a_shared_handler_calls_beside_the_workers_too() {
    let (bank, runtime) = (Bank::new(), runtime());
    bank.enqueue(1..=3);
    let barrier = Arc::new(Barrier::new(3));
    let calls = calls!(Charge, runtime, move |_: &Charge, _: &Lease| {
        let barrier = barrier.clone();
        Box::pin(async move {
            barrier.wait().await;
            Ok(1)
        })
    });
    let tally = Charge::poller(bank.pool(1), Arc::new(calls)).workers(1).run_until_idle().unwrap();
    assert_eq!(tally.succeeded, 3);
}

#[test]
fn no_row_is_claimed_whose_call_cannot_begin() {
    let (bank, runtime, gate) = (Bank::new(), runtime(), Gate::new());
    bank.enqueue(1..=40);
    let pass = gate.pass();
    let calls = calls!(Charge, runtime, move |charge: &Charge, _: &Lease| pass(charge.id));
    let handle = poller(&bank, calls.in_flight(8)).start().unwrap();
    gate.entered(8);
    let mut leased = vec![with_status(&bank, Status::InProgress)];
    for _ in 8..40 {
        gate.let_go(1);
        gate.entered(1);
        leased.push(with_status(&bank, Status::InProgress));
    }
    gate.open();
    until("all rows are settled", || with_status(&bank, Status::Success) == 40);
    assert_eq!(handle.shutdown(PATIENCE).tally.succeeded, 40);
    assert_eq!(leased, vec![8; 33], "as many as may begin, and no more");
    assert_eq!(gate.inside.most.load(Ordering::SeqCst), 8);
}

#[test]
fn a_failure_of_either_part_follows_the_policy_and_leaves_nothing_behind() {
    let (bank, runtime) = (Bank::new(), runtime());
    let ids = bank.enqueue([1, 2, 3, 4, 5]);
    let calls = AsyncCalls::of(
        |charge: &Charge, _: &Lease| {
            if charge.amount_cents == 3 {
                panic!("a bug before the future");
            }
            Box::pin(async move {
                tokio::task::yield_now().await;
                match charge.amount_cents {
                    1 => Err(Failure::retry("no route to the bank")),
                    2 => Err(Failure::fatal("the card is void")),
                    4 => panic!("a bug in the call"),
                    _ => Ok(5),
                }
            })
        },
        |charge: &Charge, receipt: &i64, message: &mut Message<'_, Conn>| {
            let _ = apply(charge, receipt, message)?;
            Err(Failure::retry("the books are closed"))
        },
    );
    let tally = poller(&bank, calls.runtime(runtime.handle().clone())).run_until_idle().unwrap();
    assert_eq!((tally.retried, tally.failed), (4, 1));
    assert!(bank.booked().is_empty());
    let text = |id: &i64| bank.state(*id).last_attempt_error_message.unwrap();
    let texts = ids.iter().map(text).collect::<Vec<_>>();
    let panicked = ["the handler panicked: a bug before the future", "the handler panicked: a bug in the call"];
    let told = ["no route to the bank", "the card is void", panicked[0], panicked[1], "the books are closed"];
    assert_eq!(texts, told);
    let states = ids.iter().map(|id| (bank.state(*id).status, bank.state(*id).try_count)).collect::<Vec<_>>();
    let (retried, failed) = ((Status::Error, 1), (Status::Failed, 1));
    assert_eq!(states, [retried, failed, retried, retried, retried]);
}

#[test]
fn the_heartbeat_extends_the_leases_of_all_calls() {
    let (bank, runtime, gate) = (Bank::new(), runtime(), Gate::new());
    let ids = bank.enqueue(1..=120);
    let pass = gate.pass();
    let calls = calls!(Brief, runtime, move |brief: &Brief, lease: &Lease| {
        // Longer than the lease, which is the timeout by default.
        lease.extend(Duration::from_secs(600)).unwrap();
        pass(brief.id)
    });
    let handle = Brief::poller(bank.pool(2), calls.in_flight(120)).workers(2).start().unwrap();
    gate.entered(120);
    let earliest = || {
        let ends = payments::table.select(payment_queue::next_attempt_time);
        let ends = ends.load::<Option<DateTime<Utc>>>(&mut bank.connect()).unwrap();
        ends.into_iter().map(|end| end.expect("a row under a lease")).min().unwrap()
    };
    let first = earliest();
    until("every lease ends later than the first by more than its length", || {
        earliest() > first + TimeDelta::seconds(8)
    });
    gate.open();
    until("all answers are written", || with_status(&bank, Status::Success) == 120);
    let tally = handle.shutdown(PATIENCE).tally;
    assert_eq!((tally.succeeded, tally.lost), (120, 0));
    assert_eq!(bank.booked(), ids);
}

#[test]
fn a_paused_queue_begins_no_call_and_its_running_calls_end_as_ever() {
    let (bank, runtime, gate) = (Bank::new(), runtime(), Gate::new());
    bank.connect().run_pending_migrations(Migrations::new().control()).unwrap();
    bank.enqueue(1..=5);
    let pass = gate.pass();
    let calls = calls!(Charge, runtime, move |charge: &Charge, _: &Lease| pass(charge.id));
    keep_warnings();
    let handle = poller(&bank, calls.in_flight(2)).control().start().unwrap();
    gate.entered(2);
    Charge::pause(&mut bank.connect(), Pause::new("no calls for now", "ops@example.org")).unwrap();
    await_warning(&["INFO", "paused", "no calls for now"]);
    gate.open();
    until("the running calls are settled", || with_status(&bank, Status::Success) == 2);
    let tally = handle.shutdown(PATIENCE).tally;
    assert_eq!((tally.succeeded, tally.interrupted), (2, 0));
    assert_eq!(with_status(&bank, Status::NotAttempted), 3);
}

/// Returns what a call does that others may not overlap.
fn counting(inside: &Arc<Inside>) -> impl Fn(i64) -> CallFuture<'static, i64> + Send + Sync + 'static {
    let inside = inside.clone();
    move |answer| {
        let counted = Counted::new(&inside);
        Box::pin(async move {
            let _counted = counted;
            tokio::task::yield_now().await;
            Ok(answer)
        })
    }
}

#[test]
fn a_queue_that_processes_one_row_at_a_time_has_one_call_in_flight() {
    let (bank, runtime, inside) = (Bank::new(), runtime(), Arc::<Inside>::default());
    bank.connect().run_pending_migrations(Migrations::new().entity::<Alone>()).unwrap();
    let ids = bank.enqueue(1..=6);
    let count = counting(&inside);
    let calls = calls!(Alone, runtime, move |alone: &Alone, _: &Lease| count(alone.amount_cents));
    assert_eq!(Alone::poller(bank.pool(2), calls).workers(2).run_until_idle().unwrap().succeeded, 6);
    assert_eq!(inside.most.load(Ordering::SeqCst), 1);
    assert_eq!(bank.booked(), ids);
}

#[test]
fn the_rows_of_one_lane_are_called_one_after_the_other() {
    let (bank, runtime, inside) = (Bank::new(), runtime(), Arc::<Inside>::default());
    bank.connect().run_pending_migrations(Migrations::new().entity::<Serial>()).unwrap();
    let ids = bank.enqueue(1..=6);
    let count = counting(&inside);
    let calls = calls!(Serial, runtime, move |serial: &Serial, _: &Lease| count(serial.company_id));
    assert_eq!(Serial::poller(bank.pool(2), calls).workers(2).run_until_idle().unwrap().succeeded, 6);
    assert_eq!(inside.most.load(Ordering::SeqCst), 1);
    assert_eq!(bank.booked(), ids);
}

#[test]
fn a_runtime_of_one_thread_runs_the_calls_while_a_task_awaits_the_poller() {
    let bank = Bank::new();
    let ids = bank.enqueue(1..=20);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let barrier = Arc::new(Barrier::new(20));
    let tally = runtime.block_on(async {
        let call = move |id| -> CallFuture<'static, i64> {
            let barrier = barrier.clone();
            Box::pin(async move {
                barrier.wait().await;
                Ok(id)
            })
        };
        let calls = AsyncCalls::of(move |charge: &Charge, _: &Lease| call(charge.id), apply);
        poller(&bank, calls).run_until_idle_async().await.unwrap()
    });
    assert_eq!(tally.succeeded, 20);
    assert_eq!(bank.booked(), ids);
}

#[test]
fn a_runtime_that_is_gone_costs_no_row_a_try() {
    let (bank, runtime) = (Bank::new(), runtime());
    let id = bank.enqueue([1])[0];
    let calls = calls!(Charge, runtime, |charge: &Charge, _: &Lease| {
        let id = charge.id;
        Box::pin(async move { Ok(id) })
    });
    runtime.shutdown_timeout(PATIENCE);
    keep_warnings();
    let (sender, interrupted) = mpsc::channel();
    let listener = move |event: &Event| {
        if let Event::Interrupted(_) = event {
            let _ = sender.send(());
        }
    };
    let handle = poller(&bank, calls).on_event(listener).start().unwrap();
    interrupted.recv_timeout(PATIENCE).expect("the call is dropped");
    await_warning(&["Charge", "the tokio runtime of the async calls has ended: the poller stops"]);
    until("the poller has stopped", || !handle.health().alive);
    let _ = handle.shutdown(PATIENCE);
    assert!(interrupted.try_iter().count() <= 2, "each worker claims it once at most, and one more in between");
    let state = bank.state(id);
    assert_eq!((state.status, state.try_count), (Status::NotAttempted, 0));
    assert!(bank.booked().is_empty());
}

#[test]
fn calls_without_a_runtime_or_without_a_place_are_refused_at_start() {
    let (bank, runtime) = (Bank::new(), runtime());
    let make = || AsyncCalls::of(|charge: &Charge, _: &Lease| Box::pin(async move { Ok(charge.amount_cents) }), apply);
    let error = poller(&bank, make()).start().unwrap_err().to_string();
    assert!(error.contains("runtime") && error.contains("Handle::current()"), "{error}");
    let none = make().runtime(runtime.handle().clone()).in_flight(0);
    let error = poller(&bank, none).start().unwrap_err().to_string();
    assert!(error.contains("in flight") && error.contains('0'), "{error}");
    let none = make().runtime(runtime.handle().clone()).answers_per_transaction(0);
    let error = poller(&bank, none).start().unwrap_err().to_string();
    assert!(error.contains("answers per transaction") && error.contains('0'), "{error}");
}
