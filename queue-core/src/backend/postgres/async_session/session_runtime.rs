//! The runtime of one session.

use std::future::Future;
use std::io;

use tokio::runtime::{Builder, Runtime};

/// A runtime on the thread that waits. It also runs the task that reads from the connection, so that an answer wakes the
/// thread that waits for it, and no other one before.
pub(super) struct SessionRuntime {
    /// `None` once it is being dropped.
    runtime: Option<Runtime>,
}

impl SessionRuntime {
    pub(super) fn new() -> io::Result<Self> {
        Ok(SessionRuntime { runtime: Some(Builder::new_current_thread().enable_all().build()?) })
    }

    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.as_ref().expect("a session has its runtime until it is dropped").block_on(future)
    }
}

impl Drop for SessionRuntime {
    fn drop(&mut self) {
        // A plain drop waits for threads, and panics on a thread that runs async tasks.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
