//! How PostgreSQL takes the values of a condition.

use std::io::Write;

use chrono::{NaiveDate, NaiveDateTime, NaiveTime};
use diesel::pg::{Pg, PgTypeMetadata};
use diesel::query_builder::{AstPass, QueryId};
use diesel::result::QueryResult;
use diesel::serialize::{self, IsNull, Output, ToSql};
use diesel::sql_types::{Bool, Date, Double, HasSqlType, SingleValue, SqlType, Time, Timestamp, Uuid, is_nullable};
use queue_core::internals::backend::Binds;

use super::sql::FilterSql;
use super::value::{Decimal, UuidBytes, Value};

impl FilterSql for Pg {
    const LIKE_HAS_NO_ESCAPE: bool = false;

    fn bind_value<'b>(out: &mut AstPass<'_, 'b, Self>, value: &'b Value) -> QueryResult<()> {
        match value {
            Value::Integer(integer) => Self::bind_big_integer(out, integer),
            Value::Float(float) => out.push_bind_param::<Double, f64>(float),
            Value::Decimal(Decimal(decimal)) => {
                out.push_sql("CAST(");
                Self::bind_text(out, decimal)?;
                out.push_sql(" AS numeric)");
                Ok(())
            }
            Value::Text(text) => Self::bind_like_column(out, text),
            Value::Boolean(boolean) => out.push_bind_param::<Bool, bool>(boolean),
            Value::Date(date) => out.push_bind_param::<Date, NaiveDate>(date),
            Value::TimeOfDay(time) => out.push_bind_param::<Time, NaiveTime>(time),
            Value::Timestamp(time) => out.push_bind_param::<Timestamp, NaiveDateTime>(time),
            Value::Instant(time) => Self::bind_time(out, time),
            Value::Uuid(uuid) => out.push_bind_param::<Uuid, UuidBytes>(uuid),
            Value::Bytes(bytes) => Self::bind_bytes(out, bytes),
        }
    }

    fn bind_like_column<'b>(out: &mut AstPass<'_, 'b, Self>, text: &'b str) -> QueryResult<()> {
        out.push_bind_param::<Unstated, str>(text)
    }
}

/// A type that the server concludes from the column beside it.
///
/// A parameter of the type `text` would compare a `citext` with case, a `char` with its blanks, and an enumeration not at all; and
/// none of them along an index. All of these read the bytes that a client sends as a text.
#[derive(Debug, Clone, Copy, QueryId)]
struct Unstated;

impl SqlType for Unstated {
    type IsNull = is_nullable::NotNull;
}

impl SingleValue for Unstated {}

impl HasSqlType<Unstated> for Pg {
    fn metadata(_: &mut Self::MetadataLookup) -> PgTypeMetadata {
        PgTypeMetadata::new(0, 0)
    }
}

impl ToSql<Unstated, Pg> for str {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        out.write_all(self.as_bytes())?;
        Ok(IsNull::No)
    }
}

impl ToSql<Uuid, Pg> for UuidBytes {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        out.write_all(&self.0)?;
        Ok(IsNull::No)
    }
}
