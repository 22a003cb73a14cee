//! Queue columns as `time::OffsetDateTime`, for applications that use the crate `time` and not chrono.

use chrono::{DateTime, Utc};
use diesel::backend::Backend;
use diesel::deserialize::{self, FromSql};
use time::OffsetDateTime;

use super::time_operand::{TimeOperand, TimeValue};
use crate::row::{Instant, TimestampUtc};

impl<DB: Backend> FromSql<TimestampUtc, DB> for OffsetDateTime
where
    Instant: FromSql<TimestampUtc, DB>,
{
    fn from_sql(bytes: DB::RawValue<'_>) -> deserialize::Result<Self> {
        let time = DateTime::<Utc>::from(Instant::from_sql(bytes)?);
        let nanoseconds = i128::from(time.timestamp()) * 1_000_000_000 + i128::from(time.timestamp_subsec_nanos());
        Ok(OffsetDateTime::from_unix_timestamp_nanos(nanoseconds)?)
    }
}

impl TimeOperand<TimeValue> for OffsetDateTime {
    type Expression = Instant;

    fn into_operand(self) -> Instant {
        let time = DateTime::from_timestamp(self.unix_timestamp(), self.nanosecond());
        Instant::from(time.expect("chrono's calendar contains that of the crate time"))
    }
}
