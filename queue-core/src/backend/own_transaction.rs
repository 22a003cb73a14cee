//! A transaction of one's own where there is none, a savepoint where there is one.

use diesel::Connection;
use diesel::connection::{AnsiTransactionManager, TransactionManager};
use diesel::result::{Error, QueryResult};

/// Runs `change` in a transaction that `begin` opens, or in a savepoint when one is open; it is told which.
pub(crate) fn in_own_transaction<C, T>(
    connection: &mut C,
    begin: &str,
    change: impl FnOnce(&mut C, bool) -> QueryResult<T>,
) -> QueryResult<T>
where
    C: Connection<TransactionManager = AnsiTransactionManager>,
{
    match AnsiTransactionManager::begin_transaction_sql(connection, begin) {
        Ok(()) => match change(connection, true) {
            Ok(value) => AnsiTransactionManager::commit_transaction(connection).map(|()| value),
            Err(error) => {
                // The transaction may have ended with the error.
                let _ = AnsiTransactionManager::rollback_transaction(connection);
                Err(error)
            }
        },
        Err(Error::AlreadyInTransaction) => connection.transaction(|connection| change(connection, false)),
        Err(error) => Err(error),
    }
}
