//! A worker's private connection.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use diesel::connection::TransactionManager;
use diesel::r2d2::{ConnectionManager, Pool, PooledConnection};

use crate::backend::{QueueConnection, SessionLimits};
use crate::error::Error;

/// A connection with the queue's own session settings. It is closed when it is dropped and never goes back to the
/// pool: the application would inherit its settings, and after a panic nobody knows its state.
pub(crate) struct Session<C: QueueConnection> {
    connection: PooledConnection<ConnectionManager<C>>,
    id: Option<i64>,
    lock_wait: Duration,
}

impl<C: QueueConnection> Session<C> {
    /// Takes a connection from the pool, prepares it and reads every setting back.
    pub(crate) fn open(
        pool: &Pool<ConnectionManager<C>>,
        wait: Duration,
        limits: SessionLimits,
    ) -> Result<Self, Error> {
        let connection = pool.get_timeout(wait).map_err(Error::Connect)?;
        let mut session = Session { connection, id: None, lock_wait: limits.lock_wait };
        session.connection.prepare_session(limits)?;
        session.id = session.connection.session_id()?;
        Ok(session)
    }

    /// The number by which the server knows the session.
    pub(crate) fn id(&self) -> Option<i64> {
        self.id
    }

    /// How long its statements wait for a lock when nothing else is said.
    pub(crate) fn lock_wait(&self) -> Duration {
        self.lock_wait
    }
}

/// A worker's line to the database: a session that is opened when it is needed and replaced when it is in doubt.
pub(crate) struct Link<C: QueueConnection> {
    pool: Pool<ConnectionManager<C>>,
    wait: Duration,
    limits: SessionLimits,
    session: Option<Session<C>>,
}

impl<C: QueueConnection> Link<C> {
    /// A link without a session yet; `wait` bounds how long the pool may take to give one.
    pub(crate) fn new(pool: Pool<ConnectionManager<C>>, wait: Duration, limits: SessionLimits) -> Self {
        Link { pool, wait, limits, session: None }
    }

    /// The session, opened now if there is none.
    pub(crate) fn session(&mut self) -> Result<&mut Session<C>, Error> {
        match &mut self.session {
            Some(session) => Ok(session),
            none => Ok(none.insert(Session::open(&self.pool, self.wait, self.limits)?)),
        }
    }

    /// Closes the session: its transaction, if any, is rolled back by the server.
    pub(crate) fn close(&mut self) {
        self.session = None;
    }
}

impl<C: QueueConnection> Deref for Session<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.connection
    }
}

impl<C: QueueConnection> DerefMut for Session<C> {
    fn deref_mut(&mut self) -> &mut C {
        &mut self.connection
    }
}

impl<C: QueueConnection> Drop for Session<C> {
    fn drop(&mut self) {
        // r2d2 closes what comes back with an open transaction. A session in doubt mostly has one already; a sound one
        // gets an empty one. If even that fails, the pool's own test finds the dead connection.
        if !self.connection.is_broken() {
            let _ = C::TransactionManager::begin_transaction(&mut self.connection);
        }
    }
}
