//! A session: how it is prepared, who it is, what it is told.

use std::time::Duration;

use diesel::result::QueryResult;

/// The limits of a worker's session.
#[derive(Debug, Clone, Copy)]
pub struct SessionLimits {
    /// How long a statement waits for a lock.
    pub lock_timeout: Duration,
    /// How long the session may sit idle inside a transaction: as long as a handler may take.
    pub timeout: Duration,
    /// How long one statement may take.
    pub statement_timeout: Duration,
    /// Whether attempts run on the session. MySQL's autocommit is off for them and on for the scout, whose probes would
    /// otherwise leave a transaction open.
    pub attempts: bool,
}

/// A session: how it is prepared, who it is, what it is told.
pub trait SessionSetup {
    /// Prepares a worker's private session and reads every setting back.
    ///
    /// # Errors
    ///
    /// When a statement fails, or a setting did not take; the text names the setting.
    fn prepare_session(&mut self, limits: SessionLimits) -> QueryResult<()>;

    /// Returns the number under which the server knows this session, so that another can end it. SQLite has none.
    fn session_id(&mut self) -> QueryResult<Option<i64>>;

    /// Returns a name for the database, by which the processes that work on it know each other's crash records.
    fn database_name(&mut self) -> QueryResult<String>;

    /// Returns what tells the database's file from another one that was put in its place; `None` where it has none of its own.
    fn file_identity(&mut self) -> QueryResult<Option<(u64, u64)>> {
        Ok(None)
    }

    /// Ends another session of the same user; its transaction is rolled back by the server.
    fn end_session(&mut self, session: i64) -> QueryResult<()>;

    /// The account as a GRANT names it; `None` where there are no grants.
    fn grantee(&mut self) -> QueryResult<Option<String>> {
        Ok(None)
    }

    /// Tells whether a claim can pass over rows that others hold (`SKIP LOCKED`): MariaDB can from 10.6, MySQL from 8.0.1.
    /// SQLite cannot, and need not: it has one writer.
    fn skips_locked_rows(&mut self) -> QueryResult<bool>;

    /// Listens on a channel of the database's.
    fn listen(&mut self, _channel: &str) -> QueryResult<()> {
        Ok(())
    }

    /// Returns the channels of which was notified since the last call, once each, without asking the server.
    ///
    /// # Errors
    ///
    /// When the connection is lost.
    fn notified(&mut self) -> QueryResult<Vec<String>> {
        Ok(Vec::new())
    }
}
