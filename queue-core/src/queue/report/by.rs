//! A report that is split by the values of a domain column.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::table::{Tabular, write_table};

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
    /// [`errors_by`](crate::Queue::errors_by), periods of [`statistics_by`](crate::Queue::statistics_by), values of
    /// [`backlog_by`](crate::Queue::backlog_by).
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_in_the_order_of_their_values() {
        let values = ["b", "10", "a", "9", "-1"].map(|value| (Some(value.to_owned()), ()));
        let by = By::new("column", values.into_iter().chain([(None, ())]), 0);
        let values: Vec<_> = by.parts.iter().map(|part| part.value.as_deref()).collect();
        assert_eq!(values, [None, Some("-1"), Some("9"), Some("10"), Some("a"), Some("b")]);
        assert_eq!((by.of("9"), by.of("8")), (Some(&()), None));
    }
}
