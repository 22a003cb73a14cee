//! Where a poller gets its connections: from a pool of the application's, or directly.

use std::env;
use std::fmt::Display;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::TransactionManager;
use diesel::r2d2::{ConnectionManager, ManageConnection, Pool, PooledConnection, R2D2Connection, State};

use super::connection::QueueConnection;
use crate::error::{ConnectFailure, Error};

/// Makes the connections of a poller that has its own: an r2d2 [`ConnectionManager`], or a closure that returns a
/// connection or an error.
///
/// A closure makes connections in any way: with a password that is fetched anew each time, by TLS, by the manager of an
/// async application's pool.
///
/// ```no_run
/// # use diesel::prelude::*;
/// # use queueable::{HandlerResult, Message, Outcome, Poller, Queueable};
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// # fn charge(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
/// # fn main() -> Result<(), queueable::Error> {
/// let connect = || SqliteConnection::establish("app.sqlite");
/// let handle = Poller::with_own_connections(connect).serve::<Payment>(charge).start()?;
/// # Ok(()) }
/// ```
///
/// The poller calls it from several threads, again after each lost connection, and waits for its answer.
#[diagnostic::on_unimplemented(
    message = "`{Self}` makes no connections",
    note = "a poller's own connections come from an r2d2 `ConnectionManager`, or from a closure that returns a `Result` with a \
            connection"
)]
pub trait ConnectionSource: Send + Sync + 'static {
    /// The type of the connections.
    type Connection: R2D2Connection + 'static;

    /// Makes a connection.
    ///
    /// # Errors
    ///
    /// Why there is none.
    #[doc(hidden)]
    fn make_connection(&self) -> Result<Self::Connection, ConnectFailure>;
}

impl<C: R2D2Connection + 'static> ConnectionSource for ConnectionManager<C> {
    type Connection = C;

    fn make_connection(&self) -> Result<C, ConnectFailure> {
        self.connect().map_err(|error| ConnectFailure::new(&error))
    }
}

impl<C, E, F> ConnectionSource for F
where
    C: R2D2Connection + 'static,
    E: Display,
    F: Fn() -> Result<C, E> + Send + Sync + 'static,
{
    type Connection = C;

    fn make_connection(&self) -> Result<C, ConnectFailure> {
        self().map_err(|error| ConnectFailure::new(&error))
    }
}

/// What a poller takes its connections from: the database's URL, with connections of the poller's own, or an r2d2 pool of the
/// application's.
///
/// With a URL the poller connects by itself whenever it has to. After an outage it works again within a second. A pool may take
/// longer, because it tries to connect after pauses that grow to half its `connection_timeout`: to 15 seconds with r2d2's
/// default of 30. Another way to connect is [`Poller::with_own_connections`](crate::Poller::with_own_connections).
///
/// ```no_run
/// # use diesel::prelude::*;
/// # use queueable::{HandlerResult, Message, Outcome, Queueable};
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// # fn charge(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
/// # fn main() -> Result<(), queueable::Error> {
/// let handle = Payment::poller("app.sqlite", charge).start()?;
/// # Ok(()) }
/// ```
#[diagnostic::on_unimplemented(
    message = "a poller cannot take its connections from `{Self}`",
    note = "it takes the database's URL as text, or a `Pool<ConnectionManager<_>>`; `Poller::with_own_connections` takes a closure that \
            connects"
)]
pub trait ConnectionsFrom<C: R2D2Connection + 'static> {
    #[doc(hidden)]
    fn connections(self) -> Connections<C>;
}

impl<C: R2D2Connection + 'static> ConnectionsFrom<C> for Pool<ConnectionManager<C>> {
    fn connections(self) -> Connections<C> {
        Connections::Pool(self)
    }
}

impl<C: R2D2Connection + 'static> ConnectionsFrom<C> for String {
    fn connections(self) -> Connections<C> {
        Connections::Source(Arc::new(ConnectionManager::<C>::new(with_connect_timeout(self))))
    }
}

