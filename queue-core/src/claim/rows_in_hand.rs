//! The rows that this process's workers are processing outside lease mode. Their locks keep others from claiming them.
//!
//! There is one exception: a handler that ends the transaction that holds its row. Then every process can claim the row
//! until the handler has returned and the worker has detected it. Other processes cannot know; the other workers of
//! this process look here.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::row::RowKey;
use crate::sync::Mutex;

/// The rows of one entity, by the texts of their keys, each with the number of its attempt.
#[derive(Default)]
pub(crate) struct RowsInHand {
    rows: Mutex<HashMap<Arc<str>, u64>>,
    attempts: AtomicU64,
}

impl RowsInHand {
    /// Takes a row, until the returned value is dropped. `None`: another worker has it.
    pub(crate) fn take<K>(&self, key: &RowKey<K>) -> Option<RowInHand<'_>> {
        let mut rows = self.rows.lock();
        if rows.contains_key(key.text()) {
            return None;
        }
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        rows.insert(key.text().clone(), attempt);
        Some(RowInHand { rows: self, key: key.text().clone(), attempt })
    }

    /// Takes a row away from a worker whose handler does not return.
    pub(crate) fn give_up<K>(&self, key: &RowKey<K>) {
        self.rows.lock().remove(key.text());
    }
}

/// A row that a worker has taken.
pub(crate) struct RowInHand<'a> {
    rows: &'a RowsInHand,
    key: Arc<str>,
    attempt: u64,
}

impl Drop for RowInHand<'_> {
    fn drop(&mut self) {
        let mut rows = self.rows.rows.lock();
        if rows.get(&self.key) == Some(&self.attempt) {
            rows.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_in_one_hand() {
        let (rows, one, two) = (RowsInHand::default(), RowKey::new(1, "1"), RowKey::new(2, "2"));
        let held = rows.take(&one);
        assert!(held.is_some() && rows.take(&one).is_none() && rows.take(&two).is_some());
        drop(held);
        assert!(rows.take(&one).is_some());
    }

    #[test]
    fn a_row_that_was_given_up_is_free_and_stays_in_its_next_hand() {
        let (rows, one) = (RowsInHand::default(), RowKey::new(1, "1"));
        let stuck = rows.take(&one);
        rows.give_up(&one);
        let next = rows.take(&one);
        assert!(next.is_some());
        drop(stuck);
        assert!(rows.take(&one).is_none());
    }
}
