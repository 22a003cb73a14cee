//! Wakes the pollers of this process when a row is enqueued in it.
//!
//! An enqueue is an ordinary insert in the application's own transaction, so nobody can see its commit from outside.
//! What can be seen is that somebody asked for a due time ([`due_now`](crate::Queueable::due_now) and its siblings). A
//! poller that serves the same queue then looks several times in quick succession, and finds the row right after its
//! commit. An idle process costs nothing more than its poll interval.

use std::any::TypeId;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

static POLLERS: Mutex<Vec<Weak<Bell>>> = Mutex::new(Vec::new());

/// Says that a row of this queue is about to be enqueued.
pub(crate) fn announce<T: 'static>() {
    let mut pollers = unpoisoned(POLLERS.lock());
    pollers.retain(|poller| match poller.upgrade() {
        Some(bell) => {
            bell.ring(Some(TypeId::of::<T>()));
            true
        }
        None => false,
    });
}

/// The bell of one poller: rung by enqueuers, by `wake` and by shutdown; the poller's scout sleeps on it.
#[derive(Default)]
pub(crate) struct Bell {
    rung: Mutex<Rung>,
    changed: Condvar,
}

/// What was rung since the last wait.
#[derive(Default)]
pub(crate) struct Rung {
    /// The queues for which a row was announced.
    pub(crate) announced: Vec<TypeId>,
    /// The lanes whose workers found nothing more.
    pub(crate) cooled: Vec<usize>,
    /// Whether all queues are to be looked at now.
    pub(crate) all: bool,
}

impl Bell {
    /// Creates a bell that `announce` reaches for as long as it lives.
    pub(crate) fn new() -> Arc<Self> {
        let bell = Arc::new(Bell::default());
        unpoisoned(POLLERS.lock()).push(Arc::downgrade(&bell));
        bell
    }

    /// Rings for one queue, or for all.
    pub(crate) fn ring(&self, queue: Option<TypeId>) {
        let mut rung = unpoisoned(self.rung.lock());
        match queue {
            Some(queue) if !rung.announced.contains(&queue) => rung.announced.push(queue),
            Some(_) => {}
            None => rung.all = true,
        }
        self.changed.notify_all();
    }

    /// Says that a lane's workers found nothing more.
    pub(crate) fn cooled(&self, lane: usize) {
        unpoisoned(self.rung.lock()).cooled.push(lane);
        self.changed.notify_all();
    }

    /// Sleeps until the bell rings, but not past `deadline`.
    pub(crate) fn wait(&self, deadline: Instant) -> Rung {
        let mut rung = unpoisoned(self.rung.lock());
        while !rung.all && rung.announced.is_empty() && rung.cooled.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                break;
            }
            rung = self.changed.wait_timeout(rung, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        std::mem::take(&mut *rung)
    }
}

/// A lock whose holder panicked is taken all the same: every section under it leaves the state whole.
pub(crate) fn unpoisoned<'a, T>(lock: Result<MutexGuard<'a, T>, PoisonError<MutexGuard<'a, T>>>) -> MutexGuard<'a, T> {
    lock.unwrap_or_else(PoisonError::into_inner)
}
