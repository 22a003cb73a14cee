//! Transactions of the library's own, in which no handler runs.

use diesel::connection::TransactionManager;
use diesel::result::{Error as DieselError, QueryResult};

use crate::backend::QueueConnection;

/// Runs `work` in a transaction of its own.
pub(crate) fn in_transaction<C: QueueConnection, T>(
    connection: &mut C,
    work: impl FnOnce(&mut C) -> QueryResult<T>,
) -> QueryResult<T> {
    connection.begin()?;
    let result = work(connection);
    end_transaction(connection, result)
}

/// Commits if the work succeeded, or else rolls back.
fn end_transaction<C: QueueConnection, T>(connection: &mut C, result: QueryResult<T>) -> QueryResult<T> {
    let result = result.and_then(|value| {
        C::TransactionManager::commit_transaction(connection)?;
        Ok(value)
    });
    if let Err(error) = &result
        && !matches!(error, DieselError::RollbackErrorOnCommit { .. })
    {
        // The transaction may have ended with the error; the caller closes a connection that stays in doubt.
        let _ = C::TransactionManager::rollback_transaction(connection);
    }
    result
}
