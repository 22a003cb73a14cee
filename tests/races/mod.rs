//! Races of leases at fail points: expiry, takeover and heartbeats that fail, some thousand times.
//!
//! Fail points apply to the whole process, so these tests have their own roots and run one after the other. The ledger has no
//! unique key on the payment: a stale owner's write would show as a payment that is booked twice.

mod answers;
mod marks;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error};
use fail::FailScenario;
use queueable::{ClaimStyle, Failure, HandlerResult, Lease, LeaseHandler, Message, Outcome, Queueable, Status, Tally};

use crate::db::{Conn, NAME};
use crate::suite::bank::{Bank, ledger, payment_queue, payments};

const PATIENCE: Duration = Duration::from_secs(60);

/// A payment under a lease that only a test can end.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(lease = "10m", max_tries = 1000)]
struct Patient {
    id: i64,
}

/// A payment under the shortest lease.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(lease = "100ms", timeout = "60s", max_tries = 1000, retry = fixed("0s"))]
struct Hasty {
    id: i64,
    amount_cents: i64,
}

thread_local! {
    /// The row whose call this thread has just ended, and the number of the attempt.
    static CALLED: Cell<Option<(i64, u32)>> = const { Cell::new(None) };
    /// A session for the fail point's own statements.
    static SESSION: RefCell<Option<Conn>> = const { RefCell::new(None) };
}

/// How many times the handler was called with each idempotency key.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<HashMap<String, u32>>>);

impl Calls {
    fn count(&self, key: &str) {
        *self.0.lock().unwrap().entry(key.to_owned()).or_default() += 1;
    }

    /// The number of keys for each number of calls.
    fn histogram(&self) -> Vec<(u32, usize)> {
        let mut histogram = std::collections::BTreeMap::new();
        for calls in self.0.lock().unwrap().values() {
            *histogram.entry(*calls).or_insert(0) += 1;
        }
        histogram.into_iter().collect()
    }
}

fn book(id: i64, amount_cents: i64, message: &mut Message<'_, Conn>) -> HandlerResult {
    diesel::insert_into(ledger::table)
        .values((ledger::payment_id.eq(id), ledger::amount_cents.eq(amount_cents)))
        .execute(message.connection())?;
    Ok(Outcome::Done)
}

/// Serves the rows with two pollers of four workers each, until every row has ended.
fn race<Q, H>(bank: &Bank, style: ClaimStyle, handler: impl Fn() -> H) -> [Tally; 2]
where
    Q: queueable::bounds::QueueOn<Conn> + Queueable<Mode = queueable::bounds::LeaseMode> + Send,
    H: LeaseHandler<Q, Conn> + 'static,
{
    let poller = || {
        let poller = Q::poller(bank.pool(4), handler()).workers(4).claim_batch(3).claim_style(style);
        poller.poll_interval(Duration::from_millis(20)).start().unwrap()
    };
    let pollers = [poller(), poller()];
    let mut session = bank.connect();
    let deadline = Instant::now() + PATIENCE * 3;
    let open = payments::table.filter(payment_queue::next_attempt_time.is_not_null()).count();
    while open.get_result::<i64>(&mut session).unwrap() > 0 {
        assert!(Instant::now() < deadline, "the race does not end: {:?}", pollers.map(|poller| poller.tally()));
        let (_nobody, pace) = std::sync::mpsc::channel::<()>();
        let _ = pace.recv_timeout(Duration::from_millis(10));
    }
    pollers.map(|poller| poller.shutdown(PATIENCE).tally)
}

fn assert_each_booked_once(bank: &Bank, ids: &[i64], tallies: &[Tally; 2]) {
    assert_eq!(bank.booked(), ids, "every payment is booked once");
    let succeeded = payments::table.filter(payment_queue::status.eq(Status::Success)).count();
    let succeeded: i64 = succeeded.get_result(&mut bank.connect()).unwrap();
    assert_eq!(usize::try_from(succeeded), Ok(ids.len()));
    let counted: u64 = tallies.iter().map(|tally| tally.succeeded).sum();
    assert_eq!(usize::try_from(counted), Ok(ids.len()), "{tallies:?}");
}

/// A due time before all others, so that the row is the next to be claimed.
fn long_ago() -> queueable::columns::Instant {
    chrono::DateTime::UNIX_EPOCH.into()
}

/// One of the waiting workers.
struct Waiting;

static WAITING: AtomicU64 = AtomicU64::new(0);

