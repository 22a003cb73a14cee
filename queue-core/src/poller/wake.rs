//! Wakes the pollers of this process when a row is enqueued in it.
//!
//! An enqueue is an ordinary insert in the application's own transaction. Nobody can see its commit from outside,
//! unless the entity asks the database for notifications (`listener.rs`). But this process can see that it sends a
//! statement with a due time ([`due_now`](crate::Queueable::due_now) and its siblings). A poller that serves the same
//! queue then probes several times in quick succession (`poll_timer.rs`), and finds the row right after its commit. While its
//! workers are busy, it does so after them. An idle process that neither enqueues nor listens costs nothing more than
//! its poll interval.

use std::any::TypeId;
use std::sync::{Arc, Condvar, PoisonError, Weak};
use std::time::Instant;

use crate::lock::Mutex;

static POLLERS: Mutex<Vec<Weak<WakeSignal>>> = Mutex::new(Vec::new());

/// Announces that a row of this queue is about to be enqueued.
pub(crate) fn announce<T: 'static>() {
    let mut pollers = POLLERS.lock();
    pollers.retain(|poller| match poller.upgrade() {
        Some(wake_signal) => {
            wake_signal.notify(Some(TypeId::of::<T>()));
            true
        }
        None => false,
    });
}

/// The signal that wakes the scout of one poller: enqueuers, `wake` and shutdown notify it.
#[derive(Default)]
pub(crate) struct WakeSignal {
    state: Mutex<WakeState>,
    changed: Condvar,
}

#[derive(Default)]
struct WakeState {
    reasons: WakeReasons,
    /// The queues that were announced and have not been probed since: their next probe is near.
    awaited: Vec<TypeId>,
}

/// Why the scout was woken since its last wait.
#[derive(Default)]
pub(crate) struct WakeReasons {
    /// The queues for which a row was announced, once each.
    pub(crate) announced: Vec<TypeId>,
    /// The runners whose workers found nothing more.
    pub(crate) drained: Vec<usize>,
    /// Whether all queues are to be probed now.
    pub(crate) all: bool,
}

impl WakeSignal {
    /// Creates a signal that `announce` reaches for as long as it lives.
    pub(crate) fn new() -> Arc<Self> {
        let wake_signal = Arc::new(WakeSignal::default());
        POLLERS.lock().push(Arc::downgrade(&wake_signal));
        wake_signal
    }

    /// Notes that rows of one queue, or of all, may be due. Only the first of many announcements between two probes
    /// counts, so that an application that enqueues ten thousand rows does not wake the scout ten thousand times.
    pub(crate) fn notify(&self, queue: Option<TypeId>) {
        let mut state = self.state.lock();
        match queue {
            Some(queue) if state.awaited.contains(&queue) => return,
            Some(queue) => {
                state.awaited.push(queue);
                state.reasons.announced.push(queue);
            }
            None => state.reasons.all = true,
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Notes that a probe of a queue begins: announcements from here on are news.
    pub(crate) fn begin_probe(&self, queue: TypeId) {
        self.state.lock().awaited.retain(|awaited| *awaited != queue);
    }

    /// Notes that a runner's workers found nothing more.
    pub(crate) fn note_drained(&self, runner: usize) {
        self.state.lock().reasons.drained.push(runner);
        self.changed.notify_all();
    }

    /// Sleeps until it is notified, but not past `deadline`.
    pub(crate) fn wait(&self, deadline: Instant) -> WakeReasons {
        let left = deadline.saturating_duration_since(Instant::now());
        let is_asleep = |state: &mut WakeState| !state.reasons.is_any();
        let woken = self.changed.wait_timeout_while(self.state.lock(), left, is_asleep);
        let (mut state, _) = woken.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut state.reasons)
    }
}

impl WakeReasons {
    /// Tells whether there is any reason.
    pub(crate) fn is_any(&self) -> bool {
        self.all || !self.announced.is_empty() || !self.drained.is_empty()
    }
}
