//! A session on PostgreSQL through diesel-async, as a connection on which the queue's statements run.

use std::fmt;
use std::future::{self, Future};
use std::ops::DerefMut;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;

use diesel::connection::{
    CacheSize, Connection, ConnectionSealed, Instrumentation, LoadConnection, SimpleConnection, TransactionDepthChange,
    TransactionManager, TransactionManagerStatus,
};
use diesel::expression::QueryMetadata;
use diesel::migration::{CREATE_MIGRATIONS_TABLE, MigrationConnection};
use diesel::pg::Pg;
use diesel::query_builder::{Query, QueryFragment, QueryId};
use diesel::r2d2::R2D2Connection;
use diesel::result::{ConnectionError, ConnectionResult, DatabaseErrorKind, Error, QueryResult};
use diesel_async::pooled_connection::PoolableConnection;
use diesel_async::{
    AnsiTransactionManager, AsyncConnection, AsyncConnectionCore, AsyncPgConnection, SimpleAsyncConnection,
    TransactionManager as AsyncTransactionManager,
};
use futures_util::{FutureExt, StreamExt};

use super::pg_session::PgSession;
use crate::backend::async_session::{AsyncSession, run_on};
use crate::backend::session_runtime::SessionRuntime;
use crate::error::ConnectFailure;

/// A session of a poller on PostgreSQL through [`AsyncPgConnection`]: no libpq is needed.
///
/// It is a connection like Diesel's own: the queue's statements, migrations and reports run on it, and an r2d2 pool of it
/// serves a poller. Each has a small runtime of its own, which runs on the thread that waits for a statement. So no
/// statement wakes another thread, and no runtime has to exist where one is opened. The application's own
/// `AsyncPgConnection`s need nothing of this: [`due_now`](crate::Queueable::due_now) and the queue's columns are values
/// and expressions of Diesel there as everywhere.
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
/// it knows no `PGPASSWORD` and no password file, and [`establish`](Connection::establish) speaks no TLS. Open a session
/// with TLS by [`open`](AsyncPgSession::open).
///
/// # Panics
///
/// Every call that reaches the server waits for it, and so panics on a thread that runs async tasks. There,
/// [`on`](AsyncPgSession::on) makes calls on an `AsyncPgConnection`.
pub struct AsyncPgSession {
    // One of its own in a box, or one of the application's, which goes back to its pool when it is dropped.
    connection: Box<dyn DerefMut<Target = AsyncPgConnection> + Send>,
    // After the connection, whose task ends with the runtime.
    runtime: SessionRuntime,
}

impl AsyncPgSession {
    /// Opens a session on the connection that a future makes. The future runs on the session's own runtime.
    ///
    /// In the closure of [`Poller::with_own_connections`](crate::Poller::with_own_connections) it opens the poller's
    /// connections, for example by the manager of the application's pool: `pool.manager().create()` of deadpool,
    /// `pool.dedicated_connection()` of bb8.
    ///
    /// A connection that the application has made elsewhere works too, as long as the runtime on which it was made goes
    /// on. One from a pool has to be taken out of the pool.
    ///
    /// ```no_run
    /// use diesel::prelude::*;
    /// use diesel_async::{AsyncConnection, AsyncPgConnection};
    /// use queueable::AsyncPgSession;
    ///
    /// let mut session = AsyncPgSession::open(AsyncPgConnection::establish("postgres://localhost/app"))?;
    /// diesel::select(1.into_sql::<diesel::sql_types::Integer>()).execute(&mut session)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The future's error without passwords, or the operating system's if it has no room for another runtime.
    pub fn open<E: fmt::Display>(
        connection: impl Future<Output = Result<AsyncPgConnection, E>>,
    ) -> Result<Self, ConnectFailure> {
        let runtime = SessionRuntime::new().map_err(|error| ConnectFailure::new(&error))?;
        let connection = runtime.block_on(connection).map_err(|error| ConnectFailure::new(&error))?;
        Ok(AsyncPgSession { connection: Box::new(Box::new(connection)), runtime })
    }

