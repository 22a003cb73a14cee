//! Times, dates and lengths of time as a condition writes them.

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Timelike, Utc};

/// The units of a length of time, with their microseconds. Days have 24 hours, and years 365 days.
const UNITS: [(&str, i64); 7] = [
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
    ("d", 86_400_000_000),
    ("w", 604_800_000_000),
    ("y", 31_536_000_000_000),
];

/// The forms of a time without an offset.
const TIME_FORMATS: [&str; 4] = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M"];

/// Reads a length of time, such as `90s` or `1d12h`.
pub(super) fn duration(text: &str) -> Option<TimeDelta> {
    let mut rest = text;
    let mut microseconds = 0_i64;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let (unit, after) = after.split_at(after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len()));
        let (_, of_unit) = UNITS.iter().find(|(name, _)| unit.eq_ignore_ascii_case(name))?;
        let part = number.parse::<i64>().ok()?.checked_mul(*of_unit)?;
        microseconds = microseconds.checked_add(part)?;
        rest = after;
    }
    Some(TimeDelta::microseconds(microseconds))
}

/// The forms in which PostgreSQL writes a time with its offset: `2026-03-01 12:00:00.5+00`.
const FORMATS_WITH_OFFSET: [&str; 2] = ["%Y-%m-%d %H:%M:%S%.f%#z", "%Y-%m-%dT%H:%M:%S%.f%#z"];

/// Reads a time with its offset, as people and the databases write it.
pub(crate) fn with_offset(text: &str) -> Option<DateTime<Utc>> {
    let stored = || FORMATS_WITH_OFFSET.iter().find_map(|format| DateTime::parse_from_str(text, format).ok());
    DateTime::parse_from_rfc3339(text).ok().or_else(stored).map(|time| time.to_utc())
}

/// Reads a time. Without an offset it is one of UTC; without a time of day it is the beginning of the day.
pub(super) fn instant(text: &str) -> Option<DateTime<Utc>> {
    let without = || TIME_FORMATS.iter().find_map(|format| NaiveDateTime::parse_from_str(text, format).ok());
    let midnight = || date(text).map(|date| date.and_time(NaiveTime::MIN));
    with_offset(text).or_else(|| without().or_else(midnight).map(|time| time.and_utc())).and_then(in_range)
}

/// Reads a date.
pub(super) fn date(text: &str) -> Option<NaiveDate> {
    NaiveDate::parse_from_str(text, "%Y-%m-%d").ok().filter(is_in_range)
}

/// Reads a time of day.
pub(super) fn time_of_day(text: &str) -> Option<NaiveTime> {
    let formats = ["%H:%M:%S%.f", "%H:%M"];
    formats.iter().find_map(|format| NaiveTime::parse_from_str(text, format).ok()).and_then(to_microsecond)
}

/// Returns a time to the microsecond, as the databases store it, if every database can store it.
pub(super) fn in_range(time: DateTime<Utc>) -> Option<DateTime<Utc>> {
    to_microsecond(time).filter(is_in_range)
}

/// The years that every database has, and that have four digits.
fn is_in_range(time: &impl Datelike) -> bool {
    (1..=9999).contains(&time.year())
}

/// Cuts a time to the microsecond. A leap second is none of the databases' times.
fn to_microsecond<T: Timelike>(time: T) -> Option<T> {
    let nanoseconds = time.nanosecond();
    if nanoseconds >= 1_000_000_000 {
        return None;
    }
    time.with_nanosecond(nanoseconds / 1_000 * 1_000)
}