impl<C: R2D2Connection + 'static> ConnectionsFrom<C> for &String {
    fn connections(self) -> Connections<C> {
        self.clone().connections()
    }
}

impl<C: R2D2Connection + 'static> ConnectionsFrom<C> for &str {
    fn connections(self) -> Connections<C> {
        self.to_owned().connections()
    }
}

/// How long a connect may take, where there is a limit and neither the URL nor the environment says another: a server, or a
/// proxy, may accept connections and never answer.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Adds the limit to a URL of PostgreSQL, whose two clients know it by the same name. The C library of MySQL and MariaDB takes
/// none.
fn with_connect_timeout(url: String) -> String {
    let is_of_postgres = url.starts_with("postgres://") || url.starts_with("postgresql://");
    if !is_of_postgres || url.contains("connect_timeout=") || env::var_os("PGCONNECT_TIMEOUT").is_some() {
        return url;
    }
    // A password may contain a question mark.
    let account = url.split('/').nth(2).and_then(|authority| Some(authority.split_once('@')?.0)).unwrap_or_default();
    let separator = if url.replacen(account, "", 1).contains('?') { '&' } else { '?' };
    format!("{url}{separator}connect_timeout={}", CONNECT_TIMEOUT.as_secs())
}

/// Where a poller gets its connections.
#[doc(hidden)]
pub enum Connections<C: R2D2Connection + 'static> {
    /// A pool. It decides itself when to connect: after an outage it waits for up to half its `connection_timeout`.
    Pool(Pool<ConnectionManager<C>>),
    /// Each connection is made when it is needed.
    Source(Arc<dyn ConnectionSource<Connection = C>>),
}

/// A connection of a poller. Whoever uses it mutably is about to send a statement, see [`ServerWait`].
pub(crate) struct Connection<'c, C: QueueConnection> {
    source: Sourced<'c, C>,
    wait: Arc<ServerWait>,
}

enum Sourced<'c, C: QueueConnection> {
    Pooled(PooledConnection<ConnectionManager<C>>),
    Own(C),
    /// That of a test.
    Lent(&'c mut C),
}

impl<C: QueueConnection> Connections<C> {
    /// Opens a connection for the thread that waits here. `pool_timeout` limits how long a pool may take to give one.
    pub(crate) fn open(&self, pool_timeout: Duration, wait: &Arc<ServerWait>) -> Result<Connection<'static, C>, Error> {
        let source = match self {
            Connections::Pool(pool) => {
                wait.begin_connect(pool_timeout);
                let mut pooled =
                    take(pool, pool_timeout).map_err(|error| Error::Connect(ConnectFailure::new(&error)))?;
                expect_no_transaction(&mut *pooled, "a connection of the pool")?;
                Sourced::Pooled(pooled)
            }
            Connections::Source(source) => {
                wait.begin_connect(Duration::ZERO);
                let mut connection = source.make_connection().map_err(Error::Establish)?;
                expect_no_transaction(&mut connection, "a connection of the poller's own")?;
                Sourced::Own(connection)
            }
        };
        Ok(Connection { source, wait: wait.clone() })
    }

    /// Closes the connections that are idle in the pool. The pool opens others in their place.
    pub(crate) fn close_idle(&self) {
        let Connections::Pool(pool) = self else { return };
        // It takes all of them before it closes any, or the pool would give it the new ones.
        let idle: Vec<_> = std::iter::from_fn(|| pool.try_get()).take(pool.max_size() as usize).collect();
        let close = |pooled| drop(Connection { source: Sourced::Pooled(pooled), wait: Arc::default() });
        idle.into_iter().for_each(close);
    }

    /// Waits until the pool has opened others in the place of those that were closed, for at most `wait`. At the end of a
    /// program a thread that still connects runs beside the exit handlers of libpq's OpenSSL, and crashes now and then.
    pub(crate) fn await_replacements(&self, wait: Duration) {
        let Connections::Pool(pool) = self else { return };
        let begun = Instant::now();
        let is_full = || {
            let State { connections, idle_connections, .. } = pool.state();
            connections >= pool.max_size() || pool.min_idle().is_some_and(|least| idle_connections >= least)
        };
        // r2d2 tells nobody when it has a connection.
        while !is_full() && begun.elapsed() < wait {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns how many there can be, if that is known.
    pub(crate) fn max_size(&self) -> Option<u32> {
        match self {
            Connections::Pool(pool) => Some(pool.max_size()),
            Connections::Source(_) => None,
        }
    }
}

/// How long a thread waits for a connection of a pool that keeps none idle before it asks again: a guess. Such a pool of r2d2 0.8
/// does not replace a connection that it closes while a thread waits for one. Each question is a `TimeoutEvent` of the pool.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// Waits for a connection of a pool. The error is the pool's text, with the cause if the pool has told one.
fn take<C: R2D2Connection + 'static>(
    pool: &Pool<ConnectionManager<C>>,
    timeout: Duration,
) -> Result<PooledConnection<ConnectionManager<C>>, String> {
    let step = if pool.min_idle() == Some(0) { ASK_AGAIN } else { timeout };
    let (begun, mut failure) = (Instant::now(), String::new());
    loop {
        let left = timeout.saturating_sub(begun.elapsed());
        match pool.get_timeout(left.min(step)) {
            Ok(pooled) => return Ok(pooled),
            // Only the first answer after a failed connect has its cause.
            Err(error) if error.to_string().len() > failure.len() => failure = error.to_string(),
            Err(_) => {}
        }
        if left <= step {
            return Err(failure);
        }
    }
}

