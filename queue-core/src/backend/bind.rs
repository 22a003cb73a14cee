//! The values that the queue's statements bind.

use diesel::backend::Backend;
use diesel::query_builder::AstPass;
use diesel::result::QueryResult;
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, Binary, HasSqlType, Integer, Text};

use crate::row::{Instant, TimestampUtc};

/// A backend on which the values of the queue's columns can be bound. It is implemented for every such backend.
pub trait Binds: Backend {
    /// Binds a text.
    fn bind_text<'b>(out: &mut AstPass<'_, 'b, Self>, text: &'b str) -> QueryResult<()>;

    /// Binds a 32 bit integer.
    fn bind_integer<'b>(out: &mut AstPass<'_, 'b, Self>, integer: &'b i32) -> QueryResult<()>;

    /// Binds a 64 bit integer.
    fn bind_big_integer<'b>(out: &mut AstPass<'_, 'b, Self>, integer: &'b i64) -> QueryResult<()>;

    /// Binds bytes.
    fn bind_bytes<'b>(out: &mut AstPass<'_, 'b, Self>, bytes: &'b [u8]) -> QueryResult<()>;

    /// Binds a time.
    fn bind_time<'b>(out: &mut AstPass<'_, 'b, Self>, time: &'b Instant) -> QueryResult<()>;
}

impl<DB> Binds for DB
where
    DB: Backend
        + HasSqlType<Text>
        + HasSqlType<Integer>
        + HasSqlType<BigInt>
        + HasSqlType<Binary>
        + HasSqlType<TimestampUtc>,
    str: ToSql<Text, DB>,
    i32: ToSql<Integer, DB>,
    i64: ToSql<BigInt, DB>,
    [u8]: ToSql<Binary, DB>,
    Instant: ToSql<TimestampUtc, DB>,
{
    fn bind_text<'b>(out: &mut AstPass<'_, 'b, DB>, text: &'b str) -> QueryResult<()> {
        out.push_bind_param::<Text, str>(text)
    }

    fn bind_integer<'b>(out: &mut AstPass<'_, 'b, DB>, integer: &'b i32) -> QueryResult<()> {
        out.push_bind_param::<Integer, i32>(integer)
    }

    fn bind_big_integer<'b>(out: &mut AstPass<'_, 'b, DB>, integer: &'b i64) -> QueryResult<()> {
        out.push_bind_param::<BigInt, i64>(integer)
    }

    fn bind_bytes<'b>(out: &mut AstPass<'_, 'b, DB>, bytes: &'b [u8]) -> QueryResult<()> {
        out.push_bind_param::<Binary, [u8]>(bytes)
    }

    fn bind_time<'b>(out: &mut AstPass<'_, 'b, DB>, time: &'b Instant) -> QueryResult<()> {
        out.push_bind_param::<TimestampUtc, Instant>(time)
    }
}
