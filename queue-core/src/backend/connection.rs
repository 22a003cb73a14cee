//! [`QueueBackend`] is a database that can hold a queue, [`QueueConnection`] a connection to one. Their methods are in
//! their supertraits, one trait for each task.
//!
//! Such a trait has the backend as its parameter. So a database implements it once, for all types of its sessions, and
//! the compiler sees that no other database's implementation overlaps.

use std::time::Duration;

use diesel::backend::Backend;
use diesel::connection::{BoxableConnection, LoadConnection};
use diesel::r2d2::{ConnectionManager, PooledConnection, R2D2Connection};
use diesel::sql_types::{BigInt, HasSqlType, Integer, Nullable, Text};

use super::bind::Binds;
use super::dialect::{ChangeSql, IndexSql, LaneSql, LockSql, RoundTrips, TextSql, TimeSql};
use super::error_class::ErrorClasses;
use super::exclusion::Exclusion;
use super::one_round_trip::OneRoundTrip;
use super::own_connection::own;
use super::session_setup::SessionSetup;
use super::settings::SessionSettings;
use super::statement::Loads;
use super::target::{Schema, Step, Target};
use super::transactions::Transactions;
use crate::row::{DetailsRow, DetailsType, Instant, PauseRow, PauseType, TimestampUtc};

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
    + LaneSql
    + LockSql
    + IndexSql
    + ChangeSql
    + RoundTrips
    + 'static
{
    /// How long a handler may hold the message's transaction by default.
    const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

    /// A type of its sessions.
    type First: Schema + R2D2Connection<Backend = Self> + Send + 'static;

    /// The other type of its sessions; the same one if only one client is switched on.
    type Last: Schema + R2D2Connection<Backend = Self> + Send + 'static;

    /// Returns the steps that add the queue to a table that has none of it.
    fn steps(target: &Target) -> Vec<Step> {
        Self::First::steps(target)
    }

    /// Returns the step that creates the control table.
    fn control_step() -> Step {
        Self::First::control_step()
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
    + Loads<Nullable<TimestampUtc>, Option<Instant>>
    + Loads<(Text, Integer), (String, i32)>
    + Loads<(Text, BigInt), (String, i64)>
    + Loads<DetailsType, DetailsRow>
    + Loads<PauseType, PauseRow>
    + R2D2Connection
    + SessionSetup
    + Transactions
    + OneRoundTrip
    + ErrorClasses
    + Exclusion
    + Schema
    + SessionSettings
    + Send
    + 'static
{
}

/// A [`QueueConnection`], or a pooled one.
///
/// ```
/// use queueable::{AllFilters, AsQueueConnection, Error, Queue, Queueable, ReadOn};
///
/// fn due<Q, C>(connection: &mut C) -> Result<i64, Error>
/// where
///     Q: Queueable + 'static,
///     C: AsQueueConnection,
///     Queue<Q, AllFilters>: ReadOn<C::Connection>,
/// {
///     Q::queue().due().count(connection)
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a connection that a queue can use",
    note = "use `PgConnection`, `MysqlConnection` or `SqliteConnection`, alone or from a pool, and switch on the feature of queueable \
            with that name",
    note = "generic code names `C: queueable::AsQueueConnection`"
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
