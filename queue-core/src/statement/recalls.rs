//! Reads claimed rows again, to see whether they are still as they were claimed.

use diesel::result::{Error, QueryResult};
use diesel::sql_types::{Integer, Nullable, Text};

use super::claim::Claimed;
use super::details::with_details;
use super::erased::ErasedQueue;
use super::recall::{Recall, Retake};
use crate::backend::{QueueConnection, Statement, load_first};
use crate::entity::Key;
use crate::row::{Fence, Instant, TimestampUtc};

impl<K: Key, C: QueueConnection> ErasedQueue<K, C> {
    /// Reads the row's state under its lock, and waits for another session that holds it.
    pub fn recall(&self, connection: &mut C, key: &K) -> QueryResult<Option<Fence>> {
        Ok(state_of(connection, &Recall::new(self.row(key)))?.and_then(state))
    }

    /// Reads the row's state under its lock, unless another session holds it.
    pub fn recall_unless_locked(&self, connection: &mut C, key: &K) -> QueryResult<Option<Fence>> {
        Ok(state_of(connection, &Recall::new(self.row(key)).unless_locked())?.and_then(state))
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
        let rows = (self.load_claimed)(connection, &Retake::new(self.claim_all(), self.row(key), fence))?;
        Ok(with_details(self, connection, rows)?.pop())
    }

    /// Does the same only if the condition of the row's claim still holds.
    pub fn retake_if_claimable(&self, connection: &mut C, key: &K, fence: Fence) -> QueryResult<Option<Claimed<K>>> {
        let rows =
            (self.load_claimed)(connection, &Retake::new(self.claim_all(), self.row(key), fence).if_condition_holds())?;
        Ok(with_details(self, connection, rows)?.pop())
    }
}

/// Reads the status and the try count of a row.
fn state_of<C: QueueConnection>(
    connection: &mut C,
    recall: &dyn Statement<C::Backend>,
) -> QueryResult<Option<(String, i32)>> {
    load_first::<(Text, Integer), _, _>(connection, recall)
}

/// Returns the state that was read, if it is a known one.
fn state((status, try_count): (String, i32)) -> Option<Fence> {
    Some(Fence::new(status.parse().ok()?, try_count))
}
