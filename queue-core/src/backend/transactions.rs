//! How transactions begin and end.

use std::time::Duration;

use diesel::Connection;
use diesel::connection::TransactionManager;
use diesel::result::{Error, QueryResult};

/// The text in the error by which the server refuses a handler's COMMIT of its group. It only decides which text the
/// row gets.
pub(crate) const COMMIT_REFUSED: &str = "queueable: a handler cannot commit its group";

/// How transactions begin and end.
pub trait Transactions<DB = <Self as Connection>::Backend>: Connection {
    /// Begins the message's transaction: READ COMMITTED stated where the database has it, `BEGIN IMMEDIATE` on SQLite.
    fn begin(&mut self) -> QueryResult<()>;

    /// Begins the transaction of a group, in which no statement waits longer than `wait` for a lock. If the server [can
    /// refuse it](super::dialect::RoundTrips::REFUSES_COMMITS), only [`commit_group`](Self::commit_group) can commit
    /// the transaction.
    fn begin_impatiently(&mut self, wait: Duration) -> QueryResult<()>;

    /// Commits the transaction of a group. If `wait` is given, the next group's transaction may have begun with the
    /// commit: `true`. Diesel does not know this; for Diesel the first transaction goes on.
    fn commit_group(&mut self, _wait: Option<Duration>) -> QueryResult<bool> {
        <Self::TransactionManager as TransactionManager<Self>>::commit_transaction(self).map(|()| false)
    }

    /// Restores the session's own lock wait after [`begin_impatiently`](Self::begin_impatiently) and the end of its
    /// transaction. After an error the session must not be used again.
    fn restore_patience(&mut self, _wait: Duration) -> QueryResult<()> {
        Ok(())
    }

    /// Runs a statement that controls the transaction, in as few round trips as possible.
    fn control(&mut self, statement: &'static str) -> QueryResult<()> {
        self.batch_execute(statement)
    }

    /// Checks that the handler's savepoint still exists, if the client does not see of itself that a statement has ended
    /// the transaction.
    ///
    /// # Errors
    ///
    /// If the savepoint is gone, or cannot be released.
    fn check_savepoint(&mut self) -> QueryResult<()> {
        Ok(())
    }

    /// Tells whether the server runs several statements as one outside of routines, as MariaDB does. `refused` is its
    /// error for such a text: `false` then means that the server did not understand it, and did nothing.
    fn has_compounds(_refused: Option<&Error>) -> bool {
        false
    }

    /// Commits the transaction and begins the next one. Diesel does not know this; for Diesel the first transaction
    /// goes on.
    fn commit_and_begin(&mut self) -> QueryResult<()>;

    /// Runs `change` in a transaction of its own (a savepoint inside an open one) in which no statement waits longer
    /// than `wait` for a lock. The second argument of `change` tells whether the transaction is its own.
    ///
    /// # Errors
    ///
    /// The error of `change` or of the transaction. Nothing is changed then.
    fn with_lock_wait<T>(
        &mut self,
        wait: Duration,
        change: impl FnOnce(&mut Self, bool) -> QueryResult<T>,
    ) -> QueryResult<T>;
}
