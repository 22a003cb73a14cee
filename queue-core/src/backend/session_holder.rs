//! How a worker gets its session.

use std::sync::Arc;
use std::time::Duration;

use super::connection::QueueConnection;
use super::connections::{Connections, ServerWait};
use super::session::Session;
use super::setup::SessionLimits;
use crate::error::Error;
use crate::event::ThreadConnection;
use crate::row::failure_text;

/// A worker's session, which is opened when it is needed and replaced when it is in doubt.
pub(crate) struct SessionHolder<'c, C: QueueConnection> {
    connections: Connections<C>,
    pool_timeout: Duration,
    limits: SessionLimits,
    session: Option<Session<'c, C>>,
    /// The file of the database in which the session was opened, counted from the first.
    file: u64,
    /// Tells whether the thread has a connection.
    connection: ThreadConnection,
    /// The thread's wait for the server.
    wait: Arc<ServerWait>,
}

impl<'c, C: QueueConnection> SessionHolder<'c, C> {
    /// Makes a holder without a session yet. `pool_timeout` limits how long the pool may take to give a connection.
    pub(crate) fn new(
        connections: Connections<C>,
        pool_timeout: Duration,
        limits: SessionLimits,
        connection: ThreadConnection,
        wait: Arc<ServerWait>,
    ) -> Self {
        SessionHolder { connections, pool_timeout, limits, session: None, file: 0, connection, wait }
    }

    /// Makes the holder of a test's session.
    #[cfg_attr(not(feature = "testing"), expect(dead_code, reason = "only tests of applications have one"))]
    pub(crate) fn of_test(session: Session<'c, C>, limits: SessionLimits) -> Self {
        SessionHolder {
            connections: Connections::Source(Arc::new(|| Err::<C, _>("a test has one connection"))),
            pool_timeout: Duration::ZERO,
            limits,
            session: Some(session),
            file: 0,
            connection: ThreadConnection::default(),
            wait: Arc::default(),
        }
    }

    /// Returns the session, in no transaction and with its own lock wait. It opens one now if there is none.
    pub(crate) fn session(&mut self) -> Result<&mut Session<'c, C>, Error> {
        self.roll_back_idle();
        self.session_as_it_is()
    }

    /// Ends the transaction that may have begun with the end of the last message.
    pub(crate) fn roll_back_idle(&mut self) {
        if self.session.as_mut().is_some_and(|session| session.roll_back_idle().is_err()) {
            self.close();
        }
    }

    /// Notes whether the worker waits for work, in no transaction.
    pub(crate) fn rest(&mut self, rests: bool) {
        if self.session.as_mut().is_some_and(|session| session.rest(rests).is_err()) {
            self.close();
        }
    }

    /// Notes that the thread waits for something else than the server.
    pub(crate) fn end_wait(&self) {
        self.wait.end();
    }

    /// Returns the session, if there is one for the next message, whose transaction may have begun.
    pub(crate) fn fit_session(&mut self) -> Option<&mut Session<'c, C>> {
        self.session.as_mut().and_then(|session| session.is_fit().then_some(session))
    }

    /// Returns the session, and opens one now if there is none. The transaction of the next message may have begun.
    pub(crate) fn session_as_it_is(&mut self) -> Result<&mut Session<'c, C>, Error> {
        if self.session.as_mut().is_some_and(|session| !session.is_fit()) {
            self.close();
        }
        match &mut self.session {
            Some(session) => Ok(session),
            none => match Session::open(&self.connections, self.pool_timeout, self.limits, &self.wait) {
                Ok(session) => {
                    self.connection.opens();
                    Ok(none.insert(session))
                }
                Err(error) => {
                    self.wait.end();
                    self.connection.loses(&|| failure_text(&error, 500));
                    Err(error)
                }
            },
        }
    }

    /// Closes a session of another database file than this one. It is called between turns, so it interrupts no
    /// transaction.
    pub(crate) fn move_to_file(&mut self, file: u64) {
        if self.file != file {
            self.file = file;
            self.close();
        }
    }

    /// Returns the session, if there is one.
    pub(crate) fn open_session(&mut self) -> Option<&mut Session<'c, C>> {
        self.session.as_mut()
    }

    /// Closes the session. The server rolls its transaction back, if there is one. The connection of a test stays, and so does
    /// what the test has done.
    pub(crate) fn close(&mut self) {
        if !self.session.as_mut().is_some_and(Session::end_in_test) {
            self.session = None;
        }
    }
}
