//! Locks that stay usable after their holder has panicked.

use std::sync::{MutexGuard, PoisonError};

/// Takes a lock even if its holder has panicked: every section under it leaves the state whole.
pub(crate) fn unpoisoned<'a, T>(lock: Result<MutexGuard<'a, T>, PoisonError<MutexGuard<'a, T>>>) -> MutexGuard<'a, T> {
    lock.unwrap_or_else(PoisonError::into_inner)
}
