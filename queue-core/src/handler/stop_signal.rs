//! What tells async code that its handler has lost the transaction.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use crate::lock::Mutex;

/// Tells the async code of one worker's handlers to stop, because the handler's transaction was taken away. Other code is
/// not told: it cannot be stopped.
#[derive(Debug, Default)]
pub(crate) struct StopSignal {
    pub(super) is_given: AtomicBool,
    /// Wakes the code that waits. It asks whether the signal is given after it has put its waker here.
    pub(super) waiting: Mutex<Option<Waker>>,
}

impl StopSignal {
    /// Takes the signal back, for the next handler.
    pub(crate) fn reset(&self) {
        self.is_given.store(false, Ordering::SeqCst);
    }

    /// Gives the signal.
    pub(crate) fn give(&self) {
        self.is_given.store(true, Ordering::SeqCst);
        if let Some(waiting) = self.waiting.lock().take() {
            waiting.wake();
        }
    }
}
