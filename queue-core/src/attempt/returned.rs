//! Detects that a claimed row has come back as it was when its last attempt began, although its new state was
//! committed: a trigger restores the old values.

use std::time::Duration;

use diesel::result::QueryResult;

use super::plan::{DecodedMessage, Plan};
use super::settle_rules::{stored, tries_before};
use crate::backend::{ErrorClass, QueueConnection};
use crate::claim::{ClaimedAs, KeptRows};
use crate::entity::Key;
use crate::row::{ErrorText, Fence, RowKey, Status};
use crate::statement::{Change, ErasedQueue, Next};

/// How far in the future the row would be due in the trial of a failure.
const FAR: Duration = Duration::from_secs(3600);

/// Returns the state by which a later claim recognises the row.
pub(super) fn claimed_as<'p, K: Key, C: QueueConnection>(
    plan: &Plan<'p, K, C>,
    key: &RowKey<K>,
    message: &DecodedMessage,
) -> Option<(&'p KeptRows, ClaimedAs)> {
    let (rows, message) = (plan.claim.kept_rows?, message.as_ref().ok()?);
    Some((rows, rows.claimed_as(key, &message.1)))
}

/// If the row has come back as it was when its last attempt began, returns how often it had come back before.
pub(super) fn has_returned<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    key: &RowKey<K>,
    fence: Fence,
    claimed_as: Option<(&KeptRows, ClaimedAs)>,
) -> QueryResult<Option<u32>> {
    let Some((rows, claimed)) = claimed_as else { return Ok(None) };
    let Some(times) = rows.take_returned(claimed) else { return Ok(None) };
    if puts_old_values_back(queue, connection, key, fence)? {
        return Ok(Some(times));
    }
    rows.forget(claimed);
    Ok(None)
}

/// Tries to settle this locked row, and tells whether a trigger restores its old values. The trial is undone.
fn puts_old_values_back<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    key: &RowKey<K>,
    fence: Fence,
) -> QueryResult<bool> {
    let tries = Some(stored(tries_before(fence) + 1));
    let settled = Change { try_count: tries, attempted: true, stays: true, ..Change::default() };
    let trials = [
        Change { status: Some(Status::Success), next: Some(Next::Never), error: ErrorText::Clear, ..settled.clone() },
        Change { status: Some(Status::Error), next: Some(Next::In(FAR)), error: ErrorText::Clear, ..settled },
    ];
    for change in trials {
        // If the row's due time cannot be compared, the state that is written must differ in other values.
        let reads_as_before = (change.status, change.try_count) == (Some(fence.status), Some(fence.try_count));
        if reads_as_before && fence.due.is_none() {
            continue;
        }
        connection.batch_execute("SAVEPOINT queueable_trial")?;
        let is_kept = match queue.settle(connection, key, fence, &change) {
            Ok(rows) => rows == 1 && queue.is_still(connection, key, fence)?,
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
