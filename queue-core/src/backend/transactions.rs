//! How transactions begin and end.

use std::time::Duration;

use diesel::Connection;
use diesel::connection::TransactionManager;
use diesel::result::{Error, QueryResult};

/// The text that the error quotes by which a handler's COMMIT of its group is refused. Nothing but another text for the row
/// follows from it.
pub(crate) const COMMIT_REFUSED: &str = "queueable: a handler cannot commit its group";

/// How transactions begin and end.
pub trait Transactions: Connection {
    /// Begins the message's transaction: READ COMMITTED stated where the database has it, `BEGIN IMMEDIATE` on SQLite.
    fn begin(&mut self) -> QueryResult<()>;

    /// Begins the transaction of a group, in which no statement waits longer than `wait` for a lock. Where the server
    /// [can](super::dialect::RoundTrips::REFUSES_COMMITS), it is [`commit_group`](Self::commit_group) alone that commits it.
    fn begin_impatiently(&mut self, wait: Duration) -> QueryResult<()>;

    /// Commits the transaction of a group. Where `wait` is given, the next group's may have begun with it: `true`. Diesel
    /// knows nothing of that: it is to it as if the first went on.
    fn commit_group(&mut self, _wait: Option<Duration>) -> QueryResult<bool> {
        <Self::TransactionManager as TransactionManager<Self>>::commit_transaction(self).map(|()| false)
    }

    /// Puts the session's own lock wait back after [`begin_impatiently`](Self::begin_impatiently) and the end of its
    /// transaction. After an error the session is of no further use.
    fn restore_patience(&mut self, wait: Duration) -> QueryResult<()>;

    /// Runs a statement that controls the transaction, in as few round trips as there can be.
    fn control(&mut self, statement: &'static str) -> QueryResult<()> {
        self.batch_execute(statement)
    }

    /// Whether the server runs several statements as one outside of routines, as MariaDB does. `refused` is what it has
    /// answered to that: `false` then says that it has not understood, and done nothing.
    fn has_compounds(_refused: Option<&Error>) -> bool {
        false
    }

    /// Commits the transaction and begins the next one, of which Diesel knows nothing: it is to it as if the first went on.
    fn commit_and_begin(&mut self) -> QueryResult<()>;

    /// Runs `change` in a transaction of its own (a savepoint inside an open one) in which no statement waits longer
    /// than `wait` for a lock. `change` is told whether the transaction is its own.
    ///
    /// # Errors
    ///
    /// What `change` or the transaction answers; nothing is changed then.
    fn with_lock_wait<T>(
        &mut self,
        wait: Duration,
        change: impl FnOnce(&mut Self, bool) -> QueryResult<T>,
    ) -> QueryResult<T>;
}
