//! Times: what the console says of now is told of one night, and is compared by its form.

use std::sync::LazyLock;

use chrono::{DateTime, DurationRound, NaiveDateTime, TimeDelta, Utc};
use regex::{Captures, Regex};

static TIME: LazyLock<Regex> = LazyLock::new(|| regex(r"(\d{4}-\d\d-\d\d)([ T])(\d\d:\d\d:\d\d)(\.\d+)?"));

static MASKS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    vec![
        (TIME.clone(), "[time]"),
        (regex(r"\b\d+(ms|s|m|h|d)( \d+(ms|s|m|h|d))*\b"), "[age]"),
        (regex(r"\b\d+\.\d{2,}\b"), "[seconds]"),
        // The number of a row of the audit is random.
        (regex(r"\b\d{12,}\b"), "[number]"),
        // Where a text is cut depends on the ages beside it.
        (regex("[^ ]*…"), "…"),
        (regex("  +"), "  "),
        (regex(r"(?m)[ \t]+$"), ""),
    ]
});

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern of ours")
}

/// A text in which times and ages have one form, whenever the session runs. The commands stay as they are.
pub(crate) fn masked(text: &str) -> String {
    let line = |line: &str| match line.starts_with("$ ") {
        true => line.to_owned(),
        false => {
            MASKS.iter().fold(line.to_owned(), |line, (found, shown)| found.replace_all(&line, *shown).into_owned())
        }
    };
    text.lines().map(|text| line(text) + "\n").collect()
}

/// Moves all times in a text so that `now` becomes `then`. Full hours stay full hours.
pub(crate) fn moved(text: &str, now: DateTime<Utc>, then: DateTime<Utc>) -> String {
    let hour = |time: DateTime<Utc>| time.duration_trunc(TimeDelta::hours(1)).expect("a time of our days");
    let moved = |found: &Captures<'_>| {
        let [date, between, clock] = [1, 2, 3].map(|group| &found[group]);
        let fraction = found.get(4).map_or("", |fraction| fraction.as_str());
        let read = NaiveDateTime::parse_from_str(&format!("{date} {clock}"), "%Y-%m-%d %H:%M:%S");
        let Ok(time) = read.map(|time| time.and_utc()) else { return found[0].to_owned() };
        let time = if time == hour(time) { hour(then) - (hour(now) - time) } else { then - (now - time) };
        format!("{}{between}{}{fraction}", time.format("%Y-%m-%d"), time.format("%H:%M:%S"))
    };
    TIME.replace_all(text, moved).into_owned()
}
