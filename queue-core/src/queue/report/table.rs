//! How reports look in a terminal: aligned columns under a header line, times in a form for people, and the texts of failures with a
//! placeholder for each part that differs from row to row.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use chrono::{DateTime, Utc};
use regex::{Captures, Regex};
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
    /// Makes another report of each.
    #[doc(hidden)]
    pub fn map<T>(self, report: impl Fn(R) -> T) -> By<T> {
        let parts = self.parts.into_iter().map(|part| Part { value: part.value, report: report(part.report) });
        By { column: self.column, parts: parts.collect(), left_out: self.left_out }
    }

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

/// The number of characters after which a pattern is cut.
///
/// It is well below the 1,000 characters that are read: if a longer text is cut in the middle of a value, its pattern
/// has ended before.
const PATTERN_CHARACTERS: usize = 400;

/// One alternative for each placeholder; the first that matches wins. Quotes count only if no word is at their outer
/// side, so that an apostrophe does not count. A number may be part of a word that it ends or begins (`E1234`, `10s`),
/// because such words are ids and durations more often than names.
static FOLDED: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r#"(?x)
        (?<empty> '' | "" | `` )
        | (?-u:\B)' (?<single> [^'\n]+ ) '(?-u:\B)
        | (?-u:\B)" (?<double> (?: [^"\\\n] | \\. )+ ) "(?-u:\B)
        | (?-u:\B)` (?<back> [^`\n]+ ) `(?-u:\B)
        | (?-u:
            (?<time>
                \b \d{4}-\d\d-\d\d
                (?: [T\x20] \d\d:\d\d (?: :\d\d (?: [.,]\d+ )? )?
                    (?: \x20?UTC\b | Z\b | [+-]\d\d:?\d\d\b | [+-]\d\d\b )? )?
                | \b \d\d:\d\d:\d\d (?: [.,]\d+ )? )
            | (?<uuid> \b [0-9A-Fa-f]{8} (?: -[0-9A-Fa-f]{4} ){3} -[0-9A-Fa-f]{12} \b )
            | (?<hex> \b 0[xX][0-9A-Fa-f]+ \b | \b [0-9A-Fa-f]{8,} \b )
            | \d+ (?: [.,]\d+ )*
        )
        "#,
    )
    .expect("the expression is a constant that the tests compile")
});

/// Returns the pattern of a failure's text. Placeholders replace quoted values (`'<value>'` in the same quotes), times
/// (`<time>`), UUIDs (`<uuid>`), hexadecimal ids of eight digits or more (`<hex>`), and numbers (`<number>`). The
/// pattern is cut after 400 characters.
pub fn pattern(text: &str) -> String {
    let mut pattern = fold(text);
    if let Some((end, _)) = pattern.char_indices().nth(PATTERN_CHARACTERS) {
        pattern.truncate(end);
    }
    pattern
}

/// Returns how each text with this pattern begins: a placeholder is in angle brackets or in quotes, and what stands before the first
/// one is as it was.
pub(crate) fn beginning(pattern: &str) -> &str {
    pattern.split(['<', '\'', '"', '`']).next().unwrap_or_default()
}

/// Folds until nothing changes, because a placeholder may replace the word that kept a quote from counting. This ends:
/// each round only removes digits, or quotes with more than one placeholder between them.
fn fold(text: &str) -> String {
    let mut folded = text.to_owned();
    loop {
        match FOLDED.replace_all(&folded, placeholder) {
            Cow::Owned(next) if next != folded => folded = next,
            _ => return folded,
        }
    }
}

fn placeholder(found: &Captures<'_>) -> String {
    let text = &found[0];
    let is = |name| found.name(name).is_some();
    match () {
        () if is("empty") => text,
        () if is("single") => "'<value>'",
        () if is("double") => "\"<value>\"",
        () if is("back") => "`<value>`",
        () if is("time") => "<time>",
        () if is("uuid") => "<uuid>",
        () if is("hex") && !text.bytes().all(|byte| byte.is_ascii_digit()) => "<hex>",
        () => "<number>",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_begins_as_its_pattern_does() {
        for (text, begins) in [
            ("no route to 7", "no route to "),
            ("no route", "no route"),
            ("7 routes", ""),
            ("it's 12:00, `a` is a <b> of 0xdeadbeef01", "it"),
            ("key=550e8400-e29b-41d4-a716-446655440000", "key="),
            ("\u{e9}\u{1f600} -3.5e7", "\u{e9}\u{1f600} -"),
            ("2026-03-01T12:00:00Z gone", ""),
            ("", ""),
        ] {
            let pattern = pattern(text);
            assert_eq!(beginning(&pattern), begins, "{pattern}");
            assert!(text.starts_with(begins));
        }
    }

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

    use proptest::prelude::*;

    #[test]
    fn what_differs_from_row_to_row_is_folded() {
        for (text, expected) in [
            ("no route", "no route"),
            ("", ""),
            ("payment 17: no route", "payment <number>: no route"),
            ("HTTP 503", "HTTP <number>"),
            ("took 1,234.56 of -3.5 s", "took <number> of -<number> s"),
            ("ORD-2044 and E77, 10s", "ORD-<number> and E<number>, <number>s"),
            ("no account 'O-17' there", "no account '<value>' there"),
            ("unknown field \"a \\\"b\\\" c\"", "unknown field \"<value>\""),
            ("no column `id`", "no column `<value>`"),
            ("can't connect, won't retry", "can't connect, won't retry"),
            ("the shops' list isn't there", "the shops' list isn't there"),
            ("'' and 'x'", "'' and '<value>'"),
            ("1'2'3", "<number>'<value>'<number>"),
            ("at 2026-03-01T12:00:00.123Z", "at <time>"),
            ("at 2026-03-01 12:00:00+02:00, or 2026-03-01", "at <time>, or <time>"),
            ("until 12:30:59", "until <time>"),
            ("id 3F2504E0-4f89-11d3-9a0c-0305e82c3301!", "id <uuid>!"),
            ("commit 4f2a9c01b7, at 0x7ffe", "commit <hex>, at <hex>"),
            ("order 12345678", "order <number>"),
            ("a façade, 日本 5 円", "a façade, 日本 <number> 円"),
            ("127.0.0.1:5432 refused", "<number>:<number> refused"),
            ("two\nlines, 'not\nquoted' 1", "two\nlines, 'not\nquoted' <number>"),
        ] {
            assert_eq!(pattern(text), expected, "{text}");
        }
    }

    #[test]
    fn a_pattern_is_cut_at_a_character() {
        assert_eq!(pattern(&"é".repeat(1000)), "é".repeat(400));
        // Texts that are cut at different places of one value have one pattern.
        let text = |id: &str| format!("{id} {}", "x ".repeat(600)).chars().take(1000).collect::<String>();
        assert_eq!(pattern(&text("7")), pattern(&text("70000")));
    }

    proptest! {
        #[test]
        fn folding_again_changes_nothing(text in "[ a-f0-9xTZ.,:'\"`\\\\<>_é\n-]{0,40}") {
            let folded = fold(&text);
            prop_assert!(!folded.contains(|c: char| c.is_ascii_digit()), "{folded}");
            prop_assert_eq!(fold(&folded), folded);
        }

        #[test]
        fn any_text_can_be_folded(text in any::<String>()) {
            pattern(&text);
        }
    }
}
