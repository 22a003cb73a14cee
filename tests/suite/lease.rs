//! Lease mode: the claim is committed, the call runs without a transaction, and a short transaction applies its answer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

use chrono::{TimeDelta, Utc};
use diesel::connection::TransactionManager;
use diesel::prelude::*;
use queueable::{
    ClaimStyle, Failure, HandlerResult, Lease, LeaseHandler, Message, Outcome, Poller, Queueable, Status, Tally,
};

use crate::db::Conn;
use crate::suite::attempt::backoff;
use crate::suite::bank::{Bank, Payment, ledger, payment_queue, payments};

/// The bank's payments, each charged by a call to the outside world.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(lease = "60s", retry = fixed("1h"), max_tries = 3)]
pub(crate) struct Charge {
    pub(crate) id: i64,
    pub(crate) amount_cents: i64,
}

pub(crate) fn poller(bank: &Bank, handler: impl LeaseHandler<Charge, Conn> + 'static) -> Poller<Conn> {
    Charge::poller(bank.pool(1), handler).workers(1)
}

fn run(bank: &Bank, handler: impl LeaseHandler<Charge, Conn> + 'static) -> Tally {
    poller(bank, handler).run_until_idle().unwrap()
}

/// The bank's answer is a receipt.
fn call(charge: &Charge, _: &Lease) -> Result<i64, Failure> {
    Ok(charge.amount_cents)
}

pub(crate) fn apply(charge: &Charge, receipt: &i64, message: &mut Message<'_, Conn>) -> HandlerResult {
    diesel::insert_into(ledger::table)
        .values((ledger::payment_id.eq(charge.id), ledger::amount_cents.eq(receipt)))
        .execute(message.connection())?;
    Ok(Outcome::Done)
}

fn make_due(bank: &Bank, id: i64) {
    diesel::update(payments::table.find(id))
        .set(payment_queue::next_attempt_time.eq(queueable::columns::Now))
        .execute(&mut bank.connect())
        .unwrap();
}

#[test]
fn the_answer_of_the_call_is_applied_together_with_the_state() {
    let bank = Bank::new();
    let ids = bank.enqueue([100, 200, 300]);
    let tally = run(&bank, (call, apply));
    assert_eq!((tally.succeeded, tally.lost), (3, 0));
    assert_eq!(bank.booked(), ids);
    let state = bank.state(ids[0]);
    assert_eq!((state.status, state.try_count, state.next_attempt_time), (Status::Success, 1, None));
}

#[test]
fn while_the_call_runs_the_row_is_leased_and_locked_by_nobody() {
    let bank = Arc::new(Bank::new());
    let id = bank.enqueue([100])[0];
    let seen = bank.clone();
    let tally = run(
        &bank,
        (
            move |charge: &Charge, lease: &Lease| {
                let state = seen.state(charge.id);
                assert_eq!((state.status, state.try_count), (Status::InProgress, 1));
                let left = state.next_attempt_time.unwrap() - Utc::now();
                assert!(left > TimeDelta::seconds(30) && left < TimeDelta::seconds(62), "{left}");
                assert_eq!((lease.try_number(), lease.queue_state().status), (1, Status::InProgress));
                assert!(!lease.lease_lost());
                // Nobody else can claim the row, but everybody may write on it.
                diesel::update(payments::table.find(charge.id))
                    .set(payments::company_id.eq(2))
                    .execute(&mut seen.connect())?;
                Ok(())
            },
            |charge: &Charge, _: &(), message: &mut Message<'_, Conn>| {
                assert_eq!(message.queue_state().status, Status::InProgress);
                apply(charge, &charge.amount_cents, message)
            },
        ),
    );
    assert_eq!(tally.succeeded, 1);
    assert_eq!(bank.booked(), [id]);
}

