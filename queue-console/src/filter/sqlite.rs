//! How SQLite takes the values of a condition: as Diesel stores them.

use chrono::{NaiveDate, NaiveDateTime, NaiveTime};
use diesel::query_builder::AstPass;
use diesel::result::QueryResult;
use diesel::sql_types::{Bool, Date, Double, Time, Timestamp};
use diesel::sqlite::Sqlite;
use queue_core::internals::backend::Binds;

use super::sql::FilterSql;
use super::value::{Decimal, Value};

impl FilterSql for Sqlite {
    // In the form in which `bind_time` writes.
    const WITHOUT_OFFSET: (&'static str, &'static str) = ("strftime('%Y-%m-%d %H:%M:%f', ", ")");

    fn bind_value<'b>(out: &mut AstPass<'_, 'b, Self>, value: &'b Value) -> QueryResult<()> {
        match value {
            Value::Integer(integer) => Self::bind_big_integer(out, integer),
            Value::Float(float) => out.push_bind_param::<Double, f64>(float),
            Value::Decimal(Decimal(decimal)) => {
                // An integer of 64 bits stays exact, and anything else becomes a double, as in the column.
                out.push_sql("CAST(");
                Self::bind_text(out, decimal)?;
                out.push_sql(" AS NUMERIC)");
                Ok(())
            }
            Value::Text(text) => Self::bind_text(out, text),
            Value::Boolean(boolean) => out.push_bind_param::<Bool, bool>(boolean),
            Value::Date(date) => out.push_bind_param::<Date, NaiveDate>(date),
            Value::TimeOfDay(time) => out.push_bind_param::<Time, NaiveTime>(time),
            Value::Timestamp(time) => out.push_bind_param::<Timestamp, NaiveDateTime>(time),
            Value::Instant(time) => Self::bind_time(out, time),
            Value::Uuid(uuid) => Self::bind_bytes(out, &uuid.0),
            Value::Bytes(bytes) => Self::bind_bytes(out, bytes),
        }
    }
}
