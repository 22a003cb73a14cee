//! The states of a row and their text.

use std::fmt;
use std::str::FromStr;

use diesel::backend::Backend;
use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::expression::AsExpression;
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types::Text;
use serde::{Deserialize, Serialize};

/// The state of a row's work so far.
///
/// It is stored as text (`NOT_ATTEMPTED`, `ERROR`, ...), so that a person who reads the table needs no legend. The
/// status never decides whether a row is processed: `next_attempt_time` alone does.
///
/// ```
/// use queueable::Status;
///
/// assert_eq!(Status::Error.as_str(), "ERROR");
/// assert_eq!("FAILED".parse(), Ok(Status::Failed));
/// assert!("DONE".parse::<Status>().is_err());
/// ```
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, AsExpression, FromSqlRow, Serialize, Deserialize,
)]
#[diesel(sql_type = Text)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum Status {
    /// No attempt was recorded since the row was enqueued.
    NotAttempted,
    /// A worker holds a lease on the row. Only lease mode writes this status: in transaction mode the row lock is this
    /// state.
    InProgress,
    /// The last attempt succeeded.
    Success,
    /// The last attempt failed and will be retried.
    Error,
    /// The queue gave up: the tries are exhausted, or the failure was fatal.
    Failed,
    /// The row is not to be processed.
    Skipped,
}

impl Status {
    /// Every status, in the order of a row's life.
    pub const ALL: [Status; 6] =
        [Status::NotAttempted, Status::InProgress, Status::Success, Status::Error, Status::Failed, Status::Skipped];

    /// Returns the text under which the status is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Status::NotAttempted => "NOT_ATTEMPTED",
            Status::InProgress => "IN_PROGRESS",
            Status::Success => "SUCCESS",
            Status::Error => "ERROR",
            Status::Failed => "FAILED",
            Status::Skipped => "SKIPPED",
        }
    }

    /// Tells whether the row's work has ended: `SUCCESS`, `FAILED` or `SKIPPED`.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Status::Success | Status::Failed | Status::Skipped)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A text in a status column that is not one of the queue's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown queue status `{found}`, expected NOT_ATTEMPTED, IN_PROGRESS, SUCCESS, ERROR, FAILED or SKIPPED")]
pub struct UnknownStatus {
    /// The text that was found.
    pub found: String,
}

impl FromStr for Status {
    type Err = UnknownStatus;

    fn from_str(text: &str) -> Result<Self, UnknownStatus> {
        Status::ALL
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or_else(|| UnknownStatus { found: text.to_owned() })
    }
}

impl<DB> ToSql<Text, DB> for Status
where
    DB: Backend,
    str: ToSql<Text, DB>,
{
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, DB>) -> serialize::Result {
        self.as_str().to_sql(out)
    }
}

impl<DB> FromSql<Text, DB> for Status
where
    DB: Backend,
    String: FromSql<Text, DB>,
{
    fn from_sql(bytes: DB::RawValue<'_>) -> deserialize::Result<Self> {
        Ok(String::from_sql(bytes)?.parse()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_survives_its_text_and_its_json() {
        for status in Status::ALL {
            assert_eq!(status.as_str().parse(), Ok(status));
            assert_eq!(status.to_string(), status.as_str());
        }
        assert_eq!("success".parse::<Status>(), Err(UnknownStatus { found: "success".into() }));
    }
}