#[test]
fn a_failure_of_either_part_follows_the_policy_and_leaves_nothing_behind() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2, 3, 4]);
    let tally = run(
        &bank,
        (
            |charge: &Charge, _: &Lease| match charge.amount_cents {
                1 => Err(Failure::retry("no route to the bank")),
                2 => Err(Failure::fatal("the card is void")),
                3 => panic!("a bug in the call"),
                _ => Ok(4),
            },
            |charge: &Charge, receipt: &i64, message: &mut Message<'_, Conn>| {
                let _ = apply(charge, receipt, message)?;
                Err(Failure::retry_after(Duration::from_secs(90), "the books are closed"))
            },
        ),
    );
    assert_eq!((tally.retried, tally.failed), (3, 1));
    assert!(bank.booked().is_empty());
    let texts = ids.iter().map(|id| bank.state(*id).last_attempt_error_message.unwrap()).collect::<Vec<_>>();
    assert_eq!(
        texts,
        ["no route to the bank", "the card is void", "the handler panicked: a bug in the call", "the books are closed"]
    );
    let states = ids.iter().map(|id| bank.state(*id)).collect::<Vec<_>>();
    assert!(states.iter().all(|state| state.try_count == 1));
    assert_eq!(
        states.iter().map(|state| state.status).collect::<Vec<_>>(),
        [Status::Error, Status::Failed, Status::Error, Status::Error]
    );
    assert_eq!(backoff(&states[3]), TimeDelta::seconds(90));
}

#[test]
fn every_outcome_of_the_finishing_part_becomes_a_state_of_the_row() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2, 3, 4]);
    let tally = run(
        &bank,
        (call, |charge: &Charge, receipt: &i64, message: &mut Message<'_, Conn>| {
            let _ = apply(charge, receipt, message)?;
            Ok(match receipt {
                1 => Outcome::Done,
                2 => Outcome::Delete,
                3 => Outcome::again_in(Duration::from_secs(3600)),
                _ => Outcome::Skip,
            })
        }),
    );
    assert_eq!((tally.succeeded, tally.again, tally.skipped), (2, 1, 1));
    assert_eq!(bank.booked(), ids);
    let again = bank.state(ids[2]);
    assert_eq!((again.status, again.try_count), (Status::NotAttempted, 0), "no failure is counted");
    assert_eq!(bank.state(ids[3]).status, Status::Skipped);
}

#[test]
fn a_dead_workers_row_is_due_when_its_lease_ends_and_the_crash_is_counted() {
    let bank = Bank::new();
    let id = bank.enqueue([100])[0];
    let leave_behind = |tries: i32| {
        diesel::update(payments::table.find(id))
            .set((
                payment_queue::status.eq(Status::InProgress),
                payment_queue::try_count.eq(tries),
                payment_queue::next_attempt_time.eq(queueable::columns::Now),
            ))
            .execute(&mut bank.connect())
            .unwrap();
    };
    for style in [ClaimStyle::Auto, ClaimStyle::UpdateThenSelect] {
        leave_behind(1);
        let texts = Arc::new(Mutex::new(Vec::new()));
        let told = texts.clone();
        let handler = (
            move |_: &Charge, lease: &Lease| {
                told.lock().unwrap().push((lease.try_number(), lease.queue_state().last_attempt_error_message.clone()));
                Ok(1)
            },
            apply,
        );
        let tally = poller(&bank, handler).claim_style(style).run_until_idle().unwrap();
        assert_eq!(tally.succeeded, 1);
        assert_eq!(*texts.lock().unwrap(), [(2, Some("queueable: lease expired in attempt 1".to_owned()))]);
        assert_eq!(bank.state(id).try_count, 2);

        leave_behind(3);
        let tally = poller(&bank, (call, apply)).claim_style(style).run_until_idle().unwrap();
        assert_eq!((tally.failed, tally.succeeded), (1, 0));
        let state = bank.state(id);
        assert_eq!((state.status, state.try_count, state.next_attempt_time), (Status::Failed, 3, None));
        assert_eq!(state.last_attempt_error_message.as_deref(), Some("queueable: lease expired in attempt 3"));
    }
    assert_eq!(bank.booked(), [id, id], "once for each time it was left behind with tries to spare");
}

