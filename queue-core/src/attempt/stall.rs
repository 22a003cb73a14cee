//! Whether a queue stands still for a reason that is its table's and no row's: the table, a column or a right is gone, or a
//! column has another type than when the poller started, or another build of the entity has added columns. No row is written
//! meanwhile, and the queue goes on when the table, or the process, is right again.
//!
//! A claim shows most of this at once. What only a settlement would show, such as a right to one column, the scout finds within
//! ten seconds.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use super::runner::RunnerInfo;
use crate::event::{Event, Events};
use crate::sync::Mutex;

/// How many refusals in a row stall a queue. One alone may come from a statement that was prepared before a migration.
const REFUSALS: u32 = 2;

/// No row can be decoded, and the table is not as it was.
#[derive(Debug, thiserror::Error)]
#[error("no row can be decoded: {0}; migrate the table back, or start the process anew with a struct that fits")]
pub(super) struct TypesChanged(pub(super) String);

/// Tells whether an error of decoding says that the table has changed.
pub(super) fn is_of_the_table(why: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    why.is::<TypesChanged>()
}

/// What is known of a queue that stands still.
#[derive(Default)]
pub(crate) struct Stall {
    /// The names and types of the table's columns when the poller started.
    pub(super) types: OnceLock<Vec<(String, String)>>,
    /// How many claims and probes in a row the database has refused.
    refusals: AtomicU32,
    stalled: Mutex<Option<Stalled>>,
}

struct Stalled {
    since: Instant,
    error: String,
    /// Whether the scout has found the reason. Then no claim is made, and none shows that the queue goes on.
    by_columns: bool,
}

impl Stall {
    /// Tells whether the database has refused the last claim or probe.
    pub(crate) fn is_refused(&self) -> bool {
        self.refusals.load(Ordering::Relaxed) > 0
    }

    /// Returns why the queue stands still.
    pub(crate) fn error(&self) -> Option<String> {
        self.stalled.lock().as_ref().map(|stalled| stalled.error.clone())
    }

    /// Notes a refusal. Returns whether the queue stands still: then it is said already.
    pub(super) fn note_refusal(&self, info: &RunnerInfo, error: &str, events: &Events) -> bool {
        if self.refusals.fetch_add(1, Ordering::Relaxed) + 1 < REFUSALS {
            return false;
        }
        let mut stalled = self.stalled.lock();
        if stalled.is_none() {
            // Under the lock, so that no thread sends the opposite event first.
            *stalled = Some(Stalled::begin(info, error.to_owned(), false, events));
        }
        true
    }

    /// Notes that the queue's columns, or the rights on them, have changed, or that they are right. Returns whether the queue
    /// stands still for that. If it does already, because nothing can be claimed, a claim shows when it goes on.
    pub(super) fn note_columns(&self, info: &RunnerInfo, error: Option<String>, events: &Events) -> bool {
        let mut stalled = self.stalled.lock();
        let is_known = stalled.as_ref().is_some_and(|stalled| stalled.by_columns);
        match error {
            Some(error) if stalled.is_none() => *stalled = Some(Stalled::begin(info, error, true, events)),
            None if is_known => stalled.take().into_iter().for_each(|stalled| stalled.end(info, events)),
            _ => {}
        }
        stalled.as_ref().is_some_and(|stalled| stalled.by_columns)
    }

    /// Notes that a row was claimed, or that none is due.
    pub(super) fn note_answer(&self, info: &RunnerInfo, events: &Events) {
        let mut stalled = self.stalled.lock();
        self.refusals.store(0, Ordering::Relaxed);
        if let Some(stalled) = stalled.take_if(|stalled| !stalled.by_columns) {
            stalled.end(info, events);
        }
    }
}

impl Stalled {
    fn begin(info: &RunnerInfo, error: String, by_columns: bool, events: &Events) -> Self {
        let RunnerInfo { entity, key_prefix: queue, .. } = info;
        tracing::error!(entity, "the queue stands still until its table is right again: {error}");
        events.tell(|| Event::QueueStalled { entity, queue: queue.clone(), error: error.clone() });
        Stalled { since: Instant::now(), error, by_columns }
    }

    fn end(self, RunnerInfo { entity, key_prefix: queue, .. }: &RunnerInfo, events: &Events) {
        tracing::info!(entity, "the queue goes on");
        events.tell(|| Event::QueueResumed { entity, queue: queue.clone(), after: self.since.elapsed() });
    }
}
