//! Trials that take locks and leave nothing behind.

use std::time::Duration;

use diesel::connection::TransactionManager;
use diesel::result::{Error as DieselError, QueryResult};

use crate::backend::{Dialect, ErrorClass, QueueConnection};

/// What a trial that leaves nothing behind has found.
pub(super) enum Tried<T> {
    Done(T),
    /// Another connection is writing.
    OthersWrite,
    /// Nothing was tried: inside a transaction on MySQL and SQLite, which would keep the locks to its end, on a server without
    /// `SKIP LOCKED`, or in a session that may only read.
    Nothing,
}

/// Does something that takes locks, and rolls it back at once.
pub(super) fn without_trace<T, C: QueueConnection>(
    connection: &mut C,
    mut work: impl FnMut(&mut C) -> QueryResult<T>,
) -> QueryResult<Tried<T>> {
    let mut found = Tried::Nothing;
    if C::Backend::ONE_WRITER {
        // Rolled back, because without WAL even an empty commit would wait for readers.
        let writes = connection.with_lock_wait(Duration::ZERO, |connection, alone| {
            // The caller's transaction would keep the lock of a write to its end.
            if alone {
                found = Tried::Done(work(connection)?);
            }
            Err::<(), _>(DieselError::RollbackTransaction)
        });
        return match writes {
            Err(DieselError::RollbackTransaction) => Ok(found),
            Err(error) if C::classify(&error) == ErrorClass::Conflict => Ok(Tried::OthersWrite),
            writes => writes.map(|()| found),
        };
    }
    let depth = C::TransactionManager::transaction_manager_status_mut(connection).transaction_depth();
    let is_inside = !matches!(depth, Ok(None));
    if (is_inside && !C::Backend::SAVEPOINT_FREES_LOCKS) || !connection.skips_locked_rows()? {
        return Ok(found);
    }
    let ended = connection.transaction::<(), DieselError, _>(|connection| {
        found = Tried::Done(work(connection)?);
        Err(DieselError::RollbackTransaction)
    });
    match ended {
        Err(error) if C::classify(&error) == ErrorClass::ConnectionLost => Err(error),
        _ => Ok(found),
    }
}
