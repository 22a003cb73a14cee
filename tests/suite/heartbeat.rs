//! Lease mode: which attempt holds a lease, for how long, and what happens to an attempt whose transaction fails.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diesel::connection::TransactionManager;
use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_migrations::MigrationHarness;
use queueable::bounds::QueueOn;
use queueable::{Failure, Lease, LeaseHandler, Message, Migrations, Outcome, Poller, QueueState, Queueable, Status};

use crate::db::{Conn, NAME};
use crate::suite::bank::{Bank, ledger, payment_queue, payments};
use crate::suite::lease::{Charge, Gate, apply, poller};
use queue_core::internals::backend::{Exclusion, SessionSetup};

const PATIENCE: Duration = Duration::from_secs(60);

/// A payment under a lease that is short enough for a test to see its end, and longer than a machine may pause.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(lease = "8s", retry = fixed("1h"))]
struct Brief {
    id: i64,
    amount_cents: i64,
}

/// A payment under a lease that is extended every few seconds. It counts as lost after half its length.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = lasting_queue, lease = "24s", retry = fixed("1h"))]
struct Lasting {
    id: i64,
    amount_cents: i64,
}

/// The same of a queue that processes one row at a time.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(lease = "32s", exclusive)]
struct Alone {
    id: i64,
}

/// A payment whose call has less time than its lease.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(lease = "60s", timeout = "100ms", retry = fixed("1h"))]
struct Hurried {
    #[allow(dead_code, reason = "the key is selected with it")]
    id: i64,
}

fn brief(bank: &Bank, handler: impl LeaseHandler<Brief, Conn> + 'static) -> Poller<Conn> {
    Brief::poller(bank.pool(2), handler).workers(1)
}

fn book(brief: &Brief, receipt: &i64, message: &mut Message<'_, Conn>) -> queueable::HandlerResult {
    book_as(brief.id, *receipt, message)
}

fn book_as(id: i64, receipt: i64, message: &mut Message<'_, Conn>) -> queueable::HandlerResult {
    diesel::insert_into(ledger::table)
        .values((ledger::payment_id.eq(id), ledger::amount_cents.eq(receipt)))
        .execute(message.connection())?;
    Ok(Outcome::Done)
}

/// Waits until the condition is true.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Tells whether the row is not due yet, by the database's clock.
fn is_leased(connection: &mut Conn, id: i64) -> bool {
    let held = payments::table.find(id).filter(payment_queue::next_attempt_time.gt(queueable::columns::Now)).count();
    held.get_result::<i64>(connection).unwrap() == 1
}

#[test]
fn the_lease_is_extended_for_as_long_as_the_call_runs() {
    let bank = Arc::new(Bank::new());
    let id = bank.enqueue([100])[0];
    let seen = bank.clone();
    let handler = (
        move |lasting: &Lasting, lease: &Lease| {
            // Longer than a lease. Unless the call asks for more, that is also longer than the timeout, which is the
            // lease by default.
            lease.extend(Duration::from_secs(600))?;
            let mut reader = seen.connect();
            let mut end = || {
                let state = payments::table.find(lasting.id).select(Lasting::queue_state());
                state.get_result::<QueueState>(&mut reader).unwrap().next_attempt_time.unwrap()
            };
            let first = end();
            until("the lease ends later than at first by more than its length", || {
                end() > first + Duration::from_secs(24)
            });
            assert!(!lease.lease_lost());
            Ok(lasting.amount_cents)
        },
        |lasting: &Lasting, receipt: &i64, message: &mut Message<'_, Conn>| book_as(lasting.id, *receipt, message),
    );
    let tally = Lasting::poller(bank.pool(2), handler).workers(1).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.lost), (1, 0));
    assert_eq!(bank.booked(), [id]);
    assert_eq!(bank.state(id).try_count, 1);
}

/// As other workers do under load, one after the other: they count what is processed.
#[test]
fn a_lease_is_extended_while_others_hold_the_lock_of_the_queue() {
    // There the lock is that of the whole database, for which the heartbeat waits.
    if NAME == "sqlite" {
        return;
    }
    let bank = Arc::new(Bank::new());
    bank.connect().run_pending_migrations(Migrations::new().entity::<Alone>()).unwrap();
    bank.enqueue([100]);
    let seen = bank.clone();
    let handler = (
        move |alone: &Alone, lease: &Lease| {
            lease.extend(Duration::from_secs(600))?;
            let (mut holder, mut reader) = (seen.connect(), seen.connect());
            let target = <Alone as QueueOn<Conn>>::QUEUE.target().unwrap();
            <Conn as Connection>::TransactionManager::begin_transaction(&mut holder)?;
            until("the test holds the lock", || holder.try_exclude(&target).unwrap());
            let mut end = || {
                let state = payments::table.find(alone.id).select(Alone::queue_state());
                state.get_result::<QueueState>(&mut reader).unwrap().next_attempt_time.unwrap()
            };
            let first = end();
            until("the lease is extended twice", || end() > first + Duration::from_secs(2));
            assert!(!lease.lease_lost());
            Ok(())
        },
        |_: &Alone, (): &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done),
    );
    let tally = Alone::poller(bank.pool(2), handler).workers(1).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.lost), (1, 0));
}

