//! The tests' database: PostgreSQL through diesel-async.

#[path = "postgresql.rs"]
mod postgresql;

pub(crate) use self::postgresql::*;

/// The connection that the tests of this root use.
pub(crate) type Conn = queueable::AsyncPgSession;

/// The connection that it lends to async code.
pub(crate) type AsyncConn = diesel_async::AsyncPgConnection;

/// Whether the worker sees that the database has refused a handler's COMMIT in a group, also if the handler ignores that.
pub(crate) const SEES_REFUSED_COMMITS: bool = false;
