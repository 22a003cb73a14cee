//! How transactions begin and end.

use std::time::Duration;

use diesel::Connection;
use diesel::connection::TransactionManager;
use diesel::result::{Error, QueryResult};

use super::setup::SessionSettings;
use crate::error::refused;
use crate::sync::in_test::outer_transactions;

/// The text in the error by which the server refuses a handler's COMMIT of its group. It only decides which text the
/// row gets.
pub(crate) const COMMIT_REFUSED: &str = "queueable: a handler cannot commit its group";

/// How transactions begin and end.
pub trait Transactions<DB = <Self as Connection>::Backend>: Connection {
    /// Begins the message's transaction: READ COMMITTED stated where the database has it, `BEGIN IMMEDIATE` on SQLite.
    fn begin(&mut self) -> QueryResult<()>;

    /// Begins the transaction of a group, in which no statement waits longer than `wait` for a lock. If the server [can
    /// refuse it](super::dialect::Dialect::REFUSES_COMMITS), only [`commit_group`](Self::commit_group) can commit
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

/// How far the end of a message in one round trip came.
#[derive(Debug)]
pub enum Unfinished {
    /// The savepoint could not be released.
    Savepoint(Error),
    /// The row was not as it was claimed: no row was changed, or several were.
    RowChanged(Error),
    /// The row could not be written.
    NotWritten(Error),
    /// The commit was refused, or its answer was lost.
    NotCommitted(Error),
    /// The handler has changed the session's settings, and nothing was done: restore them first.
    OtherSettings(Error),
    /// The same, and the transaction is gone. From now on this session restores its settings before each settlement.
    SettingsNotPutBack(Error),
}

impl Unfinished {
    /// Returns the database's error.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Unfinished::Savepoint(error)
            | Unfinished::RowChanged(error)
            | Unfinished::NotWritten(error)
            | Unfinished::NotCommitted(error)
            | Unfinished::OtherSettings(error)
            | Unfinished::SettingsNotPutBack(error) => error,
        }
    }
}

/// The work that begins together with the end of a message.
#[derive(Debug, Clone, Copy)]
pub enum AfterFinish<'a> {
    /// Nothing.
    Nothing,
    /// The next transaction.
    Begin,
    /// The next transaction, by locking a row: the name of a prepared [`lock_version`](crate::statement::lock_version)
    /// and its arguments. If the row can be locked, the savepoint is set anew as well. The token, which is also an
    /// argument of the settlement, differs from those that an earlier message of the session may have left behind.
    Lock(&'a str, u64),
}

/// The end of a message in one round trip, on databases that can do it.
pub trait OneRoundTrip<DB = <Self as Connection>::Backend>: SessionSettings<DB> {
    /// Ends a message in one round trip: releases the savepoint, settles, commits, and begins what comes next. `settle`
    /// is the name of a prepared [`finish`](crate::statement::finish) and its arguments; the statement also compares
    /// the settings. On MySQL it is the update itself, and the text around it compares them. Returns whether the next row is locked, if `next` asks for that. If it is not, the transaction has
    /// begun all the same.
    ///
    /// # Errors
    ///
    /// [`Unfinished`] says how far it came. Nothing is committed, unless the connection was lost or the statement was
    /// cancelled.
    fn finish(
        &mut self,
        _savepoint: &str,
        _settle: &str,
        _next: AfterFinish<'_>,
        _settings: &Self::Settings,
    ) -> Result<bool, Unfinished> {
        Err(Unfinished::NotWritten(refused("this database does not end a message at once".to_owned())))
    }

    /// Passes from one message of a transaction to the next in one text, on a server that could have blocks and has none:
    /// releases the savepoint, settles by this update, and sets the savepoint anew.
    fn pass_on(&mut self, _savepoint: &str, _settle: &str, _settings: &Self::Settings) -> Result<(), Unfinished> {
        Err(Unfinished::NotWritten(refused("this database passes on by a block".to_owned())))
    }

    /// Begins a transaction, locks a row and sets the savepoint in one round trip. `hold` is the name of a prepared
    /// [`lock_leased`](crate::statement::lock_leased) and its arguments. `false`: there is no such row, and no
    /// transaction.
    fn begin_holding(&mut self, _hold: &str, _savepoint: &str) -> QueryResult<bool> {
        Err(refused("this database does not begin a transaction by locking".to_owned()))
    }

    /// Locks a row in the current transaction and sets the savepoint, in one round trip. `lock` is the name of a
    /// prepared [`lock_version`](crate::statement::lock_version) and its arguments. `false`: the row cannot be locked,
    /// and the transaction has begun anew.
    fn lock_next(&mut self, _lock: &str, _savepoint: &str) -> QueryResult<bool> {
        Ok(false)
    }

    /// Prepares a [`lock_version`](crate::statement::lock_version) under a name.
    fn prepare_lock(&mut self, _name: &str, _statement: &str) -> QueryResult<()> {
        Ok(())
    }

    /// Prepares a [`finish`](crate::statement::finish) or a [`lock_leased`](crate::statement::lock_leased) under a name.
    /// It returns an error if the server cannot end a message in one round trip. If settings are given, the statement
    /// compares them. `token` is the parameter with the token of the message, if the session is to keep it.
    fn prepare_finish(
        &mut self,
        _name: &str,
        _statement: &str,
        _settings: Option<&Self::Settings>,
        _token: Option<&str>,
    ) -> QueryResult<()> {
        Ok(())
    }

    /// Tells how far a [`finish_block`](crate::statement::finish_block) came that has failed. `not_one_row` is in the
    /// message if the row was not as it was claimed.
    fn unfinished(error: Error, _not_one_row: &str) -> Unfinished {
        Unfinished::NotWritten(error)
    }
}

/// Begins a transaction inside that of a test of the application's. `None`: there is none.
pub(super) fn begin_in_test<C: Connection>(connection: &mut C) -> Option<QueryResult<()>> {
    (outer_transactions() > 0).then(|| C::TransactionManager::begin_transaction(connection))
}

/// Runs `change` in a transaction that `begin` opens, or in a savepoint if a transaction is open. The second argument
/// of `change` tells whether the transaction is its own.
pub(crate) fn in_own_transaction<C: Connection, T>(
    connection: &mut C,
    begin: impl FnOnce(&mut C) -> QueryResult<()>,
    change: impl FnOnce(&mut C, bool) -> QueryResult<T>,
) -> QueryResult<T> {
    match begin(connection) {
        Ok(()) => match change(connection, true) {
            Ok(value) => C::TransactionManager::commit_transaction(connection).map(|()| value),
            Err(error) => {
                // The error may have ended the transaction already.
                let _ = C::TransactionManager::rollback_transaction(connection);
                Err(error)
            }
        },
        Err(Error::AlreadyInTransaction) => connection.transaction(|connection| change(connection, false)),
        Err(error) => Err(error),
    }
}
