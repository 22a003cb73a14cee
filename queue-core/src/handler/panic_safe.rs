//! A value of the user's type whose `Drop` may panic.

use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Holds a value of a user's type. A panic while it is dropped is logged, and changes nothing of what was written. Two
/// such panics at once, as in the drop of a `Vec`, would end the process.
pub(crate) struct PanicSafeDrop<T>(Option<T>);

impl<T> PanicSafeDrop<T> {
    pub(crate) fn new(value: T) -> Self {
        PanicSafeDrop(Some(value))
    }

    /// Returns the value. The caller has to drop it safely.
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
            // The panic hook has printed its text already. The payload belongs to the application, and its `Drop` may
            // panic too.
            std::mem::forget(panic);
            tracing::error!("a value panicked when it was dropped");
        }
    }
}

/// Drops a value of a user's type, whose `Drop` may panic.
pub(crate) fn drop_safely<T>(value: T) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        std::mem::forget(panic);
    }
}