impl Waiting {
    fn one_of(at_most: u64) -> Option<Self> {
        let waiting = WAITING.fetch_add(1, Ordering::SeqCst);
        let one = Waiting;
        (waiting < at_most).then_some(one)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Ends the lease of the row whose call has just returned, so that another worker can take it over. Every second time it
/// waits until one has; the other times, both race.
fn end_the_lease(bank: &Bank, taken_over: &Mutex<Vec<(i64, i64)>>) {
    let Some((id, attempt)) = CALLED.take() else { return };
    if attempt > 2 {
        return;
    }
    SESSION.with_borrow_mut(|session| {
        let session = session.get_or_insert_with(|| bank.connect());
        let row = payments::table.find(id);
        let ours = row
            .filter(payment_queue::status.eq(Status::InProgress))
            .filter(payment_queue::try_count.eq(i32::try_from(attempt).unwrap()));
        let end = diesel::update(ours).set(payment_queue::next_attempt_time.eq(long_ago()));
        let ended = loop {
            // It may meet a claim, which locks the same rows by another index.
            match end.clone().execute(session) {
                Err(Error::DatabaseError(DatabaseErrorKind::SerializationFailure, _)) => {}
                // SQLite does not serve those who wait in their order.
                Err(Error::DatabaseError(_, why)) if why.message() == "database is locked" => {}
                ended => break ended.unwrap(),
            }
        };
        // At most three of the eight workers wait, so that others are free to take over.
        let Some(_waiting) = Waiting::one_of(3) else { return };
        if ended == 0 {
            return;
        }
        let deadline = Instant::now() + Duration::from_secs(2);
        while Instant::now() < deadline {
            let tries: i32 = row.select(payment_queue::try_count).get_result(session).unwrap();
            if u32::try_from(tries).unwrap() > attempt {
                taken_over.lock().unwrap().push((id, attempt.into()));
                break;
            }
            std::thread::yield_now();
        }
    });
}

#[test]
fn no_stale_owner_writes_however_a_lease_ends_while_its_answer_is_on_the_way() {
    const PAYMENTS: i64 = 2000;
    for style in [ClaimStyle::Auto, ClaimStyle::UpdateThenSelect] {
        let scenario = FailScenario::setup();
        let bank = Arc::new(Bank::new());
        let ids = bank.enqueue(1..=PAYMENTS);
        let taken_over = Arc::new(Mutex::new(Vec::new()));
        let (thief, counted) = (bank.clone(), taken_over.clone());
        fail::cfg_callback("lease-called", move || end_the_lease(&thief, &counted)).unwrap();
        // Now and then, a thread that is about to write lets others pass.
        fail::cfg("lease-locked", "10%yield").unwrap();
        fail::cfg("lease-claimed", "10%yield").unwrap();
        let calls = Calls::default();
        let tallies = race::<Patient, _>(&bank, style, || {
            let calls = calls.clone();
            (
                move |payment: &Patient, lease: &Lease| {
                    calls.count(lease.idempotency_key());
                    CALLED.set(Some((payment.id, lease.try_number())));
                    Ok(lease.try_number().into())
                },
                // The ledger has the attempt that has written.
                |payment: &Patient, attempt: &i64, message: &mut Message<'_, Conn>| book(payment.id, *attempt, message),
            )
        });
        scenario.teardown();
        assert_each_booked_once(&bank, &ids, &tallies);
        let lost: u64 = tallies.iter().map(|tally| tally.lost).sum();
        let written: Vec<(i64, i64)> =
            ledger::table.select((ledger::payment_id, ledger::amount_cents)).load(&mut bank.connect()).unwrap();
        let taken_over = taken_over.lock().unwrap();
        let stale: Vec<_> = taken_over.iter().filter(|attempt| written.contains(attempt)).collect();
        println!(
            "{NAME}, {style:?}: {} rows seen to be taken over, {lost} attempts \
             wrote nothing; calls per key: {:?}",
            taken_over.len(),
            calls.histogram()
        );
        assert!(stale.is_empty(), "these had lost their row before they wrote: {stale:?}");
        assert!(!taken_over.is_empty(), "the race is none");
    }
}

#[test]
fn no_stale_owner_writes_when_the_heart_does_not_get_through() {
    const PAYMENTS: i64 = 400;
    for style in [ClaimStyle::Auto, ClaimStyle::UpdateThenSelect] {
        let scenario = FailScenario::setup();
        let bank = Bank::new();
        let ids = bank.enqueue(1..=PAYMENTS);
        fail::cfg("heartbeat", "30%sleep(120)").unwrap();
        fail::cfg("heartbeat-sent", "30%sleep(60)").unwrap();
        fail::cfg("lease-called", "10%sleep(120)").unwrap();
        fail::cfg("lease-locked", "2%sleep(120)").unwrap();
        fail::cfg("lease-applied", "2%sleep(120)").unwrap();
        let calls = Calls::default();
        let told = Arc::new(AtomicU64::new(0));
        let tallies = race::<Hasty, _>(&bank, style, || {
            let (calls, told) = (calls.clone(), told.clone());
            (
                move |payment: &Hasty, lease: &Lease| {
                    calls.count(lease.idempotency_key());
                    let until = Instant::now() + Duration::from_millis(payment.id.unsigned_abs() % 150);
                    while payment.id % 8 == 0 && lease.try_number() < 3 && Instant::now() < until {
                        if lease.lease_lost() {
                            told.fetch_add(1, Ordering::Relaxed);
                            break;
                        }
                        std::thread::yield_now();
                    }
                    if payment.id % 3 == 0 && lease.lease_lost() {
                        return Err(Failure::retry("gave up, as told"));
                    }
                    Ok(payment.amount_cents)
                },
                |payment: &Hasty, receipt: &i64, message: &mut Message<'_, Conn>| book(payment.id, *receipt, message),
            )
        });
        scenario.teardown();
        assert_each_booked_once(&bank, &ids, &tallies);
        println!(
            "{NAME}, {style:?}: {} calls were told that their lease is lost, {} attempts wrote nothing; calls per key: {:?}",
            told.load(Ordering::Relaxed),
            tallies.iter().map(|tally| tally.lost).sum::<u64>(),
            calls.histogram()
        );
    }
}
