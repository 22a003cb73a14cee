//! Reads claimed rows again, to see whether they are still as they were claimed.

use diesel::result::{Error, QueryResult};
use diesel::sql_types::{Integer, Nullable, Text};

use super::claim::Claimed;
use super::erased::ErasedQueue;
use super::recall::{Recall, Retake};
use crate::backend::{QueueConnection, load_first};
use crate::entity::Key;
use crate::row::{Fence, Instant, TimestampUtc};

impl<K: Key, C: QueueConnection> ErasedQueue<K, C> {
    /// Reads the row's state under its lock, and waits for another session that holds it.
    pub fn recall(&self, connection: &mut C, key: &K) -> QueryResult<Option<Fence>> {
        state_of(connection, &Recall::new(self.row(key)))
    }

    /// Reads the row's state under its lock, unless another session holds it.
    pub fn recall_unless_locked(&self, connection: &mut C, key: &K) -> QueryResult<Option<Fence>> {
        state_of(connection, &Recall::new(self.row(key)).unless_locked())
    }

    /// Reads the text of the row's last failure in the same way: it may be the reservation of a group.
    pub fn recall_reservation(&self, connection: &mut C, key: &K) -> QueryResult<Option<String>> {
        let text = load_first::<Nullable<Text>, Option<String>, _>(connection, &Recall::reservation(self.row(key)))?;
        Ok(text.flatten())
    }

    /// Returns when the row's last attempt ended, or began under a lease. `None` also if the time is odd.
    pub fn last_attempt(&self, connection: &mut C, key: &K) -> QueryResult<Option<Instant>> {
        match load_first::<Nullable<TimestampUtc>, Option<Instant>, _>(connection, &Recall::last_attempt(self.row(key)))
        {
            Ok(time) => Ok(time.flatten()),
            Err(Error::DeserializationError(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Locks the row, waiting for another session that holds it, and tells whether it is exactly in this state.
    pub fn is_still(&self, connection: &mut C, key: &K, fence: Fence) -> QueryResult<bool> {
        let row = state_of(connection, &Recall::new(self.row(key)).in_state(fence))?;
        Ok(row.is_some())
    }

    /// Locks and reads again a row that is still as it was claimed, due or not. It waits for another session that holds
    /// the row.
    pub fn retake(&self, connection: &mut C, key: &K, fence: Fence) -> QueryResult<Option<Claimed<K>>> {
        self.retake_row(connection, Retake { claim: self.claim_all(), row: self.row(key), fence, judges: false })
    }

    /// Does the same only if the condition of the row's claim still holds.
    pub fn retake_if_claimable(&self, connection: &mut C, key: &K, fence: Fence) -> QueryResult<Option<Claimed<K>>> {
        self.retake_row(connection, Retake { claim: self.claim_all(), row: self.row(key), fence, judges: true })
    }

    fn retake_row(&self, connection: &mut C, retake: Retake<C::Backend>) -> QueryResult<Option<Claimed<K>>> {
        let rows = (self.load_claimed)(connection, &retake)?;
        Ok(self.with_details(connection, rows)?.pop())
    }
}

/// Reads the state of a row, if it is a known one.
fn state_of<C: QueueConnection>(connection: &mut C, recall: &Recall<C::Backend>) -> QueryResult<Option<Fence>> {
    let row = load_first::<(Text, Integer), (String, i32), _>(connection, recall)?;
    Ok(row.and_then(|(status, try_count)| Some(Fence::new(status.parse().ok()?, try_count))))
}
