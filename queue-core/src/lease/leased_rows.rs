//! The rows that this process has leased, shared by handlers, workers and the heartbeat.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use crate::attempt::NewState;
use crate::claim::ClaimedAs;
use crate::event::Watch;
use crate::handler::{LeaseClock, LeaseLost, OwnedMessage};
use crate::row::{Details, Fence, RowKey};
use crate::sync::Mutex;

/// A row that this process has leased.
#[derive(Debug)]
pub(crate) struct LeasedRow<K> {
    pub(crate) key: RowKey<K>,
    /// The state in which it was claimed.
    pub(crate) before: Fence,
    /// When it was due, if that is known.
    pub(crate) due: Option<crate::row::Instant>,
    /// The state in which it was claimed, in the form by which a later claim recognizes it. `None`: the claim found the row by the lease
    /// that it had written.
    pub(crate) claimed_as: Option<ClaimedAs>,
    /// The state in which the row is now: the fence of every write.
    pub(crate) fence: Fence,
    /// The number of this attempt.
    pub(crate) tries: u32,
    pub(crate) details: Details,
    pub(crate) clock: Arc<LeaseClock>,
}

/// A leased row with its message.
pub(crate) struct LeasedMessage<K> {
    pub(crate) held: Arc<LeasedRow<K>>,
    pub(crate) message: OwnedMessage,
}

/// A leased row, and the new state that is decided for it.
pub(crate) struct DecidedLease<K> {
    pub(crate) held: Arc<LeasedRow<K>>,
    pub(crate) new: NewState,
}

/// A leased row, and what the listeners hear of its attempt.
#[derive(Clone)]
pub(crate) struct WatchedRow<K> {
    pub(crate) held: Arc<LeasedRow<K>>,
    pub(crate) watch: Watch,
}

impl<K> Deref for WatchedRow<K> {
    type Target = LeasedRow<K>;

    fn deref(&self) -> &LeasedRow<K> {
        &self.held
    }
}

/// The rows of one entity that this process has leased, by the identity of their keys.
pub(crate) struct LeasedRows<K>(Mutex<HashMap<Arc<str>, Arc<LeasedRow<K>>>>);

impl<K> LeasedRows<K> {
    pub(crate) fn new() -> Self {
        LeasedRows(Mutex::default())
    }

    /// Adds a row that was claimed. If an attempt of this process still has the row, it has lost it. The fence does not
    /// show this, because a row that was enqueued anew counts its tries from the start.
    pub(crate) fn add(&self, held: Arc<LeasedRow<K>>) {
        if let Some(before) = self.0.lock().insert(held.key.identity().clone(), held) {
            before.clock.end(LeaseLost::Overtaken);
        }
    }

    /// Forgets a row whose lease is not to be extended any more.
    pub(crate) fn remove(&self, held: &Arc<LeasedRow<K>>) {
        let key = held.key.identity();
        let mut rows = self.0.lock();
        if rows.get(key).is_some_and(|other| Arc::ptr_eq(other, held)) {
            rows.remove(key);
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<LeasedRow<K>>> {
        self.0.lock().values().cloned().collect()
    }
}
