//! Locks that stay usable after their holder has panicked.

use std::sync::{self, MutexGuard, PoisonError};

/// A mutex whose lock is taken even if its holder has panicked: every section under it leaves the state whole.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(state: T) -> Self {
        Mutex(sync::Mutex::new(state))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