    /// Runs synchronous calls on an async application's connection: operations, reports, migrations, checks. They block a
    /// thread of tokio's for blocking calls, and the task that awaits this blocks none.
    ///
    /// The connection is one from a pool, or a `Box` with an [`AsyncPgConnection`]. It is dropped at the end, and so goes
    /// back to its pool. A transaction that the calls leave open, as after a panic, is rolled back before.
    ///
    /// ```no_run
    /// # use diesel::prelude::*;
    /// use diesel_async::{AsyncConnection, AsyncPgConnection};
    /// use queueable::{AsyncPgSession, Queueable};
    ///
    /// # diesel::table! { payments (id) { id -> BigInt, company_id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let connection = AsyncPgConnection::establish("postgres://localhost/app").await?; // or `pool.get().await?`
    /// let retried = AsyncPgSession::on(Box::new(connection), |session| {
    ///     Payment::queue().filter(payments::company_id.eq(3345)).retry_now(session)
    /// })
    /// .await?;
    /// println!("{retried} payments are tried again");
    /// # Ok(()) }
    /// ```
    ///
    /// If the future is dropped, the calls go on to their end all the same.
    ///
    /// # Panics
    ///
    /// If the calls panic, or no runtime of tokio's polls the future.
    pub async fn on<P, T>(connection: P, calls: impl FnOnce(&mut AsyncPgSession) -> T + Send + 'static) -> T
    where
        P: DerefMut<Target = AsyncPgConnection> + Send + 'static,
        T: Send + 'static,
    {
        let runtime = SessionRuntime::of_the_application();
        let mut session = AsyncPgSession { connection: Box::new(connection), runtime };
        let open = session.open_transactions();
        let on_thread = move || {
            let answer = catch_unwind(AssertUnwindSafe(|| calls(&mut session)));
            session.roll_back_above(open);
            answer.unwrap_or_else(|panic| resume_unwind(panic))
        };
        match tokio::task::spawn_blocking(on_thread).await {
            Ok(answer) => answer,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime shuts down, and drops this future too.
                Err(_) => future::pending().await,
            },
        }
    }

    /// Runs async code on the session's connection, and waits for it.
    ///
    /// ```no_run
    /// use diesel::prelude::*;
    /// use diesel_async::RunQueryDsl;
    /// use queueable::AsyncPgSession;
    ///
    /// let mut session = AsyncPgSession::establish("postgres://localhost/app")?;
    /// let one: i32 = session.run(async |connection| {
    ///     diesel::select(1.into_sql::<diesel::sql_types::Integer>()).get_result(connection).await
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If a transaction is open, and the code has begun another one in it that it has not ended, because it has dropped a
    /// future. In a handler, this is a failure of the attempt, which undoes everything.
    pub fn run<T>(&mut self, work: impl AsyncFnOnce(&mut AsyncPgConnection) -> T) -> T {
        run_on(self, async |connection| Some(work(connection).await)).expect("nobody drops it")
    }
}

impl AsyncSession for AsyncPgSession {
    type AsyncConnection = AsyncPgConnection;

    fn async_connection(&mut self) -> &mut AsyncPgConnection {
        &mut self.connection
    }

    fn runtime(&self) -> SessionRuntime {
        self.runtime.clone()
    }

    fn open_transactions(&mut self) -> Option<u32> {
        let status = <SessionTransactions as TransactionManager<_>>::transaction_manager_status_mut(self);
        status.transaction_depth().ok().flatten().map(u32::from)
    }

    fn forget_transactions_above(&mut self, open: u32) -> bool {
        if !self.was_given_up() && self.open_transactions().is_none_or(|now| now <= open) {
            return false;
        }
        *self.connection.transaction_state() = AnsiTransactionManager::default();
        let status = Transactions::transaction_manager_status_mut(&mut **self.connection);
        if let TransactionManagerStatus::Valid(status) = status {
            // An increase of a depth that is known cannot fail.
            (0..open).for_each(|_| drop(status.change_transaction_depth(TransactionDepthChange::IncreaseDepth)));
        }
        true
    }
}

impl AsyncPgSession {
    /// Rolls back the transactions above so many.
    fn roll_back_above(&mut self, open: Option<u32>) {
        // After a statement that was given up, nobody knows what is open. The pools of diesel-async close the connection.
        while !self.was_given_up() && self.open_transactions() > open {
            if SessionTransactions::rollback_transaction(self).is_err() {
                return;
            }
        }
    }

    /// Tells whether the future of a statement that begins or ends a transaction was dropped.
    fn was_given_up(&mut self) -> bool {
        // diesel-async tells this and an open transaction by one answer, so no transaction is open for this question.
        let manager = &mut **self.connection;
        let status = std::mem::take(Transactions::transaction_manager_status_mut(manager));
        let was_given_up = Transactions::is_broken_transaction_manager(manager);
        *Transactions::transaction_manager_status_mut(manager) = status;
        was_given_up
    }
}

impl PgSession for AsyncPgSession {
    fn begin_with(&mut self, begin: &str) -> QueryResult<()> {
        self.runtime.block_on(AnsiTransactionManager::begin_transaction_sql(&mut **self.connection, begin))
    }

    fn notified_channels(&mut self) -> QueryResult<Vec<String>> {
        let AsyncPgSession { connection, runtime } = self;
        runtime.block_on(async {
            // Nobody has read from the socket since the last statement. The first pause reads, the second lets the
            // connection's task take the messages, and the third is for what it left.
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            let mut channels = Vec::new();
            let mut notifications = pin!(connection.notifications_stream());
            loop {
                match notifications.next().now_or_never() {
                    None => return Ok(channels),
                    Some(Some(notification)) => {
                        let channel = notification?.channel;
                        // There may be thousands of equal ones.
                        if !channels.contains(&channel) {
                            channels.push(channel);
                        }
                    }
                    Some(None) => return Err(closed()),
                }
            }
        })
    }
}

