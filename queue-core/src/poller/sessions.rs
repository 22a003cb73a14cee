//! The source of the sessions of a poller's threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::backend::{Connections, QueueConnection, Session, SessionHolder, SessionLimits};
use crate::error::Error;
use crate::event::{Connectivity, Events, ThreadConnection};

/// The sessions of a poller.
pub(crate) struct PollerSessions<C: QueueConnection> {
    pub(crate) connections: Connections<C>,
    /// The name of the database in which the queues are.
    pub(crate) database: Arc<str>,
    pub(crate) limits: SessionLimits,
    /// How long a thread waits for a connection.
    pool_timeout: Duration,
    /// How often another file has replaced the database's.
    files: AtomicU64,
    /// Which of the threads have connections.
    pub(crate) connectivity: Arc<Connectivity>,
}

impl<C: QueueConnection> PollerSessions<C> {
    pub(crate) fn new(
        connections: Connections<C>,
        database: String,
        limits: SessionLimits,
        pool_timeout: Duration,
        events: Events,
    ) -> Self {
        PollerSessions {
            connections,
            database: database.into(),
            limits,
            pool_timeout,
            files: AtomicU64::new(0),
            connectivity: Arc::new(Connectivity::new(events)),
        }
    }

    /// Opens a session at once.
    pub(crate) fn open(&self) -> Result<Session<C>, Error> {
        Session::open(&self.connections, self.pool_timeout, self.limits)
    }

    /// Returns the holder of a worker's session.
    pub(crate) fn of_worker(&self) -> SessionHolder<C> {
        self.holder(self.pool_timeout, self.limits)
    }

    /// Returns the holder of the scout's session.
    pub(crate) fn of_scout(&self) -> SessionHolder<C> {
        let limits = SessionLimits { attempts: false, ..self.limits };
        self.holder(self.pool_timeout, limits)
    }

    /// Returns the holder of the heartbeat's session, which has to answer within the heartbeat's pause.
    pub(crate) fn of_heartbeat(&self, pause: Duration) -> SessionHolder<C> {
        // A lock that is held for long must not keep the other leases from being extended.
        let timeout = pause.max(Duration::from_secs(1));
        let limits = SessionLimits {
            lock_timeout: self.limits.lock_timeout.min(pause),
            timeout,
            statement_timeout: timeout,
            attempts: false,
        };
        self.holder(self.pool_timeout.min(pause), limits)
    }

    fn holder(&self, wait: Duration, limits: SessionLimits) -> SessionHolder<C> {
        let connection = ThreadConnection::new(self.connectivity.clone());
        SessionHolder::new(self.connections.clone(), wait, limits, connection)
    }

    /// Notes that another file has replaced the database's. Returns how often that has happened.
    pub(crate) fn file_has_moved(&self) -> u64 {
        self.files.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns how often another file has replaced the database's.
    pub(crate) fn files(&self) -> u64 {
        self.files.load(Ordering::Acquire)
    }
}
