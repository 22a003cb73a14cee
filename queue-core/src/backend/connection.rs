//! [`QueueBackend`] is a database that can hold a queue, [`QueueConnection`] a connection to one. Their methods are in
//! their supertraits, one trait for each task.
//!
//! Such a trait has the backend as its parameter. So a database implements it once, for all types of its sessions, and
//! the compiler sees that no other database's implementation overlaps.

use std::any::TypeId;
use std::time::Duration;

use diesel::Connection;
use diesel::backend::Backend;
use diesel::connection::{BoxableConnection, LoadConnection};
use diesel::query_builder::AstPass;
use diesel::r2d2::{ConnectionManager, PooledConnection, R2D2Connection};
use diesel::result::{DatabaseErrorInformation, DatabaseErrorKind, Error, QueryResult};
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, Binary, HasSqlType, Integer, Nullable, Text};

use super::dialect::{Dialect, TextSql, TimeSql};
use super::examination::Examination;
use super::schema::{Holds, OwnTable, Schema, Step, Target};
use super::setup::{Exclusion, SessionSettings, SessionSetup};
use super::statement::{AuditRow, AuditType, Loads};
use super::transactions::{OneRoundTrip, Transactions};
use crate::row::{
    ControlRow, ControlType, CountRow, CountRowType, DetailsRow, DetailsType, GlanceRow, GlanceRowType, Instant,
    MinutesRow, MinutesType, PendingRow, PendingRowType, PollerRow, PollerType, SumRow, SumRowType, TimestampUtc,
};

/// A database that can hold a queue.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a database that can hold a queue",
    label = "no database of a queue",
    note = "use a connection of one database, `PgConnection`, `MysqlConnection` or `SqliteConnection`, with queueable's \
            feature of that name; for a `MultiConnection`, docs/into-your-application.md has \"One build for several databases\""
)]
pub trait QueueBackend:
    Backend<QueryBuilder: Default>
    + Binds
    + Default
    + HasSqlType<Text>
    + HasSqlType<Integer>
    + HasSqlType<BigInt>
    + HasSqlType<TimestampUtc>
    + TimeSql
    + TextSql
    + Dialect
    + 'static
{
    /// How long a handler may hold the message's transaction by default.
    const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

    /// A type of its sessions.
    type First: Schema + R2D2Connection<Backend = Self> + Send + 'static;

    /// The other type of its sessions; the same one if only one client is switched on.
    type Last: Schema + R2D2Connection<Backend = Self> + Send + 'static;

    /// Tells what a SQL type of this database alone holds; `None` if the library does not know it.
    fn own_type(_id: TypeId) -> Option<Holds> {
        None
    }

    /// Returns the steps that add the queue to a table that has none of it.
    fn steps(target: &Target) -> Vec<Step> {
        Self::First::steps(target)
    }

    /// Returns the step that creates a table of the library's own.
    fn own_step(table: OwnTable) -> Step {
        Self::First::own_step(table)
    }

    /// Returns the queue's connection behind the one on which a migration runs; `None` if it is another's.
    fn own_connection(connection: &mut dyn BoxableConnection<Self>) -> Option<&mut dyn Schema> {
        let is_first =
            connection.is::<Self::First>() || connection.is::<PooledConnection<ConnectionManager<Self::First>>>();
        if is_first { own::<Self::First, _>(connection) } else { own::<Self::Last, _>(connection) }
    }
}

/// A connection that a queue can use.
///
/// It is implemented for Diesel's three synchronous connections, and with the features `async-postgres` and `async-mysql`
/// for `AsyncPgSession` and `AsyncMysqlSession`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a connection that a queue can use",
    note = "use `PgConnection`, `MysqlConnection` or `SqliteConnection`, and switch on the feature of queueable with that name; through \
            diesel-async, `AsyncPgSession` or `AsyncMysqlSession`",
    note = "beside a `MultiConnection`, make a pool of the connection in one of its variants, as the program's URL says: \
            docs/into-your-application.md shows it under \"One build for several databases\""
)]
pub trait QueueConnection:
    LoadConnection<Backend: QueueBackend>
    + Loads<Text, String>
    + Loads<BigInt, i64>
    + Loads<Nullable<Text>, Option<String>>
    + Loads<Nullable<BigInt>, Option<i64>>
    + Loads<Nullable<TimestampUtc>, Option<Instant>>
    + Loads<(Text, Integer), (String, i32)>
    + Loads<(Integer, Text, Integer), (i32, String, i32)>
    + Loads<(Text, BigInt), (String, i64)>
    + Loads<DetailsType, DetailsRow>
    + Loads<CountRowType, CountRow>
    + Loads<PendingRowType, PendingRow>
    + Loads<GlanceRowType, GlanceRow>
    + Loads<SumRowType, SumRow>
    + Loads<MinutesType, MinutesRow>
    + Loads<ControlType, ControlRow>
    + Loads<PollerType, PollerRow>
    + Loads<AuditType, AuditRow>
    + R2D2Connection
    + SessionSetup
    + Transactions
    + OneRoundTrip
    + ErrorClasses
    + Exclusion
    + Schema
    + SessionSettings
    + Examination
    + Send
    + 'static
{
}

