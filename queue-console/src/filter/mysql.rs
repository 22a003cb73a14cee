//! How MySQL and MariaDB take the values of a condition. Texts compare by the collation of their column.

use std::io::Write;

use chrono::{NaiveDate, NaiveDateTime, NaiveTime};
use diesel::mysql::Mysql;
use diesel::query_builder::AstPass;
use diesel::result::QueryResult;
use diesel::serialize::{self, IsNull, Output, ToSql};
use diesel::sql_types::{Bool, Date, Datetime, Double, Numeric, Time};
use queue_core::internals::backend::{Binds, Holds};

use super::sql::FilterSql;
use super::value::{Decimal, Value};

impl FilterSql for Mysql {
    // An enumeration is sorted by the numbers of its values, and compares with a text as a text.
    const UNORDERED: &'static [Holds] = &[Holds::Others];

    fn bind_value<'b>(out: &mut AstPass<'_, 'b, Self>, value: &'b Value) -> QueryResult<()> {
        match value {
            Value::Integer(integer) => Self::bind_big_integer(out, integer),
            Value::Float(float) => out.push_bind_param::<Double, f64>(float),
            Value::Decimal(decimal) => out.push_bind_param::<Numeric, Decimal>(decimal),
            Value::Text(text) => Self::bind_text(out, text),
            Value::Boolean(boolean) => out.push_bind_param::<Bool, bool>(boolean),
            Value::Date(date) => out.push_bind_param::<Date, NaiveDate>(date),
            Value::TimeOfDay(time) => out.push_bind_param::<Time, NaiveTime>(time),
            Value::Timestamp(time) => out.push_bind_param::<Datetime, NaiveDateTime>(time),
            Value::Instant(time) => Self::bind_time(out, time),
            Value::Uuid(uuid) => Self::bind_bytes(out, &uuid.0),
            Value::Bytes(bytes) => Self::bind_bytes(out, bytes),
        }
    }
}

/// The protocol has decimal numbers as texts.
impl ToSql<Numeric, Mysql> for Decimal {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Mysql>) -> serialize::Result {
        out.write_all(self.0.as_bytes())?;
        Ok(IsNull::No)
    }
}
