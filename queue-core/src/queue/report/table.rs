//! How reports look in a terminal: aligned columns under a header line, and times in a form for people.

use std::cmp::Ordering;
use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::row::printable;

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
    let lines: Vec<Vec<_>> =
        lines.iter().map(|cells| cells.iter().map(|cell| printable(cell, false)).collect()).collect();
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

/// One report for each value of a column, in the order of the values.
///
/// The values are text, as the database writes them, so that a program can store and send every report. Null is a value
/// too.
///
/// ```
/// # use diesel::prelude::*;
/// # use diesel::connection::SimpleConnection;
/// # use diesel_migrations::MigrationHarness;
/// # use queueable::{Migrations, Queueable};
/// # diesel::table! { payments (id) { id -> BigInt, company_id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64, company_id: i64 }
/// # let mut connection = SqliteConnection::establish(":memory:")?;
/// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, company_id BIGINT NOT NULL)")?;
/// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
/// let due = (payments::company_id.eq(3345), Payment::due_now());
/// diesel::insert_into(payments::table).values(due).execute(&mut connection)?;
///
/// let backlog = Payment::queue().backlog_by(&mut connection, payments::company_id)?;
/// assert_eq!(backlog.of("3345").map(|backlog| backlog.due), Some(1));
/// for part in &backlog.parts {
///     println!("{:?}: {} due", part.value, part.report.due);
/// }
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct By<R> {
    /// The column's name.
    pub column: String,
    /// The reports.
    pub parts: Vec<Part<R>>,
    /// How much was left out, because no report is read into memory without a limit: rows of
    /// [`errors_by`](crate::QueueRows::errors_by), periods of [`statistics_by`](crate::QueueRows::statistics_by), values of
    /// [`backlog_by`](crate::QueueRows::backlog_by).
    #[serde(default)]
    pub left_out: i64,
}

/// The report of one value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Part<R> {
    /// The value as text; `None` is null.
    pub value: Option<String>,
    /// The report of the rows with this value.
    pub report: R,
}

impl<R> By<R> {
    pub(crate) fn new(column: &str, parts: impl IntoIterator<Item = (Option<String>, R)>, left_out: i64) -> Self {
        let mut parts: Vec<_> = parts.into_iter().map(|(value, report)| Part { value, report }).collect();
        parts.sort_by(|a, b| in_order(a.value.as_deref(), b.value.as_deref()));
        By { column: column.to_owned(), parts, left_out }
    }

    /// Returns the report of one value, given as the database writes it.
    pub fn of(&self, value: &str) -> Option<&R> {
        self.parts.iter().find(|part| part.value.as_deref() == Some(value)).map(|part| &part.report)
    }
}

/// Null first, then numbers by their size, then texts.
fn in_order(a: Option<&str>, b: Option<&str>) -> Ordering {
    let number = |value: Option<&str>| value.and_then(|value| value.parse::<i128>().ok());
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) if b.is_some() => Ordering::Less,
        (None, Some(_)) if a.is_some() => Ordering::Greater,
        _ => a.cmp(&b),
    }
}

impl<R: Tabular> fmt::Display for By<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Vec::new();
        for Part { value, report } in &self.parts {
            let value = value.as_deref().unwrap_or("null");
            lines.extend(report.lines().into_iter().map(|line| [vec![value.to_owned()], line].concat()));
        }
        write_table(f, Some(&self.column), R::COLUMNS, &lines)?;
        if self.left_out > 0 {
            writeln!(f, "and {} more that were not read", self.left_out)?;
        }
        Ok(())
    }
}

/// Rows with an odd time: a value that cannot be read as a time.
///
/// On PostgreSQL such a value is `infinity`, or a year beyond 261,800; on MySQL and MariaDB a zero date; on SQLite
/// anything but a text that begins like `2026-03-01 12:00`.
///
/// ```
/// let odd: queueable::report::OddTimes = serde_json::from_str(r#"{"rows": 3, "example": "infinity"}"#).unwrap();
/// assert_eq!(odd.to_string(), "infinity (3)");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OddTimes {
    /// How many rows there are.
    pub rows: i64,
    /// The value of one of them, as the database writes it.
    pub example: String,
}

impl OddTimes {
    /// Adds rows to those that are known.
    pub(crate) fn add(known: &mut Option<OddTimes>, rows: i64, example: Option<String>) {
        let Some(example) = example else { return };
        known.get_or_insert(OddTimes { rows: 0, example }).rows += rows;
    }
}

impl fmt::Display for OddTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.example, self.rows)
    }
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

    #[test]
    fn parts_are_in_the_order_of_their_values() {
        let values = ["b", "10", "a", "9", "-1"].map(|value| (Some(value.to_owned()), ()));
        let by = By::new("column", values.into_iter().chain([(None, ())]), 0);
        let values: Vec<_> = by.parts.iter().map(|part| part.value.as_deref()).collect();
        assert_eq!(values, [None, Some("-1"), Some("9"), Some("10"), Some("a"), Some("b")]);
        assert_eq!((by.of("9"), by.of("8")), (Some(&()), None));
    }
}
