//! Detects that a claimed row has come back as it was when its last attempt began, although its new state was
//! committed: a trigger restores the old values.

use std::time::Duration;

use diesel::result::QueryResult;

use super::served_queue::ServedQueue;
use super::settle_rules::{stored, tries_before};
use crate::backend::{ErrorClass, QueueConnection};
use crate::claim::ClaimedAs;
use crate::entity::Key;
use crate::row::{ErrorText, Fence, RowKey, Status};
use crate::statement::{Change, Next};

/// How far in the future the row would be due in the trial of a failure.
const FAR: Duration = Duration::from_secs(3600);

impl<K: Key, C: QueueConnection> ServedQueue<K, C> {
    /// If the row has come back as it was when its last attempt began, returns how often it had come back before.
    pub(super) fn has_returned(
        &self,
        connection: &mut C,
        key: &RowKey<K>,
        fence: Fence,
        claimed_as: Option<ClaimedAs>,
    ) -> QueryResult<Option<u32>> {
        let Some(claimed) = claimed_as else { return Ok(None) };
        let Some(times) = self.due_rows.kept_rows.take_returned(claimed) else { return Ok(None) };
        if self.puts_old_values_back(connection, key, fence)? {
            return Ok(Some(times));
        }
        self.due_rows.kept_rows.forget(claimed);
        Ok(None)
    }

    /// Tries to settle this locked row, and tells whether a trigger restores its old values. The trial is undone.
    fn puts_old_values_back(&self, connection: &mut C, key: &RowKey<K>, fence: Fence) -> QueryResult<bool> {
        let tries = Some(stored(tries_before(fence) + 1));
        let settled =
            Change { try_count: tries, attempted: true, error: ErrorText::Clear, stays: true, ..Change::default() };
        let trials = [
            Change { status: Some(Status::Success), next: Some(Next::Never), ..settled.clone() },
            Change { status: Some(Status::Error), next: Some(Next::In(FAR)), ..settled },
        ];
        for change in trials {
            // If the row's due time cannot be compared, the state that is written must differ in other values.
            let reads_as_before = (change.status, change.try_count) == (Some(fence.status), Some(fence.try_count));
            if reads_as_before && fence.due.is_none() {
                continue;
            }
            connection.batch_execute("SAVEPOINT queueable_trial")?;
            let is_kept = match self.queue.settle(connection, key, fence, &change) {
                Ok(rows) => rows == 1 && self.queue.is_still(connection, key, fence)?,
                Err(error) if C::classify(&error) == ErrorClass::Other => false,
                Err(error) => return Err(error),
            };
            connection.batch_execute("ROLLBACK TO SAVEPOINT queueable_trial")?;
            connection.batch_execute("RELEASE SAVEPOINT queueable_trial")?;
            if is_kept {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
