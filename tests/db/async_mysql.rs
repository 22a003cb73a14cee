//! The tests' database: MySQL and MariaDB through diesel-async.

#[path = "mariadb.rs"]
mod mariadb;

pub(crate) use self::mariadb::*;

/// The connection that the tests of this root use.
pub(crate) type Conn = queueable::AsyncMysqlSession;

/// The connection that it lends to async code.
pub(crate) type AsyncConn = diesel_async::AsyncMysqlConnection;