/// Returns the error of a connection whose task has ended.
fn closed() -> Error {
    Error::DatabaseError(DatabaseErrorKind::ClosedConnection, Box::new("connection closed".to_owned()))
}

impl SimpleConnection for AsyncPgSession {
    fn batch_execute(&mut self, query: &str) -> QueryResult<()> {
        self.runtime.block_on(self.connection.batch_execute(query))
    }
}

impl ConnectionSealed for AsyncPgSession {}

impl Connection for AsyncPgSession {
    type Backend = Pg;
    type TransactionManager = SessionTransactions;

    fn establish(database_url: &str) -> ConnectionResult<Self> {
        let runtime = SessionRuntime::new().map_err(|error| ConnectionError::BadConnection(error.to_string()))?;
        let connection = runtime.block_on(AsyncPgConnection::establish(database_url))?;
        Ok(AsyncPgSession { connection: Box::new(Box::new(connection)), runtime })
    }

    fn execute_returning_count<T>(&mut self, source: &T) -> QueryResult<usize>
    where
        T: QueryFragment<Pg> + QueryId,
    {
        self.runtime.block_on(self.connection.execute_returning_count(source))
    }

    fn transaction_state(&mut self) -> &mut AnsiTransactionManager {
        self.connection.transaction_state()
    }

    fn instrumentation(&mut self) -> &mut dyn Instrumentation {
        self.connection.instrumentation()
    }

    fn set_instrumentation(&mut self, instrumentation: impl Instrumentation) {
        self.connection.set_instrumentation(instrumentation);
    }

    fn set_prepared_statement_cache_size(&mut self, size: CacheSize) {
        self.connection.set_prepared_statement_cache_size(size);
    }
}

impl LoadConnection for AsyncPgSession {
    // All rows at once, as libpq gives them: one wait for each statement, and not one for each row.
    type Cursor<'conn, 'query> = std::vec::IntoIter<QueryResult<Self::Row<'conn, 'query>>>;
    type Row<'conn, 'query> = <AsyncPgConnection as AsyncConnectionCore>::Row<'conn, 'query>;

    fn load<'conn, 'query, T>(&'conn mut self, source: T) -> QueryResult<Self::Cursor<'conn, 'query>>
    where
        T: Query + QueryFragment<Pg> + QueryId + 'query,
        Pg: QueryMetadata<T::SqlType>,
    {
        let AsyncPgSession { connection, runtime } = self;
        let rows: Vec<_> =
            runtime.block_on(async { Ok::<_, Error>(connection.load(source).await?.collect().await) })?;
        Ok(rows.into_iter())
    }
}

impl R2D2Connection for AsyncPgSession {
    fn ping(&mut self) -> QueryResult<()> {
        self.batch_execute("SELECT 1")
    }

    fn is_broken(&mut self) -> bool {
        PoolableConnection::is_broken(&mut **self.connection)
    }
}

impl MigrationConnection for AsyncPgSession {
    fn setup(&mut self) -> QueryResult<usize> {
        self.batch_execute(CREATE_MIGRATIONS_TABLE).map(|()| 0)
    }
}

impl fmt::Debug for AsyncPgSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncPgSession").finish_non_exhaustive()
    }
}

/// Counts the transactions where diesel-async counts them, so that an async handler and the worker agree.
#[derive(Debug)]
pub struct SessionTransactions;

use AnsiTransactionManager as Transactions;

impl TransactionManager<AsyncPgSession> for SessionTransactions {
    type TransactionStateData = AnsiTransactionManager;

    fn begin_transaction(session: &mut AsyncPgSession) -> QueryResult<()> {
        session
            .runtime
            .block_on(<Transactions as AsyncTransactionManager<_>>::begin_transaction(&mut **session.connection))
    }

    fn rollback_transaction(session: &mut AsyncPgSession) -> QueryResult<()> {
        session
            .runtime
            .block_on(<Transactions as AsyncTransactionManager<_>>::rollback_transaction(&mut **session.connection))
    }

    fn commit_transaction(session: &mut AsyncPgSession) -> QueryResult<()> {
        session
            .runtime
            .block_on(<Transactions as AsyncTransactionManager<_>>::commit_transaction(&mut **session.connection))
    }

    fn transaction_manager_status_mut(session: &mut AsyncPgSession) -> &mut TransactionManagerStatus {
        <Transactions as AsyncTransactionManager<_>>::transaction_manager_status_mut(&mut **session.connection)
    }

    fn is_broken_transaction_manager(session: &mut AsyncPgSession) -> bool {
        <Transactions as AsyncTransactionManager<_>>::is_broken_transaction_manager(&mut **session.connection)
    }
}
