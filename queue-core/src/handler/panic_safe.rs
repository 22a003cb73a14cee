//! What guards the worker from the application's code: values whose `Drop` may panic, and the signal that stops async handlers.

use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use crate::sync::Mutex;

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

/// Tells the async code of one worker's handlers to stop, because the handler's transaction was taken away. Other code is
/// not told: it cannot be stopped.
#[derive(Debug, Default)]
pub(crate) struct StopSignal(Mutex<Stop>);

#[derive(Debug, Default)]
struct Stop {
    is_given: bool,
    /// Wakes the code that waits.
    waiting: Option<Waker>,
}

impl StopSignal {
    /// Takes the signal back, for the next handler.
    pub(crate) fn reset(&self) {
        self.0.lock().is_given = false;
    }

    /// Gives the signal.
    pub(crate) fn give(&self) {
        let waiting = {
            let mut stop = self.0.lock();
            stop.is_given = true;
            stop.waiting.take()
        };
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }

    /// Returns whether the signal is given. If it is given later, `waker` wakes.
    pub(super) fn is_given_or_wakes(&self, waker: &Waker) -> bool {
        let mut stop = self.0.lock();
        stop.waiting = Some(waker.clone());
        stop.is_given
    }
}
