//! The state of a row: its status with the text, all queue columns as one value, the fence that a write must find, and
//! the results of an attempt.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use diesel::backend::Backend;
use diesel::deserialize::{self, FromSql, FromSqlRow, FromStaticSqlRow, Queryable};
use diesel::expression::AsExpression;
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types::Text;
use serde::{Deserialize, Serialize};

use super::time::Instant;

/// The state of a row's work so far.
///
/// It is stored as text (`NOT_ATTEMPTED`, `ERROR`, ...), so that somebody who reads the table understands it. The
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

    const TEXTS: [&str; 6] = ["NOT_ATTEMPTED", "IN_PROGRESS", "SUCCESS", "ERROR", "FAILED", "SKIPPED"];

    /// Returns the text under which the status is stored.
    pub const fn as_str(self) -> &'static str {
        Status::TEXTS[self as usize]
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

/// All queue columns of a row.
///
/// ```
/// # use queueable::{QueueState, Status};
/// let json = r#"{"status":"ERROR","next_attempt_time":null,"try_count":2,"last_attempt_time":null,"last_attempt_error_message":"no route"}"#;
/// let state: QueueState = serde_json::from_str(json).unwrap();
/// assert_eq!((state.status, state.try_count), (Status::Error, 2));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueState {
    /// The state of the row's work so far.
    pub status: Status,
    /// When the next attempt is due; `None` means that the row is not to be processed.
    pub next_attempt_time: Option<DateTime<Utc>>,
    /// How many attempts were recorded since the row was enqueued.
    pub try_count: i32,
    /// When the last recorded attempt ended.
    pub last_attempt_time: Option<DateTime<Utc>>,
    /// The text of the last failure. A success clears it.
    pub last_attempt_error_message: Option<String>,
}

impl<ST, DB> Queryable<ST, DB> for QueueState
where
    DB: Backend,
    (Status, Option<Instant>, i32, Option<Instant>, Option<String>): FromStaticSqlRow<ST, DB>,
{
    type Row = (Status, Option<Instant>, i32, Option<Instant>, Option<String>);

    fn build(
        (status, next_attempt_time, try_count, last_attempt_time, last_attempt_error_message): Self::Row,
    ) -> deserialize::Result<Self> {
        Ok(QueueState {
            status,
            next_attempt_time: next_attempt_time.map(DateTime::from),
            try_count,
            last_attempt_time: last_attempt_time.map(DateTime::from),
            last_attempt_error_message,
        })
    }
}

/// The state in which a row was claimed. Every write of an attempt names it, so that it never overwrites what another
/// session has changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    /// The status.
    pub status: Status,
    /// The number of recorded attempts.
    pub try_count: i32,
    /// Under a lease: when the attempt began, as stored on the row. A row that was enqueued anew can reach the same
    /// number of attempts; this time tells the two apart.
    pub began: Option<Instant>,
    /// When the row was due, as stored on the row. A row that was enqueued anew, postponed or stopped in the attempt's
    /// own transaction may have the same status and tries. `None` under a lease, because the end of the lease moves,
    /// and where the column's text cannot be written back exactly (on SQLite, where an application may have written the
    /// time in its own format).
    pub due: Option<Instant>,
    /// How often the row's content had changed at the claim, for an entity with `rerun_on_change`. Only writes that
    /// depend on the content compare it, see [`Change::of_content`](crate::statement::Change::of_content).
    pub change_count: Option<i64>,
}

impl Fence {
    /// Makes a fence without a lease.
    pub const fn new(status: Status, try_count: i32) -> Self {
        Fence { status, try_count, began: None, due: None, change_count: None }
    }

    /// Drops the due time, for a row whose due time was changed after the claim.
    pub(crate) fn at_any_time(self) -> Self {
        Fence { due: None, ..self }
    }

    /// Tells whether both have the same status and number of attempts, whenever they began.
    pub(crate) fn reads_as(self, other: Fence) -> bool {
        (self.status, self.try_count) == (other.status, other.try_count)
    }
}

/// The result that a worker committed on a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settlement {
    Succeeded,
    Deleted,
    Again,
    Advanced,
    Skipped,
    Retried,
    Failed,
}

impl Settlement {
    /// Tells whether the attempt has failed.
    pub(crate) fn is_failure(self) -> bool {
        matches!(self, Settlement::Retried | Settlement::Failed)
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