#[test]
fn a_worker_that_lost_its_lease_writes_nothing() {
    let bank = Arc::new(Bank::new());
    let id = bank.enqueue([100])[0];
    let thief = bank.clone();
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let handler = (
        move |charge: &Charge, _: &Lease| {
            counted.fetch_add(1, Ordering::SeqCst);
            // The lease has ended, and another worker has taken the row and is still processing it.
            make_due(&thief, charge.id);
            diesel::update(payments::table.find(charge.id))
                .set(payment_queue::try_count.eq(2))
                .execute(&mut thief.connect())?;
            diesel::update(payments::table.find(charge.id))
                .set(
                    payment_queue::next_attempt_time
                        .eq(queueable::columns::Instant::from(Utc::now() + TimeDelta::hours(1))),
                )
                .execute(&mut thief.connect())?;
            Ok(charge.amount_cents)
        },
        apply,
    );
    let tally = run(&bank, handler);
    assert_eq!((tally.succeeded, tally.lost), (0, 1));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert!(bank.booked().is_empty());
    let state = bank.state(id);
    assert_eq!((state.status, state.try_count), (Status::InProgress, 2));
}

#[test]
fn every_attempt_has_one_key_and_its_own_number() {
    let bank = Bank::new();
    let id = bank.enqueue([100])[0];
    let seen = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..2 {
        let told = seen.clone();
        let handler = (
            move |_: &Charge, lease: &Lease| {
                told.lock().unwrap().push((lease.idempotency_key().to_owned(), lease.try_number()));
                Err(Failure::retry("busy"))
            },
            apply,
        );
        run(&bank, handler);
        make_due(&bank, id);
    }
    let key = format!("payments.status:{id}");
    assert_eq!(*seen.lock().unwrap(), [(key.clone(), 1), (key, 2)]);
}

#[test]
fn one_claim_takes_many_rows_and_the_workers_share_them() {
    let bank = Bank::new();
    let ids = bank.enqueue(1..=60);
    for style in [ClaimStyle::Auto, ClaimStyle::UpdateThenSelect] {
        let calls = Arc::new(Mutex::new(HashMap::<i64, u32>::new()));
        let counted = calls.clone();
        let handler = (
            move |charge: &Charge, _: &Lease| {
                *counted.lock().unwrap().entry(charge.id).or_default() += 1;
                Ok(charge.amount_cents)
            },
            apply,
        );
        let poller = Charge::poller(bank.pool(4), handler).workers(4).claim_batch(10).claim_style(style);
        let tally = poller.run_until_idle().unwrap();
        assert_eq!(tally.succeeded, 60);
        assert_eq!(calls.lock().unwrap().len(), 60);
        assert!(calls.lock().unwrap().values().all(|calls| *calls == 1));
        Charge::queue().all_rows().rerun(&mut bank.connect()).unwrap();
    }
    assert_eq!(bank.booked().len(), 2 * ids.len());
}

#[test]
fn rows_that_were_claimed_and_not_begun_are_given_back_at_shutdown() {
    let bank = Bank::new();
    let ids = bank.enqueue(1..=5);
    for style in [ClaimStyle::Auto, ClaimStyle::UpdateThenSelect] {
        let (gate, handler) = Gate::new();
        let handle = poller(&bank, (handler, apply)).claim_batch(5).claim_style(style).start().unwrap();
        let first = gate.entered();
        let leased = || {
            let in_progress = payments::table.filter(payment_queue::status.eq(Status::InProgress)).count();
            in_progress.get_result::<i64>(&mut bank.connect()).unwrap()
        };
        assert_eq!(leased(), 5);
        let shutdown = std::thread::spawn(move || handle.shutdown(Duration::from_secs(60)));
        while leased() > 1 {
            std::thread::park_timeout(Duration::from_millis(5));
        }
        for id in ids.iter().filter(|id| **id != first) {
            let state = bank.state(*id);
            assert_eq!((state.status, state.try_count), (Status::NotAttempted, 0));
            assert!(state.next_attempt_time.unwrap() <= Utc::now());
        }
        gate.open();
        let shutdown = shutdown.join().unwrap();
        assert_eq!((shutdown.tally.succeeded, shutdown.rolled_back), (1, 0));
        Charge::queue().all_rows().rerun(&mut bank.connect()).unwrap();
    }
}

