//! Lease mode: the rows of one claim have no effect on each other.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queueable::{ClaimStyle, Failure, Lease, LeaseHandler, Message, Outcome, Poller, Queueable, Status};

use crate::db::{Conn, NAME, refuse_update_of};
use crate::suite::bank::{Bank, payment_queue, payments};
use crate::suite::lease::{Charge, Gate, apply, poller};
use crate::suite::low_water::due_at;

const STYLES: [ClaimStyle; 2] = [ClaimStyle::Auto, ClaimStyle::UpdateThenSelect];
const PATIENCE: Duration = Duration::from_secs(300);

/// A payment that cannot be decoded if its amount is negative.
#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = positive_queue, lease = "60s", retry = fixed("1h"), max_tries = 3)]
struct Positive {
    #[allow(dead_code, reason = "the key is selected with it")]
    id: i64,
    #[diesel(deserialize_as = Amount)]
    amount_cents: i64,
}

/// A payment with so many tries that a claim may take several: a killed process costs each of them one.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = tireless_queue, lease = "60s", retry = fixed("1h"), max_tries = 20)]
struct Tireless {
    id: i64,
    amount_cents: i64,
}

/// A poller for such payments, as [`poller`] is one for the others.
fn tireless(
    bank: &Bank,
    call: impl Fn(&Charge, &Lease) -> Result<i64, Failure> + Send + Sync + 'static,
) -> Poller<Conn> {
    let charge = |row: &Tireless| Charge { id: row.id, amount_cents: row.amount_cents };
    let handler = (
        move |row: &Tireless, lease: &Lease| call(&charge(row), lease),
        move |row: &Tireless, receipt: &i64, message: &mut Message<'_, Conn>| apply(&charge(row), receipt, message),
    );
    Tireless::poller(bank.pool(1), handler).workers(1)
}

#[derive(Debug, diesel::deserialize::FromSqlRow)]
struct Amount(i64);

impl TryInto<i64> for Amount {
    type Error = String;

    fn try_into(self) -> Result<i64, String> {
        if self.0 > 0 { Ok(self.0) } else { Err(format!("{} is no amount", self.0)) }
    }
}

impl<DB> diesel::deserialize::FromSql<diesel::sql_types::BigInt, DB> for Amount
where
    DB: diesel::backend::Backend,
    i64: diesel::deserialize::FromSql<diesel::sql_types::BigInt, DB>,
{
    fn from_sql(bytes: DB::RawValue<'_>) -> diesel::deserialize::Result<Self> {
        i64::from_sql(bytes).map(Amount)
    }
}

/// Notes the amount of each call, the number of its try, and the error text of its row.
type Calls = Arc<Mutex<Vec<(i64, u32, Option<String>)>>>;

fn noting(calls: &Calls) -> impl LeaseHandler<Positive, Conn> + 'static {
    let calls = calls.clone();
    let call = move |row: &Positive, lease: &Lease| {
        let state = lease.queue_state();
        assert_eq!((state.status, state.next_attempt_time), (Status::InProgress, None));
        let text = state.last_attempt_error_message.clone();
        calls.lock().unwrap().push((row.amount_cents, lease.try_number(), text));
        Ok::<_, Failure>(())
    };
    (call, |_: &Positive, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done))
}

fn positive(bank: &Bank, style: ClaimStyle, batch: u32, calls: &Calls) -> Poller<Conn> {
    Positive::poller(bank.pool(1), noting(calls)).workers(1).claim_style(style).claim_batch(batch)
}

/// Writes the state of a row, but not its due time.
fn set(bank: &Bank, id: i64, status: Status, tries: i32) {
    diesel::update(payments::table.find(id))
        .set((payment_queue::status.eq(status), payment_queue::try_count.eq(tries)))
        .execute(&mut bank.connect())
        .unwrap();
}

