//! A session on MySQL or MariaDB, whichever client speaks to the server.

use diesel::connection::LoadConnection;
use diesel::mysql::Mysql;
use diesel::r2d2::R2D2Connection;
use diesel::result::QueryResult;

#[cfg(feature = "async-mysql")]
pub use self::mysql_async::AsyncMysqlSession;

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

/// Diesel's own connection, through libmysqlclient or libmariadb.
#[cfg(feature = "mysql")]
mod libmysqlclient {
    use diesel::connection::AnsiTransactionManager;
    use diesel::mysql::MysqlConnection;
    use diesel::result::QueryResult;

    use super::MysqlSession;
    use crate::backend::connection::QueueConnection;

    impl MysqlSession for MysqlConnection {
        fn begin_with(&mut self, begin: &str) -> QueryResult<()> {
            AnsiTransactionManager::begin_transaction_sql(self, begin)
        }
    }

    impl QueueConnection for MysqlConnection {}
}

/// The connection of diesel-async and mysql_async.
#[cfg(feature = "async-mysql")]
mod mysql_async {
    use std::time::Duration;

    use diesel::result::QueryResult;
    use diesel::sql_types::BigInt;
    use diesel::{IntoSql, QueryDsl};
    use diesel_async::{AsyncMysqlConnection, RunQueryDsl};
    use tokio::time::timeout;

    use super::MysqlSession;
    use crate::backend::connection::QueueConnection;
    use crate::backend::connection::{ErrorClass, ErrorClasses};
    use crate::backend::diesel_async::{AsyncClient, DieselAsyncSession};

    /// A session of a poller on MySQL or MariaDB through [`AsyncMysqlConnection`]: neither libmysqlclient nor libmariadb is
    /// needed.
    ///
    /// ```no_run
    /// # use diesel::prelude::*;
    /// use diesel_async::{AsyncConnection, AsyncMysqlConnection};
    /// use queueable::{Async, AsyncMysqlSession, HandlerResult, Message, Outcome, Poller, Queueable};
    ///
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # async fn charge(_: &Payment, _: &mut Message<'_, AsyncMysqlConnection>) -> HandlerResult { Ok(Outcome::Done) }
    /// # fn main() -> Result<(), queueable::Error> {
    /// let connect = || AsyncMysqlSession::open(AsyncMysqlConnection::establish("mysql://app@localhost/app"));
    /// let handle = Poller::with_own_connections(connect).serve::<Payment>(Async(charge)).start()?;
    /// # Ok(()) }
    /// ```
    ///
    /// The URL is one of [mysql_async](https://docs.rs/mysql_async/latest/mysql_async/struct.Opts.html#method.from_url).
    /// A connection that [`open`](DieselAsyncSession::open) gets has to be made with `client_found_rows(true)`, as `establish`
    /// does: the queue counts the rows that an update finds.
    pub type AsyncMysqlSession = DieselAsyncSession<AsyncMysqlConnection>;

    /// How long a session waits for its number.
    const PATIENCE: Duration = Duration::from_secs(3);

    impl AsyncClient for AsyncMysqlConnection {
        // mysql_async takes it for the answer to the next statement, and the queue's statements would believe it.
        const LEAVES_ANSWERS: bool = true;

        /// Asks for a number, which comes back at once if no other answer is before it.
        async fn is_in_step(&mut self) -> bool {
            let number = fastrand::i64(..);
            // A handler may have set `sql_select_limit` to 0.
            let same = diesel::select(number.into_sql::<BigInt>()).limit(1);
            match timeout(PATIENCE, same.get_result::<i64>(self)).await {
                Ok(Ok(answer)) => answer == number,
                // A lost connection leaves nothing to be believed.
                Ok(Err(error)) => AsyncMysqlSession::classify(&error) == ErrorClass::ConnectionLost,
                // The client may wait for more of an answer that it has misread.
                Err(_) => false,
            }
        }
    }

    impl MysqlSession for AsyncMysqlSession {
        fn begin_with(&mut self, begin: &str) -> QueryResult<()> {
            self.begin_by_text(begin)
        }
    }

    impl QueueConnection for AsyncMysqlSession {}
}
