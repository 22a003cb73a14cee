//! A session on MySQL or MariaDB, whichever client speaks to the server.

use diesel::connection::LoadConnection;
use diesel::mysql::Mysql;
use diesel::r2d2::R2D2Connection;
use diesel::result::QueryResult;

/// A session on MySQL or MariaDB. All that the queue does on one is written once, for every type of this trait; here is
/// the one thing that the clients do differently.
pub trait MysqlSession: LoadConnection<Backend = Mysql> + R2D2Connection + Send + 'static {
    /// Begins a transaction by this text.
    ///
    /// # Errors
    ///
    /// `AlreadyInTransaction` if one is open; otherwise the server's error, and no transaction is counted.
    fn begin_with(&mut self, begin: &str) -> QueryResult<()>;
}