#[test]
fn a_call_that_outlasts_the_grace_gives_its_row_back_and_is_told() {
    let bank = Bank::new();
    let id = bank.enqueue([100])[0];
    let (gate, handler) = Gate::new();
    let handle = poller(&bank, (handler, apply)).start().unwrap();
    gate.entered();
    let shutdown = handle.shutdown(Duration::ZERO);
    assert_eq!(shutdown.rolled_back, 1);
    // The shutdown does not wait for it longer than a second.
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while bank.state(id).status != Status::NotAttempted {
        assert!(std::time::Instant::now() < deadline, "the row is not given back: {:?}", bank.state(id));
        std::thread::park_timeout(Duration::from_millis(5));
    }
    assert_eq!(bank.state(id).try_count, 0, "no try is used");
    gate.open();
    assert!(gate.was_lost(), "the handler is told");
    assert_eq!(run(&bank, (call, apply)).succeeded, 1);
    assert_eq!(bank.booked(), [id]);
}

#[test]
fn a_row_that_was_stopped_while_its_lease_was_held_stays_stopped() {
    let bank = Arc::new(Bank::new());
    let ids = bank.enqueue([1, 2]);
    let operator = bank.clone();
    let handler = (
        move |charge: &Charge, _: &Lease| {
            Charge::queue().filter(payments::id.eq(charge.id)).stop(&mut operator.connect())?;
            if charge.amount_cents == 1 { Err(Failure::retry("busy")) } else { Ok(2) }
        },
        apply,
    );
    let tally = run(&bank, handler);
    assert_eq!((tally.retried, tally.succeeded), (1, 1));
    let stopped = bank.state(ids[0]);
    assert_eq!((stopped.status, stopped.try_count, stopped.next_attempt_time), (Status::Error, 1, None));
    assert_eq!(bank.state(ids[1]).status, Status::Success);
}

#[test]
fn an_operator_who_retries_everything_takes_no_row_from_its_worker() {
    let bank = Arc::new(Bank::new());
    let ids = bank.enqueue([1, 2]);
    let operator = bank.clone();
    let handler = (
        move |charge: &Charge, _: &Lease| {
            let queue = || Charge::queue().filter(payments::id.eq(charge.id));
            assert_eq!(queue().retry_now(&mut operator.connect())?, 0);
            assert_eq!(queue().postpone_until(&mut operator.connect(), Utc::now())?, 0);
            Ok(charge.amount_cents)
        },
        apply,
    );
    let tally = Charge::poller(bank.pool(2), handler).workers(2).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.lost), (2, 0));
    assert_eq!(bank.booked(), ids);
}

#[test]
fn a_row_that_is_skipped_while_its_lease_is_held_is_taken_from_its_worker() {
    let bank = Arc::new(Bank::new());
    let id = bank.enqueue([1])[0];
    let operator = bank.clone();
    let handler = (
        move |charge: &Charge, _: &Lease| {
            assert_eq!(Charge::queue().filter(payments::id.eq(charge.id)).skip(&mut operator.connect())?, 1);
            Ok(charge.amount_cents)
        },
        apply,
    );
    let tally = run(&bank, handler);
    assert_eq!((tally.succeeded, tally.lost), (0, 1));
    assert!(bank.booked().is_empty());
    assert_eq!(bank.state(id).status, Status::Skipped);
}

#[test]
fn a_finished_row_that_was_made_due_again_begins_anew() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    for style in [ClaimStyle::Auto, ClaimStyle::UpdateThenSelect] {
        diesel::update(payments::table.find(id))
            .set((payment_queue::status.eq(Status::Success), payment_queue::try_count.eq(7)))
            .execute(&mut bank.connect())
            .unwrap();
        make_due(&bank, id);
        assert_eq!(poller(&bank, (call, apply)).claim_style(style).run_until_idle().unwrap().succeeded, 1);
        assert_eq!(bank.state(id).try_count, 1);
    }
}

