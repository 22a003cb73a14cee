//! The number of rows of each status.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::row::Status;

/// The number of rows of each status.
///
/// ```
/// # use queueable::{Status, StatusCounts};
/// let counts: StatusCounts = serde_json::from_str(r#"{"SUCCESS": 3, "FAILED": 1, "unknown": 0}"#).unwrap();
/// assert_eq!(counts.of(Status::Success), 3);
/// assert_eq!(counts.total(), 4);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusCounts {
    #[serde(flatten)]
    pub(crate) known: BTreeMap<Status, i64>,
    /// Rows whose status is not one of the queue's.
    #[serde(default)]
    pub unknown: i64,
}

impl StatusCounts {
    /// Returns how many rows have this status.
    pub fn of(&self, status: Status) -> i64 {
        self.known.get(&status).copied().unwrap_or(0)
    }

    /// Returns how many rows there are in all.
    pub fn total(&self) -> i64 {
        self.known.values().sum::<i64>() + self.unknown
    }
}

impl fmt::Display for StatusCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for status in Status::ALL {
            let rows = self.of(status);
            if rows > 0 {
                writeln!(f, "{status:<14}{rows:>10}")?;
            }
        }
        if self.unknown > 0 {
            writeln!(f, "{:<14}{:>10}", "unknown", self.unknown)?;
        }
        Ok(())
    }
}
