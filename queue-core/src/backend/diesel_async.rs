//! A session through diesel-async, as a connection on which the queue's statements run.

use std::future::Future;
use std::ops::DerefMut;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::{fmt, future};

use diesel::connection::{
    CacheSize, Connection, ConnectionSealed, Instrumentation, LoadConnection, SimpleConnection, TransactionDepthChange,
    TransactionManager, TransactionManagerStatus,
};
use diesel::expression::QueryMetadata;
use diesel::migration::{CREATE_MIGRATIONS_TABLE, MigrationConnection};
use diesel::query_builder::{Query, QueryFragment, QueryId};
use diesel::r2d2::R2D2Connection;
use diesel::result::{ConnectionError, ConnectionResult, DatabaseErrorKind, Error, QueryResult};
use diesel_async::pooled_connection::PoolableConnection;
use diesel_async::{
    AnsiTransactionManager, AsyncConnection, AsyncConnectionCore, TransactionManager as AsyncTransactionManager,
};
use futures_util::StreamExt;

use super::connections::CONNECT_TIMEOUT;
use super::runtime::SessionRuntime;
use crate::error::ConnectFailure;

/// A session of a poller over a connection of diesel-async's: `AsyncPgSession` and `AsyncMysqlSession` are its two kinds.
///
/// It is a connection like Diesel's own: the queue's statements, migrations and reports run on it, and an r2d2 pool of it
/// serves a poller. Each has a small runtime of its own, which runs on the thread that waits for a statement. So no
/// statement wakes another thread, and no runtime has to exist where one is opened. The application's own connections
/// of diesel-async need nothing of this: [`due_now`](crate::Queueable::due_now) and the queue's columns are values and
/// expressions of Diesel there as everywhere.
///
/// # Panics
///
/// Every call that reaches the server waits for it, and so panics on a thread that runs async tasks; to open a session
/// there is an error. There, [`on`](DieselAsyncSession::on) makes calls on the application's own connection, and
/// [`start_async`](crate::Poller::start_async) starts a poller.
pub struct DieselAsyncSession<C: AsyncClient> {
    // One of its own in a box, or one of the application's, which goes back to its pool when it is dropped.
    connection: Box<dyn DerefMut<Target = C> + Send>,
    // After the connection, whose task ends with the runtime.
    pub(crate) runtime: SessionRuntime,
    /// Whether an answer of the server was left behind, which the next statement would take for its own.
    is_out_of_step: bool,
}

/// A connection of diesel-async that can be a session of a poller.
pub trait AsyncClient:
    AsyncConnection<TransactionManager = AnsiTransactionManager> + PoolableConnection + 'static
{
    /// Whether a statement whose future was dropped leaves its answer behind, for the next statement.
    const LEAVES_ANSWERS: bool;

    /// Tells whether the server's next answer belongs to the next statement.
    fn is_in_step(&mut self) -> impl Future<Output = bool> + Send;
}

impl<C: AsyncClient> DieselAsyncSession<C> {
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
    /// The future's error without passwords, the operating system's if it has no room for another runtime, or that the future
    /// has not ended within 10 seconds: a server, or a proxy, may accept connections and never answer.
    pub fn open<E: fmt::Display>(connection: impl Future<Output = Result<C, E>>) -> Result<Self, ConnectFailure> {
        let runtime = SessionRuntime::new().map_err(|error| ConnectFailure::new(&error))?;
        let in_time = async { tokio::time::timeout(CONNECT_TIMEOUT, connection).await };
        let connection = runtime.try_block_on(in_time).map_err(|error| ConnectFailure::new(&error))?;
        let no_answer = |_| ConnectFailure::new(&format!("no connection within {CONNECT_TIMEOUT:?}"));
        let connection = connection.map_err(no_answer)?;
        let connection = connection.map_err(|error| ConnectFailure::new(&error))?;
        Ok(DieselAsyncSession::of(Box::new(connection), runtime))
    }