#[test]
fn a_pool_without_a_connection_for_the_leases_is_refused_at_start() {
    let bank = Bank::new();
    let error = Charge::poller(bank.database.pool(2), (call, apply)).workers(1).start().unwrap_err().to_string();
    assert!(error.contains("max_size") && error.contains("and 2"), "{error}");
}

#[test]
fn a_transaction_queue_on_the_same_table_finds_no_leased_row() {
    let bank = Bank::new();
    bank.enqueue([1]);
    let (gate, handler) = Gate::new();
    let handle = poller(&bank, (handler, apply)).start().unwrap();
    gate.entered();
    // A process sees this that serves the table in another mode.
    let due = <Payment as queueable::bounds::QueueOn<Conn>>::QUEUE.probe_due(&mut bank.connect(), None, None).unwrap();
    assert!(due.is_none_or(|wait| wait > Duration::from_secs(20)), "{due:?}");
    gate.open();
    assert_eq!(handle.shutdown(Duration::from_secs(60)).tally.succeeded, 1);
}

#[test]
fn a_row_that_is_put_off_by_whoever_holds_it_is_not_taken_when_it_is_free() {
    for style in [ClaimStyle::Auto, ClaimStyle::UpdateThenSelect] {
        let bank = Bank::new();
        let ids = bank.enqueue([1, 2]);
        let mut holder = bank.connect();
        <Conn as Connection>::TransactionManager::begin_transaction(&mut holder).unwrap();
        let later = queueable::columns::Instant::from(Utc::now() + TimeDelta::hours(1));
        diesel::update(payments::table.find(ids[0]))
            .set(payment_queue::next_attempt_time.eq(later))
            .execute(&mut holder)
            .unwrap();
        // Other sessions still see it as due.
        let poller = poller(&bank, (call, apply)).claim_style(style);
        let (started, handle) = mpsc::channel();
        let starting = std::thread::spawn(move || started.send(poller.start().unwrap()));
        // On SQLite even the start waits for the writer.
        let early = handle.recv_timeout(Duration::from_millis(500)).ok();
        <Conn as Connection>::TransactionManager::commit_transaction(&mut holder).unwrap();
        let handle = early.unwrap_or_else(|| handle.recv().unwrap());
        starting.join().unwrap().unwrap();
        while bank.booked().is_empty() {
            std::thread::park_timeout(Duration::from_millis(5));
        }
        assert_eq!(handle.shutdown(Duration::from_secs(60)).tally.succeeded, 1);
        assert_eq!(bank.booked(), [ids[1]], "the condition is looked at again under the lock");
        assert_eq!(bank.state(ids[0]).status, Status::NotAttempted);
    }
}

/// A call that waits until the test lets it go.
pub(crate) struct Gate {
    entered: mpsc::Receiver<i64>,
    state: Arc<(Mutex<bool>, Condvar)>,
    left: mpsc::Receiver<bool>,
}

impl Gate {
    pub(crate) fn new() -> (Self, impl Fn(&Charge, &Lease) -> Result<i64, Failure> + Send + Sync + 'static) {
        let state = Arc::new((Mutex::new(false), Condvar::new()));
        let (enter, entered) = mpsc::channel();
        let (leave, left) = mpsc::channel();
        let (enter, leave) = (Mutex::new(enter), Mutex::new(leave));
        let inside = state.clone();
        let call = move |charge: &Charge, lease: &Lease| {
            let _ = enter.lock().unwrap().send(charge.id);
            let (open, opened) = &*inside;
            drop(opened.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
            let _ = leave.lock().unwrap().send(lease.lease_lost());
            Ok(charge.amount_cents)
        };
        (Gate { entered, state, left }, call)
    }

    /// Waits until a call has begun, and returns its row.
    pub(crate) fn entered(&self) -> i64 {
        self.entered.recv_timeout(Duration::from_secs(60)).expect("a call begins")
    }

    pub(crate) fn open(&self) {
        *self.state.0.lock().unwrap() = true;
        self.state.1.notify_all();
    }

    /// Waits until a call has ended, and tells whether it had lost its lease.
    pub(crate) fn was_lost(&self) -> bool {
        self.left.recv_timeout(Duration::from_secs(60)).expect("the call ends")
    }
}
