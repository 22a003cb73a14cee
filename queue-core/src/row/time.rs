//! The queue's SQL type for an instant: one type on three backends.
//!
//! The Rust value is chrono's `DateTime<Utc>`, or [`Instant`], the same in a type of this crate. PostgreSQL stores `timestamptz`,
//! MySQL and MariaDB `DATETIME(6)` in UTC. SQLite stores text of a fixed width (`YYYY-MM-DD HH:MM:SS.mmm`), because it
//! compares times as text.

use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::backend::Backend;
use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::expression::AsExpression;
use diesel::query_builder::QueryId;
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types::{SqlOrd, SqlType};
use serde::{Deserialize, Serialize};

/// The SQL type of the queue's time columns.
#[derive(Debug, Clone, Copy, Default, SqlType, QueryId)]
#[diesel(postgres_type(oid = 1184, array_oid = 1185))]
#[diesel(mysql_type(name = "DateTime"))]
#[diesel(sqlite_type(name = "Text"))]
pub struct TimestampUtc;

impl SqlOrd for TimestampUtc {}

/// A [`DateTime<Utc>`], as the queue's time columns take and return it.
///
/// A `DateTime<Utc>` itself can be loaded, compared and written too. This type is for what only Diesel may implement for
/// chrono's, such as a list for `eq_any`. Convert with `from` and `into`, or read it as the `DateTime` that it derefs to.
///
/// ```
/// use chrono::{DateTime, Utc};
/// use queueable::columns::Instant;
///
/// let time: DateTime<Utc> = "2026-03-01T12:00:00Z".parse().unwrap();
/// let instant = Instant::from(time);
/// assert_eq!(instant.timestamp(), time.timestamp());
/// assert_eq!(DateTime::from(instant), time);
/// ```
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, AsExpression, FromSqlRow, Serialize, Deserialize,
)]
#[diesel(sql_type = TimestampUtc)]
#[serde(transparent)]
pub struct Instant(pub(crate) DateTime<Utc>);

impl From<DateTime<Utc>> for Instant {
    fn from(time: DateTime<Utc>) -> Self {
        Instant(time)
    }
}

impl From<Instant> for DateTime<Utc> {
    fn from(instant: Instant) -> Self {
        instant.0
    }
}

impl std::ops::Deref for Instant {
    type Target = DateTime<Utc>;

    fn deref(&self) -> &DateTime<Utc> {
        &self.0
    }
}

impl<DB: Backend> ToSql<TimestampUtc, DB> for Instant
where
    DateTime<Utc>: ToSql<TimestampUtc, DB>,
{
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, DB>) -> serialize::Result {
        self.0.to_sql(out)
    }
}

impl<DB: Backend> FromSql<TimestampUtc, DB> for DateTime<Utc>
where
    Instant: FromSql<TimestampUtc, DB>,
{
    fn from_sql(bytes: DB::RawValue<'_>) -> deserialize::Result<Self> {
        Instant::from_sql(bytes).map(Self::from)
    }
}

/// A due time as it was read, and whether writing it back would give the same text as in its column.
#[derive(Debug, Clone, Copy, FromSqlRow)]
pub struct DueTime {
    pub(crate) time: Instant,
    pub(crate) is_exact: bool,
}

impl DueTime {
    /// Makes a time that is written back as the database stores it.
    pub(crate) fn exact(time: Instant) -> Self {
        DueTime { time, is_exact: true }
    }
}

impl From<DueTime> for DateTime<Utc> {
    fn from(due: DueTime) -> Self {
        due.time.0
    }
}

/// The longest delay that the queue writes: 100 years.
///
/// Every database can add it to the current time without leaving its range. MySQL's `DATETIME` and SQLite's text end
/// with the year 9999, and MySQL answers an overflow with null, which would make a row that is never due.
pub const MAX_DELAY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Returns a delay as the databases add it: whole microseconds, at most [`MAX_DELAY`].
pub(crate) fn microseconds(delay: Duration) -> i64 {
    i64::try_from(delay.min(MAX_DELAY).as_micros()).expect("100 years of microseconds fit into 64 bits")
}

/// How far a probe looks into the future: as long as the longest poll interval.
pub(crate) const HORIZON: Duration = Duration::from_secs(600);