#[test]
fn a_call_sees_that_its_lease_is_lost_before_anybody_else_can_take_its_row() {
    let bank = Arc::new(Bank::new());
    let id = bank.enqueue([100])[0];
    let seen = bank.clone();
    let handler = (
        move |charge: &Brief, lease: &Lease| {
            // Otherwise its own time, which is the lease by default, may be over first.
            lease.extend(Duration::from_secs(600))?;
            // The heartbeat cannot extend the lease of the locked row.
            let mut holder = seen.connect();
            let mut reader = seen.connect();
            <Conn as Connection>::TransactionManager::begin_transaction(&mut holder)?;
            diesel::update(payments::table.find(charge.id)).set(payments::company_id.eq(2)).execute(&mut holder)?;
            let mut not_told = None::<Instant>;
            until("the call is told", || {
                let now = Instant::now();
                let is_told = lease.lease_lost();
                not_told = if is_told { not_told } else { Some(now) };
                is_told
            });
            // Half the lease is left, unless the machine has kept this thread waiting since it last looked.
            let is_own = is_leased(&mut reader, charge.id);
            let is_late = not_told.is_none_or(|looked| looked.elapsed() > Duration::from_secs(2));
            assert!(is_own || is_late, "the row is still this attempt's own");
            assert!(lease.extend(Duration::from_secs(1)).is_err());
            <Conn as Connection>::TransactionManager::rollback_transaction(&mut holder)?;
            lease.extend(Duration::from_secs(1))?;
            Ok(charge.amount_cents)
        },
        book,
    );
    let tally = brief(&bank, handler).run_until_idle().unwrap();
    assert_eq!((tally.retried, tally.lost), (1, 0));
    let text = bank.state(id).last_attempt_error_message.unwrap();
    assert!(text.starts_with("the lease is lost: half of it has passed"), "{text}");
}

#[test]
fn a_call_past_its_timeout_is_a_failure_with_a_text_of_its_own_before_it_returns() {
    let bank = Bank::new();
    let id = bank.enqueue([100])[0];
    let gate = Arc::new((Mutex::new(false), std::sync::Condvar::new()));
    let inside = gate.clone();
    let handler = (
        move |_: &Hurried, _: &Lease| {
            drop(inside.1.wait_while(inside.0.lock().unwrap(), |open| !*open).unwrap());
            Ok(())
        },
        |_: &Hurried, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done),
    );
    let handle = Hurried::poller(bank.pool(2), handler).workers(1).start().unwrap();
    until("the failure is recorded", || bank.state(id).status == Status::Error);
    let state = bank.state(id);
    assert_eq!(
        (state.try_count, state.last_attempt_error_message.as_deref()),
        (1, Some("the handler took longer than its timeout of 100ms"))
    );
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    let tally = handle.shutdown(PATIENCE).tally;
    assert_eq!((tally.retried, tally.succeeded, tally.lost), (1, 0, 0));
    assert_eq!(bank.state(id).status, Status::Error);
}

#[test]
fn a_conflict_while_the_answer_is_applied_repeats_no_call_and_uses_no_try() {
    let bank = Bank::new();
    let id = bank.enqueue([100])[0];
    let (calls, applies) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (called, applied) = (calls.clone(), applies.clone());
    let handler = (
        move |charge: &Charge, _: &Lease| {
            called.fetch_add(1, Ordering::SeqCst);
            Ok(charge.amount_cents)
        },
        move |charge: &Charge, receipt: &i64, message: &mut Message<'_, Conn>| {
            let _ = apply(charge, receipt, message)?;
            if applied.fetch_add(1, Ordering::SeqCst) < 3 {
                // Diesel has no error kind for this on SQLite.
                let sqlite = crate::db::NAME == "sqlite";
                let kind = if sqlite { DatabaseErrorKind::Unknown } else { DatabaseErrorKind::SerializationFailure };
                return Err(DieselError::DatabaseError(kind, Box::new("database is locked".to_owned())).into());
            }
            Ok(Outcome::Done)
        },
    );
    let tally = poller(&bank, handler).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.lost), (1, 0));
    assert_eq!((calls.load(Ordering::SeqCst), applies.load(Ordering::SeqCst)), (1, 4));
    assert_eq!(bank.booked(), [id]);
    assert_eq!(bank.state(id).try_count, 1);
}

