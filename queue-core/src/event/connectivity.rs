//! Whether the threads of a poller have their connections.

use std::sync::Arc;
use std::time::Instant;

use super::event::Event;
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

    fn regains(&self) {
        let mut lost = self.lost.lock();
        lost.threads = lost.threads.saturating_sub(1);
        if lost.threads == 0
            && let Some(since) = lost.since.take()
        {
            self.events.tell(|| Event::ConnectionRegained { after: since.elapsed() });
        }
    }
}

/// What one thread knows about its connection.
#[derive(Default)]
pub(crate) struct ThreadConnection {
    connectivity: Option<Arc<Connectivity>>,
    is_lost: bool,
}

impl ThreadConnection {
    pub(crate) fn new(connectivity: Arc<Connectivity>) -> Self {
        ThreadConnection { connectivity: Some(connectivity), is_lost: false }
    }

    /// Notes that the thread could not get a connection.
    pub(crate) fn loses(&mut self, error: &dyn Fn() -> String) {
        if let (Some(connectivity), false) = (&self.connectivity, self.is_lost) {
            self.is_lost = true;
            connectivity.loses(error);
        }
    }

    /// Notes that the thread has a connection.
    pub(crate) fn regains(&mut self) {
        if let (Some(connectivity), true) = (&self.connectivity, self.is_lost) {
            self.is_lost = false;
            connectivity.regains();
        }
    }
}

impl Drop for ThreadConnection {
    /// A thread that leaves needs no connection.
    fn drop(&mut self) {
        self.regains();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poller_is_without_connection_from_its_first_thread_to_its_last() {
        let connectivity = Arc::new(Connectivity::default());
        let mut threads = [0, 1].map(|_| ThreadConnection::new(connectivity.clone()));
        let error = || "refused".to_owned();
        for thread in &mut threads {
            thread.loses(&error);
            thread.loses(&error);
        }
        assert_eq!(connectivity.threads_without(), 2);
        let since = connectivity.lost.lock().since;
        let [mut one, other] = threads;
        one.regains();
        one.regains();
        assert_eq!((connectivity.threads_without(), connectivity.lost.lock().since), (1, since));
        drop(other);
        assert_eq!((connectivity.threads_without(), connectivity.lost.lock().since), (0, None));
    }
}