/// A [`QueueConnection`], or a pooled one.
///
/// ```
/// use queueable::bounds::{AllFilters, ReadsRows};
/// use queueable::{Error, Queueable};
///
/// fn due<Q, C>(connection: &mut C) -> Result<i64, Error>
/// where
///     Q: Queueable + 'static,
///     C: ReadsRows<Q, AllFilters>,
/// {
///     Q::queue().due().count(connection)
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a connection that a queue can use",
    note = "use `PgConnection`, `MysqlConnection` or `SqliteConnection`, alone or from a pool, and switch on the feature of queueable \
            with that name",
    note = "generic code names `C: queueable::bounds::AsQueueConnection`"
)]
pub trait AsQueueConnection {
    /// The connection behind it.
    type Connection: QueueConnection;

    /// Returns the connection.
    fn as_queue_connection(&mut self) -> &mut Self::Connection;
}

#[diagnostic::do_not_recommend]
impl<C: QueueConnection> AsQueueConnection for C {
    type Connection = C;

    fn as_queue_connection(&mut self) -> &mut C {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<C: QueueConnection> AsQueueConnection for PooledConnection<ConnectionManager<C>> {
    type Connection = C;

    fn as_queue_connection(&mut self) -> &mut C {
        self
    }
}

/// Returns the connection, if it is of this type, pooled or not.
pub(crate) fn own<C, DB>(connection: &mut dyn BoxableConnection<DB>) -> Option<&mut dyn Schema>
where
    C: Schema + R2D2Connection<Backend = DB> + Send + 'static,
    DB: Backend + 'static,
{
    if connection.is::<C>() {
        return connection.downcast_mut::<C>().map(|own| own as &mut dyn Schema);
    }
    let pooled: &mut PooledConnection<ConnectionManager<C>> = connection.downcast_mut()?;
    Some(&mut **pooled)
}

/// The cause of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// The session is lost.
    ConnectionLost,
    /// A conflict with other transactions: deadlock, serialization failure, lock timeout, a changed plan. The same work
    /// may well succeed a moment later, so no try is used.
    Conflict,
    /// The server has no room left to write. The message is not the cause, and the error ends when there is room again.
    /// No try is used.
    NoRoom,
    /// Anything else.
    Other,
}

/// The meaning of a database's errors.
pub trait ErrorClasses<DB = <Self as Connection>::Backend>: Connection {
    /// Classifies an error.
    fn classify(error: &Error) -> ErrorClass {
        match error {
            Error::BrokenTransactionManager => ErrorClass::ConnectionLost,
            Error::RollbackErrorOnCommit { commit_error, .. } => Self::classify(commit_error),
            Error::DatabaseError(DatabaseErrorKind::ClosedConnection, _) => ErrorClass::ConnectionLost,
            Error::DatabaseError(DatabaseErrorKind::SerializationFailure, _) => ErrorClass::Conflict,
            Error::DatabaseError(kind, information) => Self::classify_answer(kind, &**information),
            _ => ErrorClass::Other,
        }
    }

    /// Classifies an answer of the server or of its client.
    ///
    /// Diesel passes on a kind for a few errors, and the message for all. A message may quote a user's text, so it is
    /// compared as a whole, or by its beginning and its end, and never searched.
    fn classify_answer(kind: &DatabaseErrorKind, answer: &dyn DatabaseErrorInformation) -> ErrorClass;

    /// Tells whether the database refuses every write: a standby, a server or a file that is read only.
    fn refuses_writes(error: &Error) -> bool;

    /// Tells whether the account lacks a right, on databases that hide what the account may not use.
    fn denies_right(_error: &Error) -> bool {
        false
    }

    /// Tells whether the server has ended a statement because it took longer than the session's limit allows.
    fn is_timeout(_error: &Error) -> bool {
        false
    }

    /// Tells whether the server has rolled the whole transaction back with this error.
    fn rolls_back(_error: &Error) -> bool {
        false
    }

    /// Tells whether a transaction may be committed although its COMMIT has ended with this error, because the answer
    /// was lost.
    fn leaves_commit_in_doubt(error: &Error) -> bool {
        Self::classify(error) == ErrorClass::ConnectionLost
    }

    /// Tells whether this is the error of a group's COMMIT that is refused because the group's cursor is gone, see
    /// [`super::dialect::Dialect::REFUSES_COMMITS`].
    fn lacks_group_cursor(_error: &Error) -> bool {
        false
    }
}

/// Tells whether a message says that a pooler lends a session to several connections: a prepared statement is another
/// connection's, or is lost.
pub(crate) fn is_of_a_pooler(text: &str) -> bool {
    let is_of_a_statement = text.contains("prepared statement \"")
        && (text.ends_with("already exists")
            || text.ends_with("does not exist")
            || text.contains("bind message supplies"));
    is_of_a_statement || text.contains("statement pooling mode")
}

/// Returns the message of the server, or of its client.
pub(crate) fn message_of(error: &Error) -> Option<&str> {
    let Error::DatabaseError(_, information) = error else { return None };
    Some(information.message())
}

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