/// The moment from which the waits of this process are counted.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The wait of one thread for its server, which the thread begins with each statement of its own and with each connect, and
/// ends before it waits for anything else: a handler, another thread, the next row.
#[derive(Debug, Default)]
pub(crate) struct ServerWait {
    /// In milliseconds since [`EPOCH`], and 1 more. 0: the thread does not wait.
    begun: AtomicU64,
    /// Whether it waits for a connection.
    connects: AtomicBool,
    /// The number by which the server knows the thread's session. 0: there is none.
    session: AtomicI64,
}

impl ServerWait {
    /// Notes that a statement is about to be sent.
    pub(crate) fn begin(&self) {
        self.begin_after(Duration::ZERO, false);
    }

    /// Notes that the thread connects, or asks a pool, which may take this long besides.
    pub(crate) fn begin_connect(&self, pool_timeout: Duration) {
        self.begin_after(pool_timeout, true);
    }

    fn begin_after(&self, other: Duration, connects: bool) {
        self.connects.store(connects, Ordering::Relaxed);
        self.begun.store(millis(EPOCH.elapsed().saturating_add(other)).saturating_add(1), Ordering::Relaxed);
    }

    /// Notes that the thread has its answers.
    pub(crate) fn end(&self) {
        self.begun.store(0, Ordering::Relaxed);
    }

    /// Notes which session the thread has.
    pub(crate) fn note_session(&self, session: Option<i64>) {
        self.session.store(session.unwrap_or(0), Ordering::Relaxed);
    }

    /// Returns the session for whose answer the thread waits.
    pub(crate) fn session(&self) -> Option<i64> {
        Some(self.session.load(Ordering::Relaxed)).filter(|session| *session != 0 && !self.connects())
    }

    /// Tells whether the thread waits for a connection.
    pub(crate) fn connects(&self) -> bool {
        self.elapsed().is_some() && self.connects.load(Ordering::Relaxed)
    }

    /// Returns how long the thread has waited. `None`: it does not wait.
    pub(crate) fn elapsed(&self) -> Option<Duration> {
        let begun = self.begun.load(Ordering::Relaxed).checked_sub(1)?;
        Some(Duration::from_millis(millis(EPOCH.elapsed()).saturating_sub(begun)))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX - 1)
}

