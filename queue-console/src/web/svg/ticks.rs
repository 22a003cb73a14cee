//! Round numbers for the axes of charts.

use std::time::Duration;

use chrono::{DateTime, Utc};
use queueable::report::Interval;

use crate::shown::number;

/// More marks than these are no help.
const MOST_STEPS: i128 = 5;
const MOST_TIMES: i64 = 8;

/// The marks of an axis from zero: where each is, and its text. The last is not below the largest value.
#[derive(Debug, PartialEq)]
pub(super) struct Ticks(pub(super) Vec<(f64, String)>);

impl Ticks {
    /// The end of the axis.
    pub(super) fn top(&self) -> f64 {
        self.0.last().map_or(1.0, |(at, _)| *at)
    }

    /// Marks for numbers of rows.
    pub(super) fn of_rows(most: i64) -> Self {
        Self::until(most.into(), &steps(1), |at, _| rows_text(at))
    }

    /// Marks for durations. They are counted in microseconds.
    pub(super) fn of_times(most: Duration) -> Self {
        const SECOND: i128 = 1_000_000;
        let below = steps(1).into_iter().take_while(|step| *step < SECOND);
        let seconds = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200];
        let steps: Vec<i128> =
            below.chain(seconds.map(|seconds| seconds * SECOND)).chain(steps(86_400 * SECOND)).collect();
        let most = i128::try_from(most.as_micros()).unwrap_or(i128::MAX);
        Self::until(most, &steps, time_text)
    }

    fn until(most: i128, steps: &[i128], text: impl Fn(i128, i128) -> String) -> Self {
        let is_enough = |step: &&i128| step.saturating_mul(MOST_STEPS) >= most;
        let step = steps.iter().find(is_enough).or(steps.last()).copied().unwrap_or(1);
        let last = (most.max(1) - 1) / step + 1;
        let ticks = (0..=last.min(MOST_STEPS)).map(|at| at * step);
        Ticks(ticks.map(|at| (at as f64, text(at, step))).collect())
    }
}

/// 1, 2, 5, 10, 20, 50 and so on, times something.
fn steps(of: i128) -> Vec<i128> {
    (0..19).flat_map(|zeros| [1, 2, 5].map(|digit| digit * 10_i128.pow(zeros) * of)).collect()
}

fn rows_text(rows: i128) -> String {
    let (unit, name) = match rows {
        0..10_000 => (1, ""),
        10_000..1_000_000 => (1_000, "k"),
        1_000_000..1_000_000_000_000 => (1_000_000, "M"),
        _ => return format!("{:e}", rows as f64),
    };
    // Round numbers have no rest, except for 2,500 of something.
    match rows % unit {
        0 => format!("{}{name}", number(i64::try_from(rows / unit).unwrap_or(i64::MAX))),
        _ => format!("{}{name}", rows as f64 / unit as f64),
    }
}

