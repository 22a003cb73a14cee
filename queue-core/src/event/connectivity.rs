//! Whether the threads of a poller have their connections.

use std::sync::Arc;
use std::time::Instant;

use super::event::{Event, Measure};
use super::events::Events;
use crate::sync::Mutex;

/// Which of a poller's threads have connections.
#[derive(Default)]
pub(crate) struct Connectivity {
    events: Events,
    lost: Mutex<Lost>,
}

#[derive(Default)]
struct Lost {
    /// How many threads could not get a connection when they asked last.
    threads: usize,
    /// Since when there is such a thread.
    since: Option<Instant>,
}

impl Connectivity {
    pub(crate) fn new(events: Events) -> Self {
        Connectivity { events, lost: Mutex::default() }
    }

    /// Returns how many threads have no connection.
    pub(crate) fn threads_without(&self) -> usize {
        self.lost.lock().threads
    }

    fn loses(&self, error: &dyn Fn() -> String) {
        let mut lost = self.lost.lock();
        lost.threads += 1;
        if lost.since.is_none() {
            lost.since = Some(Instant::now());
            // Under the lock, so that no thread sends the opposite event first.
            self.events.tell(|| Event::ConnectionLost { error: self.events.redacted(&error()) });
        }
    }

    /// Notes that one thread fewer is without a connection. That one may have ended, as all do when the poller stops while the
    /// database is away, so the event follows when a thread [has one](Self::tells_if_all_have).
    fn regains(&self) {
        let mut lost = self.lost.lock();
        lost.threads = lost.threads.saturating_sub(1);
    }

    /// Sends the event, if threads were without a connection, and none is now.
    fn tells_if_all_have(&self) {
        let mut lost = self.lost.lock();
        if lost.threads == 0
            && let Some(since) = lost.since.take()
        {
            self.events.tell(|| Event::ConnectionRegained { after: since.elapsed() });
        }
    }
}

/// What is known of the connection of one thread. A thread that leaves needs none.
#[derive(Clone, Default)]
pub(crate) struct ThreadConnection(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// `None`: another thread has taken this one's place.
    connectivity: Option<Arc<Connectivity>>,
    is_lost: bool,
    /// Whether the thread, or one before it, has had a connection.
    has_had_one: bool,
}

impl ThreadConnection {
    pub(crate) fn new(connectivity: Arc<Connectivity>) -> Self {
        ThreadConnection(Arc::new(Mutex::new(Known { connectivity: Some(connectivity), ..Known::default() })))
    }

    /// Takes what is known, for the thread that takes this one's place.
    pub(crate) fn take(&self) -> Self {
        ThreadConnection(Arc::new(Mutex::new(std::mem::take(&mut self.0.lock()))))
    }

    /// Notes that the thread could not get a connection.
    pub(crate) fn loses(&self, error: &dyn Fn() -> String) {
        let mut known = self.0.lock();
        if let (Some(connectivity), false) = (&known.connectivity, known.is_lost) {
            connectivity.loses(error);
            known.is_lost = true;
        }
    }

    /// Notes that the thread has opened a connection.
    pub(crate) fn opens(&self) {
        let mut known = self.0.lock();
        known.regains();
        let is_replaced = std::mem::replace(&mut known.has_had_one, true);
        if let Some(connectivity) = &known.connectivity {
            connectivity.tells_if_all_have();
            if is_replaced {
                connectivity.events.measure(|| Measure::ReplacedConnection);
            }
        }
    }
}

impl Known {
    fn regains(&mut self) {
        if let (Some(connectivity), true) = (&self.connectivity, self.is_lost) {
            connectivity.regains();
            self.is_lost = false;
        }
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        self.regains();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::events::Listeners;
    use super::*;

    #[test]
    fn a_poller_is_without_connection_from_its_first_thread_to_its_last() {
        let connectivity = Arc::new(Connectivity::default());
        let threads = [0, 1].map(|_| ThreadConnection::new(connectivity.clone()));
        let error = || "refused".to_owned();
        for thread in &threads {
            thread.loses(&error);
            thread.loses(&error);
        }
        assert_eq!(connectivity.threads_without(), 2);
        let since = connectivity.lost.lock().since;
        let [one, other] = threads;
        one.opens();
        one.opens();
        assert_eq!((connectivity.threads_without(), connectivity.lost.lock().since), (1, since));
        let substitute = other.take();
        other.opens();
        drop(other);
        assert_eq!((connectivity.threads_without(), connectivity.lost.lock().since), (1, since));
        drop(substitute);
        assert_eq!((connectivity.threads_without(), connectivity.lost.lock().since), (0, since));
        one.opens();
        assert_eq!((connectivity.threads_without(), connectivity.lost.lock().since), (0, None));
    }

    #[test]
    fn a_connection_is_replaced_by_the_second_one_of_a_thread_or_of_the_one_in_its_place() {
        static REPLACED: AtomicUsize = AtomicUsize::new(0);
        let meter = |measure: &Measure<'_>| {
            _ = REPLACED.fetch_add(usize::from(matches!(measure, Measure::ReplacedConnection)), Ordering::Relaxed);
        };
        let mut listeners = Listeners::default();
        listeners.meter = Some(meter);
        let (events, _thread) = listeners.start(None).expect("no thread is needed");
        let connectivity = Arc::new(Connectivity::new(events));
        let thread = ThreadConnection::new(connectivity.clone());
        thread.opens();
        assert_eq!(REPLACED.load(Ordering::Relaxed), 0);
        thread.opens();
        assert_eq!(REPLACED.load(Ordering::Relaxed), 1);
        thread.take().opens();
        assert_eq!(REPLACED.load(Ordering::Relaxed), 2);
    }
}
