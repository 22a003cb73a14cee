//! All queue columns of a row, as one value.

use chrono::{DateTime, Utc};
use diesel::backend::Backend;
use diesel::deserialize::{self, FromStaticSqlRow, Queryable};
use serde::{Deserialize, Serialize};

use super::instant::Instant;
use super::status::Status;

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