#[test]
fn a_session_that_is_lost_while_the_answer_is_applied_repeats_no_call() {
    let bank = Bank::new();
    let id = bank.enqueue([100])[0];
    let killer = Mutex::new(bank.connect());
    let (calls, applies) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (called, applied) = (calls.clone(), applies.clone());
    let handler = (
        move |charge: &Charge, _: &Lease| {
            called.fetch_add(1, Ordering::SeqCst);
            Ok(charge.amount_cents)
        },
        move |charge: &Charge, receipt: &i64, message: &mut Message<'_, Conn>| {
            let first = applied.fetch_add(1, Ordering::SeqCst) == 0;
            let _ = apply(charge, receipt, message)?;
            // On SQLite no session can be ended from outside.
            if let (true, Some(session)) = (first, message.connection().session_id()?) {
                killer.lock().unwrap().end_session(session)?;
            }
            Ok(Outcome::Done)
        },
    );
    let tally = poller(&bank, handler).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.lost), (1, 0));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(bank.booked(), [id]);
}

#[test]
fn a_finishing_part_that_ends_its_transaction_is_found_out() {
    let bank = Bank::new();
    let id = bank.enqueue([100])[0];
    let handler = (
        |charge: &Charge, _: &Lease| Ok(charge.amount_cents),
        |charge: &Charge, receipt: &i64, message: &mut Message<'_, Conn>| {
            let _ = apply(charge, receipt, message)?;
            use diesel::connection::SimpleConnection;
            message.connection().batch_execute("ROLLBACK")?;
            Ok(Outcome::Done)
        },
    );
    let tally = poller(&bank, handler).run_until_idle().unwrap();
    assert_eq!((tally.retried, tally.succeeded), (1, 0));
    assert!(bank.booked().is_empty());
    let state = bank.state(id);
    assert_eq!((state.status, state.try_count), (Status::Error, 1));
    assert!(state.last_attempt_error_message.unwrap().contains("ended the message's transaction"));
}

#[test]
fn a_failure_whose_text_cannot_be_stored_is_recorded_all_the_same() {
    let bank = Bank::new();
    let id = bank.enqueue([100])[0];
    let handler = (|_: &Charge, _: &Lease| Err::<i64, _>(Failure::retry("a\0b \u{1F4B8}")), apply);
    assert_eq!(poller(&bank, handler).run_until_idle().unwrap().retried, 1);
    assert_eq!(bank.state(id).status, Status::Error);
}

#[test]
fn another_worker_takes_the_row_of_one_that_shows_no_life() {
    let bank = Bank::new();
    let id = bank.enqueue([100])[0];
    let (gate, first) = Gate::new();
    let handle = poller(&bank, (first, apply)).start().unwrap();
    gate.entered();
    // As if the first worker had been frozen until the end of its lease.
    diesel::update(payments::table.find(id))
        .set(payment_queue::next_attempt_time.eq(queueable::columns::Now))
        .execute(&mut bank.connect())
        .unwrap();
    let second = (|charge: &Charge, _: &Lease| Ok(charge.amount_cents), apply);
    assert_eq!(poller(&bank, second).run_until_idle().unwrap().succeeded, 1);
    gate.open();
    let tally = handle.shutdown(PATIENCE).tally;
    assert_eq!((tally.succeeded, tally.lost), (0, 1));
    assert_eq!(bank.booked(), [id]);
    let state = bank.state(id);
    assert_eq!((state.status, state.try_count), (Status::Success, 2));
}

#[test]
fn an_answer_for_a_row_that_was_enqueued_anew_is_not_written_although_the_attempts_have_one_number() {
    let bank = Bank::new();
    let id = bank.enqueue([100])[0];
    let (early, late) = (Gate::new(), Gate::new());
    let stale = poller(&bank, (early.1, apply)).start().unwrap();
    early.0.entered();
    diesel::update(payments::table.find(id)).set(Charge::due_now()).execute(&mut bank.connect()).unwrap();
    let fresh = poller(&bank, (late.1, apply)).start().unwrap();
    late.0.entered();
    let state = bank.state(id);
    assert_eq!((state.status, state.try_count), (Status::InProgress, 1), "as the first attempt had left it");
    early.0.open();
    assert_eq!(stale.shutdown(PATIENCE).tally.lost, 1);
    assert!(bank.booked().is_empty());
    late.0.open();
    assert_eq!(fresh.shutdown(PATIENCE).tally.succeeded, 1);
    assert_eq!(bank.booked(), [id]);
}