/// Refuses a connection that is already in a transaction. A session is closed in the end, and would end another owner's
/// transaction with it.
fn expect_no_transaction<C: QueueConnection>(connection: &mut C, setting: &'static str) -> Result<(), Error> {
    let status = C::TransactionManager::transaction_manager_status_mut(connection);
    if matches!(status.transaction_depth(), Ok(Some(_))) {
        return Err(Error::Setting {
            setting,
            found: "in a transaction that was open already".to_owned(),
            expected: "one in no transaction, because a worker commits; in a test, give each test a database or tables of its own \
                       in the place of Diesel's TestCustomizer or begin_test_transaction, whose transactions nobody else sees",
        });
    }
    Ok(())
}

impl<C: QueueConnection> Clone for Connections<C> {
    fn clone(&self) -> Self {
        match self {
            Connections::Pool(pool) => Connections::Pool(pool.clone()),
            Connections::Source(source) => Connections::Source(source.clone()),
        }
    }
}

impl<C: QueueConnection> Deref for Connection<'_, C> {
    type Target = C;

    fn deref(&self) -> &C {
        match &self.source {
            Sourced::Pooled(connection) => connection,
            Sourced::Own(connection) => connection,
            Sourced::Lent(connection) => connection,
        }
    }
}

impl<C: QueueConnection> DerefMut for Connection<'_, C> {
    fn deref_mut(&mut self) -> &mut C {
        self.wait.begin();
        self.source.connection()
    }
}

impl<C: QueueConnection> Sourced<'_, C> {
    fn connection(&mut self) -> &mut C {
        match self {
            Sourced::Pooled(connection) => connection,
            Sourced::Own(connection) => connection,
            Sourced::Lent(connection) => connection,
        }
    }
}

impl<'c, C: QueueConnection> Connection<'c, C> {
    /// Uses the connection of a test.
    pub(super) fn lent(connection: &'c mut C) -> Self {
        Connection { source: Sourced::Lent(connection), wait: Arc::default() }
    }

    /// Tells whether it is a test's, and so is never closed.
    pub(super) fn is_lent(&self) -> bool {
        matches!(self.source, Sourced::Lent(_))
    }

    /// Lends it to a handler, whose statements are not the thread's own.
    pub(crate) fn lend(&mut self) -> &mut C {
        self.wait.end();
        self.source.connection()
    }
}

impl<C: QueueConnection> Drop for Connection<'_, C> {
    fn drop(&mut self) {
        let Sourced::Pooled(connection) = &mut self.source else { return };
        // r2d2 closes a connection that comes back with an open transaction. A session in doubt mostly has one already;
        // a sound one gets an empty one. If even that fails, the pool's own test finds the dead connection.
        if !connection.is_broken() {
            self.wait.begin();
            let _ = C::TransactionManager::begin_transaction(connection);
            self.wait.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connect_has_a_limit_that_the_url_may_set() {
        let limited = |url: &str| with_connect_timeout(url.to_owned());
        assert_eq!(limited("postgres://me@host/db"), "postgres://me@host/db?connect_timeout=10");
        assert_eq!(
            limited("postgresql://host/db?sslmode=disable"),
            "postgresql://host/db?sslmode=disable&connect_timeout=10"
        );
        assert_eq!(limited("postgres://me:w?t@host/db"), "postgres://me:w?t@host/db?connect_timeout=10");
        assert_eq!(limited("postgres://host?user=me"), "postgres://host?user=me&connect_timeout=10");
        for url in ["postgres://host/db?connect_timeout=2", "mysql://host/db", "app.sqlite"] {
            assert_eq!(limited(url), url);
        }
    }

    #[test]
    fn a_wait_lasts_from_its_last_statement_to_its_end() {
        let wait = ServerWait::default();
        assert_eq!(wait.elapsed(), None);
        wait.begin_connect(Duration::from_secs(3600));
        assert_eq!((wait.elapsed(), wait.connects()), (Some(Duration::ZERO), true), "the pool may take that long");
        wait.begin();
        assert!(!wait.connects());
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(3) {}
        assert!(wait.elapsed() >= Some(Duration::from_millis(2)));
        wait.begin();
        assert!(wait.elapsed() <= Some(begun.elapsed()));
        wait.end();
        assert_eq!(wait.elapsed(), None);
    }
}
