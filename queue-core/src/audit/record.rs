//! The row that a call leaves.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use diesel::connection::TransactionManager;
use diesel::result::{Error as DieselError, QueryResult};

use super::Author;
use crate::backend::{Dialect, ErrorClass, OwnTable, QueueConnection, Statement, execute};
use crate::control::check_own;
use crate::error::Error;
use crate::statement::{AuditEntry, insert_audit, read_present, update_audit};

/// How long a call about the control table that leaves a row waits for other sessions: on SQLite, for a handler's transaction.
pub(super) const CONTROL_WAIT: Duration = Duration::from_secs(60);

/// The row of a call in the audit, if the call leaves one.
#[derive(Debug, Default)]
pub(crate) struct Record(Option<Row>);

#[derive(Debug)]
struct Row {
    entry: AuditEntry,
    /// How many rows the call has changed so far, as the table says.
    rows: i64,
    is_written: bool,
    /// Whether the call writes its number of rows anew with each batch. Otherwise each batch has a row.
    is_updated: bool,
}

impl Record {
    /// Begins the record of a call, of which the queue, the action and the filter are given. It finds out whether the session
    /// can write the row, and leaves none yet.
    pub(crate) fn begin<C: QueueConnection>(
        connection: &mut C,
        author: &Author,
        (queue, action, filter): (String, String, String),
        wait: Duration,
        in_batches: bool,
    ) -> Result<Self, Error> {
        let at = read_present(connection)?.ok_or(DieselError::NotFound)?;
        let Author { by, reason } = author.clone();
        let entry = AuditEntry { at, id: next_id(), by, reason, queue, action, filter };
        let mut row = Row { entry, rows: 0, is_written: false, is_updated: in_batches };
        let depth = C::TransactionManager::transaction_manager_status_mut(connection).transaction_depth();
        // InnoDB keeps the gap of an insert that a savepoint has undone locked, and other authors would wait for it.
        let tries = C::Backend::SAVEPOINT_FREES_LOCKS || matches!(depth, Ok(None));
        loop {
            let mut held = None;
            let found = check_own(connection, OwnTable::Audit, ("audit", "audit", "SELECT, INSERT"), |connection| {
                if !tries {
                    return Ok(());
                }
                row.try_to_write(connection, wait).or_else(|error| match C::classify(&error) {
                    ErrorClass::Conflict => {
                        held = Some(error);
                        Ok(())
                    }
                    _ => Err(error),
                })
            })?;
            match (held, found) {
                (Some(error), _) => return Err(Error::Held(error)),
                (None, None) => return Ok(Record(Some(row))),
                (None, Some(_)) if row.is_updated => row.is_updated = false,
                (None, Some(found)) => {
                    return Err(Error::Control(format!("{}; to mend it: {}", found.problem, found.mend)));
                }
            }
        }
    }

    /// Writes that the call changes so many more rows, in the transaction that changes them.
    pub(crate) fn write<C: QueueConnection>(&self, connection: &mut C, more: usize) -> QueryResult<()> {
        let Some(Row { entry, rows, is_written, is_updated }) = &self.0 else { return Ok(()) };
        if *is_written && more == 0 {
            return Ok(());
        }
        let rows = rows.saturating_add_unsigned(more as u64);
        // Somebody may have removed the row.
        if !*is_written || !*is_updated || execute(connection, &update_audit(entry, rows))? == 0 {
            execute(connection, &insert_audit(entry, rows))?;
        }
        Ok(())
    }

    /// Notes that this is committed.
    pub(crate) fn committed(&mut self, more: usize) {
        let Some(row) = &mut self.0 else { return };
        row.is_written = true;
        match row.is_updated {
            true => row.rows = row.rows.saturating_add_unsigned(more as u64),
            false => row.entry.id = next_id(),
        }
    }

    /// Tells whether there is nothing more to write, if no rows were changed.
    pub(crate) fn is_written(&self) -> bool {
        self.0.as_ref().is_none_or(|row| row.is_written)
    }

    /// Runs a statement about the control table, and writes in the same transaction whether it has changed one. Returns how many.
    pub(super) fn beside<C: QueueConnection>(
        &self,
        connection: &mut C,
        statement: &dyn Statement<C::Backend>,
    ) -> QueryResult<usize> {
        if self.0.is_none() {
            return execute(connection, statement);
        }
        connection.with_lock_wait(CONTROL_WAIT, |connection, _| {
            // MySQL counts a row twice if it takes the place of another.
            let rows = execute(connection, statement)?.min(1);
            self.write(connection, rows)?;
            Ok(rows)
        })
    }
}

impl Row {
    /// Writes the row, and undoes it: the transaction of a large change would fail at its end.
    fn try_to_write<C: QueueConnection>(&self, connection: &mut C, wait: Duration) -> QueryResult<()> {
        let tried = connection.with_lock_wait(wait, |connection, _| {
            execute(connection, &insert_audit(&self.entry, 0))?;
            if self.is_updated {
                execute(connection, &update_audit(&self.entry, 0))?;
            }
            Err::<(), _>(DieselError::RollbackTransaction)
        });
        match tried {
            Err(DieselError::RollbackTransaction) => Ok(()),
            other => other,
        }
    }
}

/// Returns a number that no other process has, by chance, and that is higher than those before it in this one: SQLite tells no two
/// calls within a millisecond apart by their time.
fn next_id() -> i64 {
    static NEXT: LazyLock<AtomicI64> = LazyLock::new(|| AtomicI64::new(fastrand::i64(0..i64::MAX / 2)));
    NEXT.fetch_add(1, Ordering::Relaxed)
}
