//! What attempts have come to, counted: by outcome, by the wait before them and by their duration.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::event::Event;
use crate::sync::Mutex;

/// The outcomes of attempts, as metrics and spans call them.
pub(crate) const OUTCOMES: [&str; 9] =
    ["succeeded", "advanced", "runs_again", "skipped", "will_retry", "gave_up", "interrupted", "refused", "lease_lost"];

/// The upper bounds of the buckets. One bucket more has what takes longer. They are those of the buckets that the documents
/// recommend for Prometheus.
const BOUNDS: [(&str, Duration); 9] = [
    ("5ms", Duration::from_millis(5)),
    ("25ms", Duration::from_millis(25)),
    ("100ms", Duration::from_millis(100)),
    ("500ms", Duration::from_millis(500)),
    ("1s", Duration::from_secs(1)),
    ("5s", Duration::from_secs(5)),
    ("30s", Duration::from_secs(30)),
    ("5m", Duration::from_secs(300)),
    ("1h", Duration::from_secs(3600)),
];

/// Times in buckets, and their sum in microseconds, which is the last number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Times(pub(crate) [i64; BOUNDS.len() + 2]);

/// What attempts have come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// How many have each outcome.
    pub(crate) outcomes: [i64; OUTCOMES.len()],
    /// How long rows waited from their due time.
    pub(crate) waited: Times,
    /// How long attempts took.
    pub(crate) took: Times,
}

/// The longest time that is added up. A row that somebody has made due at the year 1970 has waited for so long that a few thousand of
/// them would have no sum.
const LONGEST: Duration = Duration::from_secs(30 * 86_400);

impl Times {
    fn add(&mut self, time: Duration) {
        let bucket = BOUNDS.iter().position(|(_, bound)| time <= *bound).unwrap_or(BOUNDS.len());
        self.0[bucket] += 1;
        let sum = &mut self.0[BOUNDS.len() + 1];
        *sum = sum.saturating_add(i64::try_from(time.min(LONGEST).as_micros()).unwrap_or(i64::MAX));
    }

    fn buckets(&self) -> &[i64] {
        &self.0[..=BOUNDS.len()]
    }

    /// Returns the mean; `None` without a time.
    pub(crate) fn mean(&self) -> Option<Duration> {
        let times: i64 = self.buckets().iter().sum();
        let sum = self.0[BOUNDS.len() + 1];
        Some(Duration::from_micros(sum.checked_div(times)?.max(0).unsigned_abs()))
    }

    /// Estimates the time that so many of 100 do not exceed: within its bucket by a straight line, as Prometheus does, and
    /// beyond the last bound that bound. `None` without a time.
    pub(crate) fn percentile(&self, percent: u32) -> Option<Duration> {
        let times: i64 = self.buckets().iter().sum();
        let rank = times as f64 * f64::from(percent) / 100.0;
        let (mut below, mut from) = (0, Duration::ZERO);
        for (in_bucket, (_, to)) in self.buckets().iter().zip(BOUNDS) {
            if *in_bucket > 0 && (below + in_bucket) as f64 >= rank {
                return Some(from + (to - from).mul_f64(((rank - below as f64) / *in_bucket as f64).clamp(0.0, 1.0)));
            }
            (below, from) = (below + in_bucket, to);
        }
        (times > 0).then_some(from)
    }
}

impl Counts {
    /// Counts an event, if it ends an attempt.
    fn count(&mut self, event: &Event) {
        let Some((outcome, attempt)) = event.end() else { return };
        if let Some(place) = OUTCOMES.iter().position(|known| *known == outcome) {
            self.outcomes[place] += 1;
        }
        attempt.waited.into_iter().for_each(|waited| self.waited.add(waited));
        attempt.duration.into_iter().for_each(|took| self.took.add(took));
    }

    /// Returns the names of the columns for the numbers.
    pub(crate) fn columns() -> impl Iterator<Item = String> {
        let buckets = BOUNDS.map(|(bound, _)| bound).into_iter().chain(["longer", "us"]);
        let times = |what: &'static str| buckets.clone().map(move |bucket| format!("{what}_{bucket}"));
        OUTCOMES.map(str::to_owned).into_iter().chain(times("waited")).chain(times("took"))
    }

    /// Returns the numbers, in the order of their columns.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = &i64> {
        self.outcomes.iter().chain(&self.waited.0).chain(&self.took.0)
    }

    /// Adds other counts.
    pub(crate) fn add(&mut self, other: &Counts) {
        self.combine(other, i64::saturating_add);
    }

    /// Returns these counts without others.
    pub(crate) fn without(mut self, other: &Counts) -> Self {
        self.combine(other, i64::saturating_sub);
        self
    }

    fn combine(&mut self, other: &Counts, with: fn(i64, i64) -> i64) {
        let numbers = self.outcomes.iter_mut().chain(&mut self.waited.0).chain(&mut self.took.0);
        numbers.zip(other.numbers()).for_each(|(number, other)| *number = with(*number, *other));
    }
}

/// A queue by its name, and a stage if its rows have stages.
pub(crate) type CountedOf = (Arc<str>, Option<&'static str>);

/// The counts of the queues.
pub(crate) type Collected = HashMap<CountedOf, Counts>;

/// For how long counts are collected together.
const TOGETHER: Duration = Duration::from_secs(10);

/// How many such times are kept apart: those of a day.
const MOST_KEPT: usize = 24 * 360;

/// Collects the counts of a poller until they are written, ten seconds by ten seconds.
#[derive(Default)]
pub(crate) struct Collector(Mutex<VecDeque<(Instant, Collected)>>);

impl Collector {
    /// Counts an event, if it ends an attempt.
    pub(crate) fn count(&self, event: &Event) {
        let Some((_, attempt)) = event.end() else { return };
        let (now, mut kept) = (Instant::now(), self.0.lock());
        let is_over = kept.back().is_none_or(|(began, _)| now.duration_since(*began) >= TOGETHER);
        if is_over && kept.len() < MOST_KEPT {
            kept.push_back((now, Collected::new()));
        }
        if let Some((_, collected)) = kept.back_mut() {
            collected.entry((attempt.queue.clone(), attempt.stage)).or_default().count(event);
        }
    }

    /// Takes what was collected, with when it began.
    pub(crate) fn take(&self) -> VecDeque<(Instant, Collected)> {
        std::mem::take(&mut *self.0.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_estimated_within_their_buckets() {
        let mut times = Times::default();
        assert_eq!((times.mean(), times.percentile(50)), (None, None));
        [1, 10, 10, 7_200_000].into_iter().for_each(|milliseconds| times.add(Duration::from_millis(milliseconds)));
        assert_eq!(times.mean(), Some(Duration::from_micros(1_800_005_250)));
        assert_eq!(times.percentile(25), Some(Duration::from_millis(5)));
        assert_eq!(times.percentile(50), Some(Duration::from_millis(15)));
        assert_eq!(times.percentile(75), Some(Duration::from_millis(25)));
        assert_eq!(times.percentile(95), Some(Duration::from_secs(3600)), "what is longer is at least so long");
    }

    #[test]
    fn each_number_has_a_column_and_what_was_added_can_be_taken_away() {
        assert_eq!(Counts::columns().count(), Counts::default().numbers().count());
        let mut one = Counts::default();
        one.outcomes[0] = 2;
        one.waited.add(Duration::from_millis(3));
        let mut both = one;
        both.add(&one);
        assert_eq!(both.numbers().sum::<i64>(), 2 * one.numbers().sum::<i64>());
        assert_eq!(both.without(&one), one);
    }
}