#[test]
fn rows_of_every_state_that_are_claimed_together_become_what_each_would_alone() {
    for style in STYLES {
        for batch in [1, 7] {
            let bank = Bank::new();
            let ids = bank.enqueue([1, -2, 3, 4, 5, 6, -7]);
            set(&bank, ids[2], Status::InProgress, 3);
            set(&bank, ids[3], Status::InProgress, 2);
            set(&bank, ids[4], Status::Success, 7);
            set(&bank, ids[5], Status::InProgress, -5);
            set(&bank, ids[6], Status::Error, 2);
            let calls = Calls::default();
            let tally = positive(&bank, style, batch, &calls).run_until_idle().unwrap();
            assert_eq!((tally.succeeded, tally.retried, tally.failed, tally.lost), (4, 1, 2, 0), "{style:?} {batch}");
            let mut calls = calls.lock().unwrap().clone();
            calls.sort_unstable();
            let expired = |attempt: i32| Some(format!("queueable: lease expired in attempt {attempt}"));
            // An attempt that was never counted was not lost. But an update that overwrites the number takes it as it
            // is.
            let never = if calls[3].2 == expired(-5) { expired(-5) } else { None };
            assert_eq!(calls, [(1, 1, None), (4, 3, expired(2)), (5, 1, None), (6, 1, never)]);
            let states: Vec<_> = ids.iter().map(|id| bank.state(*id)).collect();
            assert_eq!(
                states.iter().map(|state| (state.status, state.try_count)).collect::<Vec<_>>(),
                [
                    (Status::Success, 1),
                    (Status::Error, 1),
                    (Status::Failed, 3),
                    (Status::Success, 3),
                    (Status::Success, 1),
                    (Status::Success, 1),
                    (Status::Failed, 3),
                ]
            );
            let texts = states.iter().map(|state| state.last_attempt_error_message.as_deref()).collect::<Vec<_>>();
            assert!(texts[1].is_some_and(|text| text.contains("-2 is no amount")), "{texts:?}");
            assert!(texts[6].is_some_and(|text| text.contains("-7 is no amount")), "{texts:?}");
            assert_eq!(texts[2], expired(3).as_deref());
            assert!(states[1].next_attempt_time.is_some() && states[2].next_attempt_time.is_none());
        }
    }
}

#[test]
fn a_row_that_refuses_to_be_written_holds_up_no_neighbour_and_is_left_as_it_was() {
    for style in STYLES {
        let bank = Bank::new();
        let ids = bank.enqueue([1, 2, 3, 4]);
        bank.connect().batch_execute(&refuse_update_of(ids[1])).unwrap();
        let call = |charge: &Charge, _: &Lease| Ok::<_, Failure>(charge.amount_cents);
        let handle = poller(&bank, (call, apply)).claim_style(style).claim_batch(4).start().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while handle.tally().succeeded < 3 {
            assert!(Instant::now() < deadline, "{:?}", handle.tally());
            std::thread::park_timeout(Duration::from_millis(5));
        }
        let tally = handle.shutdown(PATIENCE).tally;
        assert_eq!((tally.succeeded, tally.lost, tally.retried), (3, 0, 0));
        assert_eq!(bank.booked(), [ids[0], ids[2], ids[3]]);
        let state = bank.state(ids[1]);
        assert_eq!((state.status, state.try_count, state.last_attempt_time), (Status::NotAttempted, 0, None));
    }
}

/// The last attempt on the first row in line never ended, and the database lets nobody write that the row has failed.
#[test]
fn a_row_that_its_claim_cannot_fail_leaves_the_others_their_turn() {
    for style in STYLES {
        for batch in [1, 4] {
            let bank = Bank::new();
            let ids = bank.enqueue([1, 2, 3, 4]);
            set(&bank, ids[0], Status::InProgress, 3);
            let refuse = match NAME {
                "sqlite" => {
                    "CREATE TRIGGER refuse BEFORE UPDATE ON payments WHEN NEW.status = 'FAILED' \
                     BEGIN SELECT RAISE(ABORT, 'no failures'); END"
                }
                _ => "ALTER TABLE payments ADD CONSTRAINT refuse CHECK (status <> 'FAILED')",
            };
            bank.connect().batch_execute(refuse).unwrap();
            let call = |charge: &Charge, _: &Lease| Ok::<_, Failure>(charge.amount_cents);
            let handle = poller(&bank, (call, apply)).claim_style(style).claim_batch(batch).start().unwrap();
            let deadline = Instant::now() + PATIENCE;
            while handle.tally().succeeded < 3 || handle.tally().refused < 1 {
                assert!(Instant::now() < deadline, "{style:?}, {batch}: {:?}", handle.tally());
                std::thread::park_timeout(Duration::from_millis(5));
            }
            handle.shutdown(PATIENCE);
            assert_eq!(bank.booked(), ids[1..]);
        }
    }
}

