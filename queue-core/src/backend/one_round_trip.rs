//! The end of a message in one round trip, on databases that can do it.

use diesel::Connection;
use diesel::result::{Error, QueryResult};

use super::settings::SessionSettings;
use crate::error::refused;

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

/// What begins together with the end of a message.
#[derive(Debug, Clone, Copy)]
pub enum AfterFinish<'a> {
    /// Nothing.
    Nothing,
    /// The next transaction.
    Begin,
    /// The next transaction, by locking a row: the name of a prepared [`lock_version`](crate::statement::lock_version)
    /// and its arguments. If the row can be locked, the savepoint is set anew as well. The token differs from those
    /// that an earlier message of the session may have left behind.
    Lock(&'a str, u64),
}

/// The end of a message in one round trip, on databases that can do it.
pub trait OneRoundTrip<DB = <Self as Connection>::Backend>: SessionSettings<DB> {
    /// Ends a message in one round trip: releases the savepoint, settles, commits, and begins what comes next. `settle`
    /// is the name of a prepared [`finish`](crate::statement::finish) and its arguments; the statement also compares
    /// the settings. Returns whether the next row is locked, if `next` asks for that. If it is not, the transaction has
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
    /// compares them.
    fn prepare_finish(&mut self, _name: &str, _statement: &str, _settings: Option<&Self::Settings>) -> QueryResult<()> {
        Ok(())
    }

    /// Tells how far a [`finish_block`](crate::statement::finish_block) came that has failed. `not_one_row` is in the
    /// message if the row was not as it was claimed.
    fn unfinished(error: Error, _not_one_row: &str) -> Unfinished {
        Unfinished::NotWritten(error)
    }
}
