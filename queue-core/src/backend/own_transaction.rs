//! A transaction of the operation's own or, inside an open one, a savepoint.

use diesel::Connection;
use diesel::connection::TransactionManager;
use diesel::result::{Error, QueryResult};

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
