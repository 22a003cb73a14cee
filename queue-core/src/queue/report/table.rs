//! How reports look in a terminal: aligned columns under a header line, and times in a form for people.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};

/// A column of a report.
#[derive(Debug, Clone, Copy)]
pub struct Heading {
    name: &'static str,
    is_number: bool,
}

/// Makes a column of numbers, aligned to the right.
pub(crate) const fn number(name: &'static str) -> Heading {
    Heading { name, is_number: true }
}

/// Makes a column of text, aligned to the left.
pub(crate) const fn text(name: &'static str) -> Heading {
    Heading { name, is_number: false }
}

/// A report that is a table.
#[doc(hidden)]
pub trait Tabular {
    /// The columns. A column without a value in any line is not shown.
    const COLUMNS: &'static [Heading];

    /// The cells of each line.
    fn lines(&self) -> Vec<Vec<String>>;
}

/// Writes the table. A split report has one more column in front.
pub(crate) fn write_table(
    f: &mut fmt::Formatter<'_>,
    value: Option<&str>,
    columns: &[Heading],
    lines: &[Vec<String>],
) -> fmt::Result {
    let names = value.into_iter().chain(columns.iter().map(|column| column.name));
    let numbers = value.map(|_| false).into_iter().chain(columns.iter().map(|column| column.is_number));
    let columns: Vec<_> = names
        .zip(numbers)
        .enumerate()
        .filter_map(|(place, (name, is_number))| {
            let cells = lines.iter().filter_map(|cells| cells.get(place));
            let shown = lines.is_empty() || cells.clone().any(|cell| !cell.is_empty());
            let width = cells.map(|cell| cell.chars().count()).chain([name.chars().count()]).max().unwrap_or(0);
            shown.then_some((place, name, width, is_number))
        })
        .collect();
    let mut write_line = |cell: &dyn Fn(usize, &str) -> String| {
        let mut line = String::new();
        for (place, name, width, is_number) in &columns {
            let cell = cell(*place, name);
            if *place > 0 {
                line += "  ";
            }
            line += &if *is_number { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
        }
        writeln!(f, "{}", line.trim_end())
    };
    write_line(&|_, name| name.to_owned())?;
    lines.iter().try_for_each(|cells| write_line(&|place, _| cells.get(place).cloned().unwrap_or_default()))
}

/// Writes a time to the second.
pub(crate) fn time(time: Option<DateTime<Utc>>) -> String {
    time.map_or_else(String::new, |time| time.format("%Y-%m-%d %H:%M:%S").to_string())
}

/// Writes a duration, rounded, in its two largest units.
pub(crate) fn duration(duration: Duration) -> String {
    let unit = match duration.as_secs() {
        0 if duration < Duration::from_millis(1) => Duration::from_micros(1),
        0..10 => Duration::from_millis(1),
        10..3_600 => Duration::from_secs(1),
        3_600..86_400 => Duration::from_secs(60),
        _ => Duration::from_secs(3_600),
    };
    let nanoseconds = duration.as_nanos() % unit.as_nanos();
    let rest = Duration::from_nanos(u64::try_from(nanoseconds).expect("an hour of nanoseconds fits into 64 bits"));
    humantime::format_duration(duration - rest).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_as_exact_as_a_person_wants_them() {
        for (given, expected) in [
            (Duration::ZERO, "0s"),
            (Duration::from_nanos(1_500), "1us"),
            (Duration::from_micros(12_345), "12ms"),
            (Duration::from_millis(1_250), "1s 250ms"),
            (Duration::from_millis(61_250), "1m 1s"),
            (Duration::from_secs(3_600 * 5 + 125), "5h 2m"),
            (Duration::from_secs(86_400 * 3 + 3_600 * 4 + 61), "3days 4h"),
        ] {
            assert_eq!(duration(given), expected);
        }
        assert!(!duration(Duration::MAX).is_empty());
    }
}
