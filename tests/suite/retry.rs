//! Retry policies: they are defined for every number of tries, and the database can store their delays.

use std::time::Duration;

use diesel::prelude::*;
use proptest::prelude::*;
use queueable::columns::MAX_DELAY;
use queueable::{Failure, HandlerResult, Message, Queueable, Retry, RetryPolicy, Status};

use crate::db::Conn;
use crate::suite::bank::{Bank, payments};

/// The last number of tries that the database can count.
const LAST: u32 = i32::MAX as u32;

fn durations() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (0..100_000_000u64).prop_map(Duration::from_micros),
        (any::<u64>(), 0..1_000_000_000u32).prop_map(|(seconds, nanos)| Duration::new(seconds, nanos)),
    ]
}

/// Small numbers, any number, and the ends of the range.
fn tries() -> impl Strategy<Value = u32> {
    prop_oneof![0..100u32, 0..=LAST, Just(LAST), Just(LAST + 1), Just(u32::MAX)]
}

fn policies() -> impl Strategy<Value = Retry> {
    (durations(), durations(), 0..4u8, any::<u8>()).prop_map(|(first, max, kind, percent)| match kind {
        0 => Retry::fixed(first),
        1 => Retry::linear(first),
        2 => Retry::linear(first).max(max),
        _ => Retry::exponential(first).max(max).jitter_percent(percent),
    })
}

proptest! {
    #[test]
    fn a_delay_is_defined_for_every_number_of_tries_and_never_too_long(retry in policies(), tries in tries()) {
        let delay = retry.delay(tries).expect("only Retry::None gives up by itself");
        prop_assert!(delay <= MAX_DELAY);
        prop_assert!((0.0..=1.0).contains(&retry.jitter()));
        prop_assert_eq!(Retry::None.delay(tries), None);
    }

    #[test]
    fn a_delay_never_shrinks_with_the_tries_and_stays_at_its_cap(retry in policies(), one in tries(), other in tries()) {
        let (fewer, more) = (one.min(other), one.max(other));
        prop_assert!(retry.delay(fewer) <= retry.delay(more), "{retry:?}: {fewer} and {more} tries");
        prop_assert!(retry.delay(more) <= retry.delay(u32::MAX));
    }

    #[test]
    fn a_growing_delay_reaches_its_cap(first in 1..1_000_000u64, max in durations()) {
        let max = max.min(MAX_DELAY);
        let retry = Retry::exponential(Duration::from_micros(first)).max(max);
        prop_assert_eq!(retry.delay(LAST), Some(max));
    }
}

diesel::table! {
    // The bank's payments, for entities with other policies.
    #[sql_name = "payments"]
    patient_payments (id) {
        id -> BigInt,
    }
}

macro_rules! patient {
    ($entity:ident, $module:ident, $($retry:tt)*) => {
        #[derive(Queryable, Selectable, Queueable)]
        #[diesel(table_name = patient_payments)]
        #[queue(module = $module, retry = $($retry)*, max_tries = 2147483647, timeout = "30s")]
        struct $entity {
            #[allow(dead_code)]
            id: i64,
        }
    };
}

patient!(Fixed, fixed_queue, fixed("10s"));
patient!(Linear, linear_queue, linear("5m"));
patient!(Exponential, exponential_queue, exponential("10s", max = "365d"));
patient!(Custom, custom_queue, custom(Forever));

/// A policy whose delay is longer than any database can add.
#[derive(Debug)]
struct Forever;

impl RetryPolicy for Forever {
    fn delay(&self, _tries: u32) -> Option<Duration> {
        Some(Duration::MAX)
    }

    fn jitter(&self) -> f64 {
        f64::INFINITY
    }
}

fn refuse<Q>(_: &Q, _: &mut Message<'_, Conn>) -> HandlerResult {
    Err(Failure::retry("not today"))
}

/// Writes `try_count` to a due row, lets it fail once, and returns the row's state.
macro_rules! after_a_failure {
    ($entity:ty, $try_count:expr) => {{
        let bank = Bank::new();
        let id = bank.enqueue([1])[0];
        diesel::update(payments::table.find(id))
            .set(crate::suite::bank::payment_queue::try_count.eq($try_count))
            .execute(&mut bank.connect())
            .unwrap();
        let tally = <$entity>::poller(bank.pool(1), refuse::<$entity>).workers(1).run_until_idle().unwrap();
        assert_eq!(tally.retried + tally.failed, 1);
        bank.state(id)
    }};
}

#[test]
fn the_backoff_after_the_last_try_but_one_is_a_finite_time() {
    for state in [
        after_a_failure!(Fixed, i32::MAX - 2),
        after_a_failure!(Linear, i32::MAX - 2),
        after_a_failure!(Exponential, i32::MAX - 2),
        after_a_failure!(Custom, i32::MAX - 2),
    ] {
        assert_eq!((state.status, state.try_count), (Status::Error, i32::MAX - 1));
        let waits = state.next_attempt_time.expect("a finite time") - state.last_attempt_time.expect("just now");
        assert!(waits.num_seconds() >= 9, "{waits}");
    }
}

#[test]
fn a_row_whose_tries_cannot_be_counted_further_is_given_up() {
    for try_count in [i32::MAX - 1, i32::MAX] {
        let state = after_a_failure!(Exponential, try_count);
        assert_eq!((state.status, state.try_count, state.next_attempt_time), (Status::Failed, i32::MAX, None));
    }
}

#[test]
fn the_backoff_is_counted_from_the_end_of_the_attempt() {
    let state = after_a_failure!(Fixed, 0);
    let waits = state.next_attempt_time.expect("a finite time") - state.last_attempt_time.expect("just now");
    assert!((waits.num_milliseconds() - 10_000).abs() <= 100, "{waits}");
    assert_eq!(state.try_count, 1);
}

#[test]
fn a_negative_count_of_tries_counts_as_none() {
    assert_eq!(after_a_failure!(Fixed, -7).try_count, 1);
}
