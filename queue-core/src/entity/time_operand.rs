//! Times that a user compares with a queue column.

use std::time::SystemTime;

use chrono::{DateTime, TimeZone, Utc};
use diesel::ExpressionMethods;
use diesel::dsl;
use diesel::expression::AsExpression;
use diesel::sql_types::Nullable;

use super::column::{ColumnKind, QueueColumn};
use super::entity::QueueTable;
use crate::backend::Now;
use crate::row::{Instant, TimestampUtc};

/// The SQL type of the queue's time columns.
type TimeColumn = Nullable<TimestampUtc>;

/// A time that can be compared with a queue column: [`DateTime`](chrono::DateTime), [`SystemTime`], an
/// [`Instant`](crate::Instant), `diesel::dsl::now`, [`Now`](crate::Now), another queue column of a time, an `Option` of a
/// `DateTime<Utc>` or `Instant`, and with the feature `time` an `OffsetDateTime`.
///
/// `M` tells the compiler whether it is a value or an expression; it is inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no time that a queue column can be compared with",
    label = "not a time",
    note = "accepted are `chrono::DateTime`, `SystemTime`, `queueable::columns::Instant`, `queueable::columns::Now`, `diesel::dsl::now`, a queue \
            column of a time, and an `Option` of a `DateTime<Utc>` or an `Instant`",
    note = "with the feature `time` of queueable, also `time::OffsetDateTime`"
)]
pub trait TimeOperand<M> {
    /// What Diesel compares with.
    type Expression: AsExpression<TimeColumn>;

    /// Makes it.
    fn into_operand(self) -> Self::Expression;
}

/// Marks a time that is a value.
#[derive(Debug, Clone, Copy)]
pub enum TimeValue {}

/// Marks a time that is an expression.
#[derive(Debug, Clone, Copy)]
pub enum TimeExpression {}

#[diagnostic::do_not_recommend]
impl<E: AsExpression<TimeColumn>> TimeOperand<TimeExpression> for E {
    type Expression = E;

    fn into_operand(self) -> E {
        self
    }
}

impl<Z: TimeZone> TimeOperand<TimeValue> for DateTime<Z> {
    type Expression = Instant;

    fn into_operand(self) -> Instant {
        Instant::from(self.with_timezone(&Utc))
    }
}

impl TimeOperand<TimeValue> for SystemTime {
    type Expression = Instant;

    fn into_operand(self) -> Instant {
        Instant::from(DateTime::<Utc>::from(self))
    }
}

/// Diesel's own `now` is the time at which the transaction began, and on some databases a time of the session's zone.
impl TimeOperand<TimeValue> for dsl::now {
    type Expression = Now;

    fn into_operand(self) -> Now {
        Now
    }
}

/// Columns of a time are compared with the types that applications use. These methods come before those of
/// [`ExpressionMethods`], which do the same with whatever Diesel itself takes for the column.
///
/// ```
/// use chrono::{TimeDelta, Utc};
/// use diesel::connection::SimpleConnection;
/// use diesel::prelude::*;
/// use diesel_migrations::MigrationHarness;
/// use queueable::{Migrations, Queueable};
///
/// diesel::table! { payments (id) { id -> BigInt, } }
///
/// #[derive(Queryable, Selectable, Queueable)]
/// struct Payment { id: i64 }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// # let connection = &mut SqliteConnection::establish(":memory:")?;
/// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL)")?;
/// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
/// let tomorrow = Utc::now() + TimeDelta::days(1);
/// diesel::insert_into(payments::table).values(payment_queue::next_attempt_time.eq(tomorrow)).execute(connection)?;
/// let late = payments::table.filter(payment_queue::next_attempt_time.lt(diesel::dsl::now));
/// assert_eq!(late.count().get_result(connection), Ok(0));
/// let soon = payments::table.filter(payment_queue::next_attempt_time.between(Utc::now(), tomorrow));
/// assert_eq!(soon.count().get_result(connection), Ok(1));
/// # Ok(()) }
/// ```
impl<T, K> QueueColumn<T, K>
where
    T: QueueTable,
    K: ColumnKind<T, SqlType = TimeColumn>,
{
    /// `self = time`. Also assigns it, in `set` and `values`.
    pub fn eq<M, V: TimeOperand<M>>(self, time: V) -> dsl::Eq<Self, V::Expression> {
        ExpressionMethods::eq(self, time.into_operand())
    }

    /// `self != time`.
    pub fn ne<M, V: TimeOperand<M>>(self, time: V) -> dsl::NotEq<Self, V::Expression> {
        ExpressionMethods::ne(self, time.into_operand())
    }

    /// `self < time`.
    pub fn lt<M, V: TimeOperand<M>>(self, time: V) -> dsl::Lt<Self, V::Expression> {
        ExpressionMethods::lt(self, time.into_operand())
    }

    /// `self <= time`.
    pub fn le<M, V: TimeOperand<M>>(self, time: V) -> dsl::LtEq<Self, V::Expression> {
        ExpressionMethods::le(self, time.into_operand())
    }

    /// `self > time`.
    pub fn gt<M, V: TimeOperand<M>>(self, time: V) -> dsl::Gt<Self, V::Expression> {
        ExpressionMethods::gt(self, time.into_operand())
    }

    /// `self >= time`.
    pub fn ge<M, V: TimeOperand<M>>(self, time: V) -> dsl::GtEq<Self, V::Expression> {
        ExpressionMethods::ge(self, time.into_operand())
    }

    /// `self BETWEEN lower AND upper`; both belong to it.
    pub fn between<M, N, L: TimeOperand<M>, U: TimeOperand<N>>(
        self,
        lower: L,
        upper: U,
    ) -> dsl::Between<Self, L::Expression, U::Expression> {
        ExpressionMethods::between(self, lower.into_operand(), upper.into_operand())
    }
}

/// Queue columns as `time::OffsetDateTime`, for applications that use the crate `time` and not chrono.
#[cfg(feature = "time")]
mod offset_date_time {
    use chrono::{DateTime, Utc};
    use diesel::backend::Backend;
    use diesel::deserialize::{self, FromSql};
    use time::OffsetDateTime;

    use super::{TimeOperand, TimeValue};
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
}
