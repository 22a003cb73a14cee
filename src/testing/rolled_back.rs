//! Transactions of a test that are taken back.

use std::num::NonZero;

use diesel::connection::TransactionManager;
use diesel::result::{Error as DieselError, QueryResult};

use crate::Error;
use crate::bounds::QueueConnection;

/// Takes back all that is done on a connection meanwhile, when it ends or is dropped.
pub(super) struct RolledBack<'c, C: QueueConnection> {
    connection: &'c mut C,
    /// How many transactions were open before.
    outer: u32,
    has_ended: bool,
}

impl<'c, C: QueueConnection> RolledBack<'c, C> {
    /// Begins a transaction, or a savepoint if one is open.
    pub(super) fn begin(connection: &'c mut C) -> Result<Self, Error> {
        let outer = depth_of(connection);
        C::TransactionManager::begin_transaction(connection)?;
        Ok(RolledBack { connection, outer, has_ended: false })
    }

    /// Returns the connection, inside the transaction.
    pub(super) fn connection(&mut self) -> &mut C {
        self.connection
    }

    /// Rolls back.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if the transaction is gone already, and [`Error::Database`].
    pub(super) fn end(mut self) -> Result<(), Error> {
        self.has_ended = true;
        self.roll_back()
    }

    fn roll_back(&mut self) -> Result<(), Error> {
        if depth_of(self.connection) <= self.outer {
            return Err(Error::Database(DieselError::NotInTransaction));
        }
        Ok(roll_back_to(self.connection, self.outer)?)
    }
}

impl<C: QueueConnection> Drop for RolledBack<'_, C> {
    fn drop(&mut self) {
        if !self.has_ended {
            let _ = self.roll_back();
        }
    }
}

/// Returns how many transactions are open, one in the other. 0 also if Diesel does not know, after an error.
pub(super) fn depth_of<C: QueueConnection>(connection: &mut C) -> u32 {
    let status = C::TransactionManager::transaction_manager_status_mut(connection);
    status.transaction_depth().ok().flatten().map_or(0, NonZero::get)
}

/// Rolls back to so many open transactions.
pub(super) fn roll_back_to<C: QueueConnection>(connection: &mut C, depth: u32) -> QueryResult<()> {
    while depth_of(connection) > depth {
        C::TransactionManager::rollback_transaction(connection)?;
    }
    Ok(())
}
