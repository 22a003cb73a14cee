//! A session on PostgreSQL, whichever client speaks to the server.

use std::collections::BTreeSet;

use diesel::connection::LoadConnection;
use diesel::pg::Pg;
use diesel::r2d2::R2D2Connection;
use diesel::result::QueryResult;

#[cfg(feature = "async-postgres")]
pub use self::tokio_postgres::AsyncPgSession;

/// A session on PostgreSQL. All that the queue does on one is written once, for every type of this trait; here are the
/// few things that the clients do differently.
pub trait PgSession: LoadConnection<Backend = Pg> + R2D2Connection + Send + 'static {
    /// Begins a transaction by this text.
    ///
    /// # Errors
    ///
    /// `AlreadyInTransaction` if one is open; otherwise the server's error, and no transaction is counted.
    fn begin_with(&mut self, begin: &str) -> QueryResult<()>;

    /// Whether the client sees in each answer of the server whether a transaction is open.
    const SEES_END_OF_TRANSACTION: bool;

    /// Notes that the last text has committed the transaction, for a client that does not see this in the server's answer:
    /// it would count the transaction as open, and begin no other.
    fn has_committed(&mut self) {}

    /// Returns the channels with notifications since the last call, without asking the server. There may be thousands of
    /// notifications on one channel.
    ///
    /// # Errors
    ///
    /// If the connection is lost.
    fn notified_channels(&mut self) -> QueryResult<BTreeSet<String>>;
}

/// Diesel's own connection, through libpq.
#[cfg(feature = "postgres")]
mod libpq {
    use std::collections::BTreeSet;

    use diesel::connection::AnsiTransactionManager;
    use diesel::pg::PgConnection;
    use diesel::result::QueryResult;

    use super::PgSession;
    use crate::backend::connection::QueueConnection;

    impl PgSession for PgConnection {
        const SEES_END_OF_TRANSACTION: bool = true;

        fn begin_with(&mut self, begin: &str) -> QueryResult<()> {
            AnsiTransactionManager::begin_transaction_sql(self, begin)
        }

        fn notified_channels(&mut self) -> QueryResult<BTreeSet<String>> {
            self.notifications_iter().map(|notification| Ok(notification?.channel)).collect()
        }
    }

    impl QueueConnection for PgConnection {}
}

/// The connection of diesel-async and tokio-postgres.
#[cfg(feature = "async-postgres")]
mod tokio_postgres {
    use std::collections::BTreeSet;
    use std::pin::pin;

    use diesel::result::{DatabaseErrorKind, Error, QueryResult};
    use diesel_async::AsyncPgConnection;
    use futures_util::{FutureExt, StreamExt};

    use super::PgSession;
    use crate::backend::connection::QueueConnection;
    use crate::backend::diesel_async::{AsyncClient, DieselAsyncSession};

    /// A session of a poller on PostgreSQL through [`AsyncPgConnection`]: no libpq is needed.
    ///
    /// ```no_run
    /// # use diesel::prelude::*;
    /// use diesel_async::{AsyncConnection, AsyncPgConnection};
    /// use queueable::{Async, AsyncPgSession, HandlerResult, Message, Outcome, Poller, Queueable};
    ///
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # async fn charge(_: &Payment, _: &mut Message<'_, AsyncPgConnection>) -> HandlerResult { Ok(Outcome::Done) }
    /// # fn main() -> Result<(), queueable::Error> {
    /// let connect = || AsyncPgSession::open(AsyncPgConnection::establish("postgres://localhost/app"));
    /// let handle = Poller::with_own_connections(connect).serve::<Payment>(Async(charge)).start()?;
    /// # Ok(()) }
    /// ```
    ///
    /// The URL is one of [tokio-postgres](https://docs.rs/tokio-postgres/latest/tokio_postgres/config/struct.Config.html):
    /// it knows no `PGPASSWORD` and no password file, and [`establish`](diesel::Connection::establish) speaks no TLS. Open a
    /// session with TLS by [`open`](DieselAsyncSession::open).
    pub type AsyncPgSession = DieselAsyncSession<AsyncPgConnection>;

    impl AsyncClient for AsyncPgConnection {
        // tokio-postgres reads and drops the answer.
        const LEAVES_ANSWERS: bool = false;

        async fn is_in_step(&mut self) -> bool {
            true
        }
    }

    impl PgSession for AsyncPgSession {
        const SEES_END_OF_TRANSACTION: bool = false;

        fn begin_with(&mut self, begin: &str) -> QueryResult<()> {
            self.begin_by_text(begin)
        }

        fn has_committed(&mut self) {
            self.forget_transactions_above(0);
        }

        fn notified_channels(&mut self) -> QueryResult<BTreeSet<String>> {
            self.run(async |connection| {
                // The client has not read from the socket since the last statement. The first pause reads, the second lets the
                // connection's task take the messages, and the third is for what it left.
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                }
                let mut channels = BTreeSet::new();
                let mut notifications = pin!(connection.notifications_stream());
                loop {
                    match notifications.next().now_or_never() {
                        None => return Ok(channels),
                        Some(Some(notification)) => {
                            channels.insert(notification?.channel);
                        }
                        Some(None) => return Err(closed()),
                    }
                }
            })
        }
    }

    impl QueueConnection for AsyncPgSession {}

    /// Returns the error of a connection whose task has ended.
    fn closed() -> Error {
        Error::DatabaseError(DatabaseErrorKind::ClosedConnection, Box::new("connection closed".to_owned()))
    }
}
