//! Which attempts of a poller run at this moment, for those who ask from elsewhere.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crate::sync::Mutex;

/// An attempt whose handler runs.
#[derive(Debug, Clone)]
pub(crate) struct RunningAttempt {
    pub(crate) queue: Arc<str>,
    pub(crate) key: Arc<str>,
    pub(crate) stage: Option<&'static str>,
    pub(crate) begun: Instant,
}

/// The attempts of a poller whose handlers run, each with a number of its own.
#[derive(Default)]
pub(crate) struct RunningAttempts(Mutex<HashMap<usize, RunningAttempt>>);

impl RunningAttempts {
    pub(super) fn begin(&self, number: usize, attempt: RunningAttempt) {
        self.0.lock().insert(number, attempt);
    }

    pub(super) fn end(&self, number: usize) {
        self.0.lock().remove(&number);
    }

    /// Returns those that began first, up to this number of them.
    pub(crate) fn oldest(&self, most: usize) -> Vec<RunningAttempt> {
        let mut all: Vec<_> = self.0.lock().values().cloned().collect();
        all.sort_by_key(|attempt| attempt.begun);
        all.truncate(most);
        all
    }
}