#[test]
fn rows_that_are_claimed_together_are_called_in_the_order_of_their_due_times() {
    let bank = Bank::new();
    for minute in [30, 10, 50, 20, 40] {
        due_at(&bank, minute);
    }
    let calls = Calls::default();
    assert_eq!(positive(&bank, ClaimStyle::Auto, 5, &calls).run_until_idle().unwrap().succeeded, 5);
    let mut called: Vec<_> = calls.lock().unwrap().iter().map(|(amount, ..)| *amount).collect();
    if NAME != "postgres" {
        // The claim reads the rows by their mark, or locks them by their keys, so their order is lost.
        called.sort_unstable();
    }
    assert_eq!(called, [10, 20, 30, 40, 50]);
}

#[test]
fn a_row_whose_fate_is_decided_by_its_claim_is_not_decided_by_a_poller_that_stops() {
    for style in STYLES {
        let bank = Bank::new();
        let ids = bank.enqueue([1, -2]);
        set(&bank, ids[0], Status::InProgress, 3);
        let calls = Calls::default();
        let handle = positive(&bank, style, 2, &calls).start().unwrap();
        handle.shutdown(PATIENCE);
        // Whether the first poller has processed them or not.
        positive(&bank, style, 2, &calls).run_until_idle().unwrap();
        assert!(calls.lock().unwrap().is_empty());
        let states = ids.iter().map(|id| bank.state(*id)).map(|state| (state.status, state.try_count));
        assert_eq!(states.collect::<Vec<_>>(), [(Status::Failed, 3), (Status::Error, 1)]);
    }
}

fn leased(bank: &Bank) -> i64 {
    let in_progress = payments::table.filter(payment_queue::status.eq(Status::InProgress)).count();
    in_progress.get_result(&mut bank.connect()).unwrap()
}

#[test]
fn no_row_waits_behind_a_first_call_of_which_nothing_is_known() {
    let bank = Bank::new();
    bank.enqueue(1..=5);
    let (gate, call) = Gate::new();
    let handle = tireless(&bank, call).start().unwrap();
    gate.entered();
    assert_eq!(leased(&bank), 1);
    gate.open();
    handle.shutdown(PATIENCE);
}

#[test]
fn rows_that_wait_behind_a_call_that_is_slow_without_warning_are_few_and_lose_no_try_at_shutdown() {
    const SLOW: i64 = 128;
    let bank = Bank::new();
    let ids = bank.enqueue(1..=300);
    let (gate, slow) = Gate::new();
    let call = move |charge: &Charge, lease: &Lease| match charge.amount_cents {
        SLOW => slow(charge, lease),
        amount => Ok(amount),
    };
    let handle = tireless(&bank, call).start().unwrap();
    gate.entered();
    let waiting = || {
        let behind = payments::table.filter(payment_queue::status.eq(Status::InProgress));
        behind.filter(payments::amount_cents.gt(SLOW)).count().get_result::<i64>(&mut bank.connect()).unwrap()
    };
    assert!(waiting() < 64, "{}", waiting());
    let shutdown = std::thread::spawn(move || handle.shutdown(PATIENCE));
    let deadline = Instant::now() + PATIENCE;
    while waiting() > 0 {
        assert!(Instant::now() < deadline, "they are given back");
        std::thread::park_timeout(Duration::from_millis(5));
    }
    gate.open();
    assert_eq!(shutdown.join().unwrap().rolled_back, 0);
    let left: Vec<_> = ids.iter().map(|id| bank.state(*id)).filter(|state| state.status != Status::Success).collect();
    assert!(left.iter().all(|state| (state.status, state.try_count) == (Status::NotAttempted, 0)), "{left:?}");
    let call = |charge: &Charge, _: &Lease| Ok::<_, Failure>(charge.amount_cents);
    assert_eq!(poller(&bank, (call, apply)).run_until_idle().unwrap().succeeded, left.len() as u64);
    assert_eq!(bank.booked(), ids);
}
