//! The tests' database: PostgreSQL through diesel-async.

#[path = "postgresql.rs"]
mod postgresql;

pub(crate) use self::postgresql::*;

/// The connection that the tests of this root use.
pub(crate) type Conn = queueable::AsyncPgSession;

/// The connection that it lends to async code.
pub(crate) type AsyncConn = diesel_async::AsyncPgConnection;
