//! A value of the user's type whose `Drop` may panic.

use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Holds a value of the user's: a panic while it is dropped is logged, and changes nothing of what was written. Several in a
/// row would end the process.
pub(crate) struct PanicSafeDrop<T>(Option<T>);

impl<T> PanicSafeDrop<T> {
    pub(crate) fn new(value: T) -> Self {
        PanicSafeDrop(Some(value))
    }

    /// The value, which is its taker's to drop.
    pub(crate) fn into_inner(mut self) -> T {
        self.0.take().expect("the value is there until it is dropped")
    }
}

impl<T> Deref for PanicSafeDrop<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("the value is there until it is dropped")
    }
}

impl<T> DerefMut for PanicSafeDrop<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("the value is there until it is dropped")
    }
}

impl<T> Drop for PanicSafeDrop<T> {
    fn drop(&mut self) {
        let value = self.0.take();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
            // Its text was printed by the panic already, and is the application's.
            std::mem::forget(panic);
            tracing::error!("a value panicked when it was dropped");
        }
    }
}

/// Drops something of the user's, whose `Drop` may panic.
pub(crate) fn drop_safely<T>(value: T) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        std::mem::forget(panic);
    }
}
