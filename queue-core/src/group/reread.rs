//! Rows that a neighbour's handler has changed since the group claimed them.
//!
//! A group finds out at the end of a message that somebody has changed its row: then the handler has run already, and
//! perhaps those of later rows too, so the group is undone and all of its calls are repeated. To look before each
//! handler would cost every group a statement for each row, although hardly any handler writes on its neighbours. So
//! only the next groups look, after a group was undone for this reason.

use std::sync::atomic::{AtomicU32, Ordering};

use diesel::result::QueryResult;

use super::end::GroupRow;
use crate::backend::QueueConnection;
use crate::entity::Key;
use crate::erased_entity::ErasedEntity;
use crate::row::idempotency_key;
use crate::statement::{Claimed, ErasedQueue};

/// How many groups read their rows again after one was undone, or had a row that a neighbour has changed. A handler that
/// changes its own row in a forbidden way looks like one that changes a neighbour's, so this has an end.
const GROUPS: u32 = 100;

/// Whether an entity's groups read each row again before its handler runs.
pub(crate) struct Rereading(AtomicU32);

impl Rereading {
    /// Starts with groups that do not.
    pub(crate) fn new() -> Self {
        Rereading(AtomicU32::new(0))
    }

    /// Notes that handlers change their neighbours' rows.
    pub(crate) fn is_needed(&self) {
        self.0.store(GROUPS, Ordering::Relaxed);
    }

    /// Tells whether the next group rereads its rows.
    pub(crate) fn next(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |groups| groups.checked_sub(1)).is_ok()
    }
}

/// Reads a row of the group again. `None`: it is no longer as it was claimed, or its claim's condition no longer holds.
/// It stays as it is, as if the group had not claimed it.
pub(crate) fn reread<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    key_prefix: &str,
    row: &GroupRow<K>,
) -> QueryResult<Option<(ErasedEntity, GroupRow<K>)>> {
    let Some(Claimed { key, fence, message: Ok((entity, state)), mut details }) =
        queue.retake_if_claimable(connection, &row.key, row.fence)?
    else {
        return Ok(None);
    };
    details.lane = row.details.lane.clone();
    let idempotency_key = idempotency_key(key_prefix, &key, &details);
    let (tries, watch) = (row.tries, row.watch.clone());
    Ok(Some((entity, GroupRow { key, fence, tries, state, details, idempotency_key, watch })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_groups_read_their_rows_again_after_it_was_needed() {
        let rereading = Rereading::new();
        assert!(!rereading.next());
        rereading.is_needed();
        assert!((0..GROUPS).all(|_| rereading.next()));
        assert!(!rereading.next());
    }
}
