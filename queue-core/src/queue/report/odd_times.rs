//! Rows whose times cannot be read as times: a report shows them separately, beside all others.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Rows with an odd time: a value that cannot be read as a time.
///
/// On PostgreSQL such a value is `infinity`, or a year beyond 261,800; on MySQL and MariaDB a zero date; on SQLite
/// anything but a text that begins like `2026-03-01 12:00`.
///
/// ```
/// let odd: queueable::OddTimes = serde_json::from_str(r#"{"rows": 3, "example": "infinity"}"#).unwrap();
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
