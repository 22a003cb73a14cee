//! Numbers, times and texts as people read them.

use std::time::Duration;

use chrono::{DateTime, Local, Utc};
use queue_core::internals::by_name::printable;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// A text in one line, in which control characters and those that turn the direction of a line are visible.
pub(crate) fn visible(text: &str) -> String {
    printable(text, false)
}

/// A text of at most so many columns of a terminal.
pub(crate) fn cut(text: &str, widest: usize) -> String {
    if text.width() <= widest {
        return text.to_owned();
    }
    let mut left = widest.saturating_sub(1);
    let fits = |c: &char| {
        let fits = c.width().unwrap_or(0) <= left;
        left = left.saturating_sub(c.width().unwrap_or(0));
        fits
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

/// A whole number with separators: `12,345`.
pub(crate) fn number(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let grouped: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    format!("{}{}", if number < 0 { "-" } else { "" }, grouped.join(","))
}

pub(crate) fn count(rows: usize) -> String {
    number(i64::try_from(rows).unwrap_or(i64::MAX))
}

/// `1 row`, `2 rows`.
pub(crate) fn rows(rows: usize) -> String {
    format!("{} {}", count(rows), if rows == 1 { "row" } else { "rows" })
}

/// A duration in its two largest units: `3h 12m`.
pub(crate) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (large, small) = match seconds {
        0 => return format!("{}ms", duration.as_millis()),
        1..60 => return format!("{seconds}s"),
        60..3_600 => ((seconds / 60, "m"), (seconds % 60, "s")),
        3_600..86_400 => ((seconds / 3_600, "h"), (seconds % 3_600 / 60, "m")),
        _ => ((seconds / 86_400, "d"), (seconds % 86_400 / 3_600, "h")),
    };
    match small.0 {
        0 => format!("{}{}", large.0, large.1),
        _ => format!("{}{} {}{}", large.0, large.1, small.0, small.1),
    }
}

/// A duration with all its units, as people write it: `90d`, `1h 30m`.
pub(crate) fn exact(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let units = [(seconds / 86_400, "d"), (seconds / 3_600 % 24, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let milliseconds = (u64::from(duration.subsec_millis()), "ms");
    let units = units.into_iter().chain([milliseconds]).filter(|(number, _)| *number > 0);
    let units: Vec<_> = units.map(|(number, unit)| format!("{number}{unit}")).collect();
    if units.is_empty() { "0s".to_owned() } else { units.join(" ") }
}

/// How long ago a time was, or in how long it will be.
pub(crate) fn ago(time: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let passed = now - time;
    match passed.to_std() {
        Ok(passed) => format!("{} ago", span(passed)),
        Err(_) => format!("in {}", span((-passed).to_std().unwrap_or_default())),
    }
}

/// A time, in UTC or in the local zone.
pub(crate) fn since(time: DateTime<Utc>, utc: bool) -> String {
    match utc {
        true => time.format("%Y-%m-%d %H:%M:%SZ").to_string(),
        false => time.with_timezone(&Local).format("%Y-%m-%d %H:%M:%S%:z").to_string(),
    }
}

/// A line of bars, the largest of which is the largest number.
pub(crate) fn spark(numbers: &[i64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = numbers.iter().copied().max().unwrap_or(0).max(1);
    let bar = |number: &i64| match number.max(&0) {
        0 => ' ',
        number => BARS[usize::try_from((number * 8 - 1).div_euclid(most)).unwrap_or(7).min(7)],
    };
    numbers.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_separators() {
        for (given, expected) in [(0, "0"), (999, "999"), (1_000, "1,000"), (-12_345_678, "-12,345,678")] {
            assert_eq!(number(given), expected);
        }
        assert_eq!(number(i64::MIN), "-9,223,372,036,854,775,808");
    }

    #[test]
    fn durations_have_two_units() {
        for (seconds, expected) in
            [(1, "1s"), (59, "59s"), (60, "1m"), (3_725, "1h 2m"), (86_400, "1d"), (90_000, "1d 1h")]
        {
            assert_eq!(span(Duration::from_secs(seconds)), expected);
        }
        assert_eq!(span(Duration::from_millis(12)), "12ms");
    }

    #[test]
    fn durations_are_written_as_people_give_them() {
        for text in ["90d", "1h 30m", "1d 2h 3m 4s 5ms", "36s"] {
            assert_eq!(exact(humantime::parse_duration(text).expect("a duration")), text);
        }
        assert_eq!(exact(Duration::ZERO), "0s");
    }

    #[test]
    fn hostile_texts_are_visible() {
        assert!(!visible("a\u{1b}[31mb\r\n\u{202e}c").contains(['\u{1b}', '\r', '\n', '\u{202e}']));
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abcde…");
    }

    #[test]
    fn bars_grow_with_the_numbers() {
        assert_eq!(spark(&[0, 1, 4, 8]), " ▁▄█");
        assert_eq!(spark(&[]), "");
        assert_eq!(spark(&[i64::MAX / 16, 0]).chars().count(), 2);
    }
}