    /// Runs synchronous calls on an async application's connection: operations, reports, migrations, checks. They block a
    /// thread of tokio's for blocking calls, and the task that awaits this blocks none.
    ///
    /// The connection is one from a pool, or a `Box` with one of diesel-async's. It is dropped at the end, and so goes
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
    pub async fn on<P, T>(connection: P, calls: impl FnOnce(&mut Self) -> T + Send + 'static) -> T
    where
        P: DerefMut<Target = C> + Send + 'static,
        T: Send + 'static,
    {
        let mut session = DieselAsyncSession::of(connection, SessionRuntime::of_the_application());
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
    pub fn run<T>(&mut self, work: impl AsyncFnOnce(&mut C) -> T) -> T {
        self.run_to_end(async |connection| Some(work(connection).await)).expect("nobody drops it")
    }

    /// Runs async code on the session's connection like [`run`](Self::run). `None`: the code was dropped.
    pub(crate) fn run_to_end<T>(&mut self, work: impl AsyncFnOnce(&mut C) -> Option<T>) -> Option<T> {
        let runtime = self.runtime.clone();
        ending_transactions(self, |session| session, |session| runtime.drive(work(session.connection())))
    }

    /// Returns how many transactions are open, one in the other.
    fn open_transactions(&mut self) -> Option<u32> {
        let status = <SessionTransactions as TransactionManager<_>>::transaction_manager_status_mut(self);
        status.transaction_depth().ok().flatten().map(u32::from)
    }

    /// Counts `open` transactions again if more are counted, or if the statement that begins or ends one was given up.
    /// Returns whether that was so.
    pub(super) fn forget_transactions_above(&mut self, open: u32) -> bool {
        if !self.was_given_up() && self.open_transactions().is_none_or(|now| now <= open) {
            return false;
        }
        *self.connection().transaction_state() = AnsiTransactionManager::default();
        let status = Transactions::transaction_manager_status_mut(self.connection());
        if let TransactionManagerStatus::Valid(status) = status {
            // An increase of a depth that is known cannot fail.
            (0..open).for_each(|_| drop(status.change_transaction_depth(TransactionDepthChange::IncreaseDepth)));
        }
        true
    }

    /// Checks that the server's next answer belongs to the next statement. `false`: a statement was given up, and the
    /// session sends no other.
    fn keeps_step(&mut self) -> bool {
        if !C::LEAVES_ANSWERS {
            return true;
        }
        let (connection, runtime) = self.parts();
        let is_in_step = runtime.block_on(connection.is_in_step());
        if !is_in_step {
            self.is_out_of_step = true;
            // A pool of diesel-async's does not take it back then.
            Transactions::transaction_manager_status_mut(self.connection()).set_in_error();
        }
        is_in_step
    }

    fn of(connection: impl DerefMut<Target = C> + Send + 'static, runtime: SessionRuntime) -> Self {
        DieselAsyncSession { connection: Box::new(connection), runtime, is_out_of_step: false }
    }

    /// Returns the connection that async code uses.
    pub(crate) fn connection(&mut self) -> &mut C {
        self.parts().0
    }

    fn parts(&mut self) -> (&mut C, &SessionRuntime) {
        (&mut self.connection, &self.runtime)
    }

    /// The same for a statement.
    fn in_step(&mut self) -> QueryResult<(&mut C, &SessionRuntime)> {
        if self.is_out_of_step {
            let what = "the connection is closed, because an answer was left behind on it".to_owned();
            return Err(Error::DatabaseError(DatabaseErrorKind::ClosedConnection, Box::new(what)));
        }
        Ok(self.parts())
    }

    /// Begins a transaction by this text.
    pub(super) fn begin_by_text(&mut self, begin: &str) -> QueryResult<()> {
        let (connection, runtime) = self.in_step()?;
        runtime.block_on(AnsiTransactionManager::begin_transaction_sql(connection, begin))
    }

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
        let manager = self.connection();
        let status = std::mem::take(Transactions::transaction_manager_status_mut(manager));
        let was_given_up = Transactions::is_broken_transaction_manager(manager);
        *Transactions::transaction_manager_status_mut(manager) = status;
        was_given_up
    }
}

/// Runs async code that has a session, and checks that it has ended each transaction that it began. Otherwise a future
/// was dropped in the middle of one, and what it has written must not be committed with the rest. `None` of the code means
/// that it was dropped itself, and that nothing of it will be committed.
///
/// # Panics
///
/// If the code has not ended a transaction. As many are counted as before, so the session is unreliable. Also if it has
/// given up a statement whose answer the next one would take for its own.
pub(crate) fn ending_transactions<P, C: AsyncClient, T>(
    place: &mut P,
    session: impl Fn(&mut P) -> &mut DieselAsyncSession<C>,
    work: impl FnOnce(&mut P) -> Option<T>,
) -> Option<T> {
    let open = session(place).open_transactions();
    let answer = catch_unwind(AssertUnwindSafe(|| work(place)));
    let left_one = open.is_some_and(|open| session(place).forget_transactions_above(open));
    let keeps_step = matches!(answer, Ok(None)) || session(place).keeps_step();
    let answer = answer.unwrap_or_else(|panic| resume_unwind(panic));
    assert!(keeps_step, "async code has left a statement without its answer: a future was dropped before its end");
    assert!(
        !left_one || answer.is_none(),
        "async code has left a transaction open: a future was dropped before its end"
    );
    answer
}

/// Returns the host and the port of a URL. `None`: there are none, or a password may be among what looks like them.
fn host_of(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let (address, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let (_, host) = address.rsplit_once('@').or((!parameters.contains('@')).then_some(("", address)))?;
    host.split('/').next().filter(|host| !host.is_empty())
}

impl<C: AsyncClient> SimpleConnection for DieselAsyncSession<C> {
    fn batch_execute(&mut self, query: &str) -> QueryResult<()> {
        let (connection, runtime) = self.in_step()?;
        runtime.block_on(connection.batch_execute(query))
    }
}

impl<C: AsyncClient> ConnectionSealed for DieselAsyncSession<C> {}

impl<C: AsyncClient> Connection for DieselAsyncSession<C> {
    type Backend = C::Backend;
    type TransactionManager = SessionTransactions;

    fn establish(database_url: &str) -> ConnectionResult<Self> {
        let at = host_of(database_url).map_or_else(String::new, |host| format!("{host}: "));
        Self::open(C::establish(database_url))
            .map_err(|failure| ConnectionError::BadConnection(format!("{at}{failure}")))
    }

    fn execute_returning_count<T: QueryFragment<C::Backend> + QueryId>(&mut self, source: &T) -> QueryResult<usize> {
        let (connection, runtime) = self.in_step()?;
        runtime.block_on(connection.execute_returning_count(source))
    }

    fn transaction_state(&mut self) -> &mut AnsiTransactionManager {
        self.connection().transaction_state()
    }

    fn instrumentation(&mut self) -> &mut dyn Instrumentation {
        self.connection().instrumentation()
    }

    fn set_instrumentation(&mut self, instrumentation: impl Instrumentation) {
        self.connection().set_instrumentation(instrumentation);
    }

    fn set_prepared_statement_cache_size(&mut self, size: CacheSize) {
        self.connection().set_prepared_statement_cache_size(size);
    }
}

impl<C: AsyncClient> LoadConnection for DieselAsyncSession<C> {
    // All rows at once, as the C libraries give them: one wait for each statement, and not one for each row.
    type Cursor<'conn, 'query> = std::vec::IntoIter<QueryResult<Self::Row<'conn, 'query>>>;
    type Row<'conn, 'query> = <C as AsyncConnectionCore>::Row<'conn, 'query>;

    fn load<'conn, 'query, T>(&'conn mut self, source: T) -> QueryResult<Self::Cursor<'conn, 'query>>
    where
        T: Query + QueryFragment<C::Backend> + QueryId + 'query,
        C::Backend: QueryMetadata<T::SqlType>,
    {
        let (connection, runtime) = self.in_step()?;
        let rows = runtime.block_on(async {
            let (mut rows, mut answer) = (Vec::new(), pin!(connection.load(source).await?));
            while let Some(row) = answer.next().await {
                // After the connection was lost, the answer gives the same error again and again.
                let is_last = row.is_err();
                rows.push(row);
                if is_last {
                    break;
                }
            }
            Ok::<_, Error>(rows)
        })?;
        Ok(rows.into_iter())
    }
}

impl<C: AsyncClient> R2D2Connection for DieselAsyncSession<C> {
    fn ping(&mut self) -> QueryResult<()> {
        self.batch_execute("SELECT 1")
    }

    fn is_broken(&mut self) -> bool {
        PoolableConnection::is_broken(self.connection())
    }
}

impl<C: AsyncClient> MigrationConnection for DieselAsyncSession<C> {
    fn setup(&mut self) -> QueryResult<usize> {
        self.batch_execute(CREATE_MIGRATIONS_TABLE).map(|()| 0)
    }
}

impl<C: AsyncClient> fmt::Debug for DieselAsyncSession<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DieselAsyncSession").finish_non_exhaustive()
    }
}

/// Counts the transactions where diesel-async counts them, so that an async handler and the worker agree.
#[derive(Debug)]
pub struct SessionTransactions;

use AnsiTransactionManager as Transactions;

impl<C: AsyncClient> TransactionManager<DieselAsyncSession<C>> for SessionTransactions {
    type TransactionStateData = AnsiTransactionManager;

