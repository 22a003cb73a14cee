//! A session: how it is prepared, how it is identified, and its notifications.

use diesel::Connection;
use std::time::Duration;

use diesel::result::QueryResult;

/// The limits of a worker's session.
#[derive(Debug, Clone, Copy)]
pub struct SessionLimits {
    /// How long a statement waits for a lock.
    pub lock_timeout: Duration,
    /// How long the session may be idle inside a transaction: as long as a handler may take.
    pub timeout: Duration,
    /// How long one statement may take.
    pub statement_timeout: Duration,
    /// Whether attempts run on the session. On MySQL autocommit is off for them. It is on for the scout, whose probes
    /// would otherwise leave a transaction open.
    pub attempts: bool,
}

/// A session: how it is prepared, how it is identified, and its notifications.
pub trait SessionSetup<DB = <Self as Connection>::Backend>: Connection {
    /// Prepares a worker's private session and reads every setting back.
    ///
    /// # Errors
    ///
    /// If a statement fails, or a setting does not take effect; the text names the setting.
    fn prepare_session(&mut self, limits: SessionLimits) -> QueryResult<()>;

    /// Returns the number by which the server knows this session, so that another session can end it. SQLite has none.
    fn session_id(&mut self) -> QueryResult<Option<i64>>;

    /// Returns a name for the database. By it the processes that use the database recognize each other's crash records.
    fn database_name(&mut self) -> QueryResult<String>;

    /// Returns an identity of the database's file, which changes if another file takes its place; `None` if the
    /// database has no file of its own.
    fn file_identity(&mut self) -> QueryResult<Option<(u64, u64)>> {
        Ok(None)
    }

    /// Ends another session of the same user. The server rolls its transaction back.
    fn end_session(&mut self, session: i64) -> QueryResult<()>;

    /// Returns the account as a GRANT names it; `None` if there are no grants.
    fn grantee(&mut self) -> QueryResult<Option<String>> {
        Ok(None)
    }

    /// Tells whether a claim can pass over rows that others hold (`SKIP LOCKED`): MariaDB can from 10.6, MySQL from 8.0.1.
    /// SQLite cannot, and need not: it has one writer.
    fn skips_locked_rows(&mut self) -> QueryResult<bool>;

    /// Listens on a notification channel of the database.
    fn listen(&mut self, _channel: &str) -> QueryResult<()> {
        Ok(())
    }

    /// Returns the channels with notifications since the last call, each once, without asking the server.
    ///
    /// # Errors
    ///
    /// If the connection is lost.
    fn notified(&mut self) -> QueryResult<Vec<String>> {
        Ok(Vec::new())
    }
}