/// A duration in the unit that suits the step: all marks of an axis have the same.
fn time_text(microseconds: i128, step: i128) -> String {
    const UNITS: [(i128, &str); 6] =
        [(86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"), (1_000, "ms"), (1, "µs")];
    let (unit, name) = UNITS.into_iter().find(|(unit, _)| *unit <= step * 2).unwrap_or((1, "µs"));
    match microseconds {
        0 => "0".to_owned(),
        _ => format!("{} {name}", microseconds as f64 / unit as f64),
    }
}

/// Which of these periods have a mark, and its texts: the time, and the day where one begins.
pub(super) fn of_periods(starts: &[DateTime<Utc>], interval: Interval) -> Vec<(usize, [String; 2])> {
    const HOUR: i64 = 3_600;
    const STEPS: [i64; 9] = [60, 600, 1_800, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, 24 * HOUR, 7 * 24 * HOUR];
    let (Some(first), Some(last)) = (starts.first(), starts.last()) else { return Vec::new() };
    let length = (*last - *first).num_seconds();
    let least = if interval == Interval::Day { 24 * HOUR } else { 0 };
    let step = STEPS.into_iter().find(|step| *step >= least && length / step < MOST_TIMES).unwrap_or(28 * 24 * HOUR);
    let marked = starts.iter().enumerate().filter(|(_, start)| start.timestamp() % step == 0);
    let texts = |start: &DateTime<Utc>| match (interval, start.timestamp() % (24 * HOUR)) {
        (Interval::Day, _) => [start.format("%-d %b").to_string(), String::new()],
        (_, 0) => [start.format("%H:%M").to_string(), start.format("%-d %b").to_string()],
        _ => [start.format("%H:%M").to_string(), String::new()],
    };
    marked.map(|(at, start)| (at, texts(start))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(ticks: Ticks) -> String {
        ticks.0.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn rows_have_round_marks_that_reach_the_largest() {
        for (most, expected) in [
            (0, "0 1"),
            (1, "0 1"),
            (3, "0 1 2 3"),
            (7, "0 2 4 6 8"),
            (100, "0 20 40 60 80 100"),
            (101, "0 50 100 150"),
            (12_345, "0 5,000 10k 15k"),
            (2_400_000, "0 500k 1M 1.5M 2M 2.5M"),
        ] {
            assert_eq!(texts(Ticks::of_rows(most)), expected, "{most}");
        }
        for most in [1, 99, 1_000_001, i64::MAX / 3, i64::MAX] {
            let ticks = Ticks::of_rows(most);
            assert!(ticks.top() >= most as f64 && ticks.0.len() <= 6, "{ticks:?}");
        }
        assert_eq!(texts(Ticks::of_rows(-5)), "0 1");
    }

    #[test]
    fn durations_have_the_marks_of_clocks() {
        for (most, expected) in [
            (Duration::ZERO, "0 1 µs"),
            (Duration::from_millis(7), "0 2 ms 4 ms 6 ms 8 ms"),
            (Duration::from_millis(900), "0 200 ms 400 ms 600 ms 800 ms 1000 ms"),
            (Duration::from_millis(1_700), "0 0.5 s 1 s 1.5 s 2 s"),
            (Duration::from_secs(40), "0 10 s 20 s 30 s 40 s"),
            (Duration::from_secs(100), "0 0.5 min 1 min 1.5 min 2 min"),
            (Duration::from_secs(4_000), "0 15 min 30 min 45 min 60 min 75 min"),
            (Duration::from_secs(9 * 3_600), "0 2 h 4 h 6 h 8 h 10 h"),
            (Duration::from_secs(30 * 86_400), "0 10 d 20 d 30 d"),
        ] {
            assert_eq!(texts(Ticks::of_times(most)), expected, "{most:?}");
        }
        assert!(Ticks::of_times(Duration::MAX).0.len() <= 6);
    }

    #[test]
    fn times_are_marked_at_round_ones() {
        let start = DateTime::from_timestamp(1_772_366_400, 0).expect("it is in the range");
        let starts =
            |seconds, count| (0..count).map(|at: u64| start + Duration::from_secs(at * seconds)).collect::<Vec<_>>();
        let texts = |starts: &[_], interval| {
            let marks = of_periods(starts, interval).into_iter();
            marks.map(|(at, texts)| format!("{at}:{}", texts.join(" ").trim())).collect::<Vec<_>>().join(", ")
        };
        let hours = "0:12:00, 3:15:00, 6:18:00, 9:21:00, 12:00:00 2 Mar, 15:03:00, 18:06:00, 21:09:00";
        assert_eq!(texts(&starts(3_600, 24), Interval::Hour), hours);
        let minutes = "0:12:00, 10:12:10, 20:12:20, 30:12:30, 40:12:40, 50:12:50";
        assert_eq!(texts(&starts(60, 60), Interval::Minute), minutes);
        assert_eq!(texts(&[], Interval::Hour), "");
        assert_eq!(texts(&starts(60, 1), Interval::Minute), "0:12:00");
        assert!(of_periods(&starts(86_400, 5_000), Interval::Hour).len() < 200);
    }
}