    fn begin_transaction(session: &mut DieselAsyncSession<C>) -> QueryResult<()> {
        let (connection, runtime) = session.in_step()?;
        runtime.block_on(<Transactions as AsyncTransactionManager<_>>::begin_transaction(connection))
    }

    fn rollback_transaction(session: &mut DieselAsyncSession<C>) -> QueryResult<()> {
        let (connection, runtime) = session.in_step()?;
        runtime.block_on(<Transactions as AsyncTransactionManager<_>>::rollback_transaction(connection))
    }

    fn commit_transaction(session: &mut DieselAsyncSession<C>) -> QueryResult<()> {
        let (connection, runtime) = session.in_step()?;
        runtime.block_on(<Transactions as AsyncTransactionManager<_>>::commit_transaction(connection))
    }

    fn transaction_manager_status_mut(session: &mut DieselAsyncSession<C>) -> &mut TransactionManagerStatus {
        <Transactions as AsyncTransactionManager<_>>::transaction_manager_status_mut(session.connection())
    }

    fn is_broken_transaction_manager(session: &mut DieselAsyncSession<C>) -> bool {
        <Transactions as AsyncTransactionManager<_>>::is_broken_transaction_manager(session.connection())
    }
}

#[cfg(test)]
mod tests {
    use super::host_of;

    #[test]
    fn a_host_is_told_without_a_password() {
        for url in [
            "postgres://db.example:5432/app",
            "mysql://me:p%40ss@db.example:5432/app?a=b",
            "x://me:p/w@db.example:5432",
        ] {
            assert_eq!(host_of(url), Some("db.example:5432"));
        }
        for url in ["host=/tmp password=secret", "postgres:///app", "x://me:p?w@db.example/app"] {
            assert_eq!(host_of(url), None, "{url}");
        }
    }
}
