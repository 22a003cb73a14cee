//! The tests' database: MySQL and MariaDB through diesel-async.

#[path = "mariadb.rs"]
mod mariadb;

pub(crate) use self::mariadb::*;

/// The connection that the tests of this root use.
pub(crate) type Conn = queueable::AsyncMysqlSession;

/// The connection that it lends to async code.
pub(crate) type AsyncConn = diesel_async::AsyncMysqlConnection;

/// Whether the worker sees that the database has refused a handler's COMMIT in a group, also if the handler ignores that.
pub(crate) const SEES_REFUSED_COMMITS: bool = false;
