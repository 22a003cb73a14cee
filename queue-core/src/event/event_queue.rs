//! The thread of the listeners, and the events that wait for it: a bounded queue that drops what it has no room for, and
//! counts it.

use std::collections::VecDeque;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, PoisonError};
use std::time::Duration;

use super::event::{Event, Measure, Meter};
use crate::error::panic_text;
use crate::sync::Mutex;

/// How many events wait at most: those of some hundred milliseconds at ten thousand messages a second.
const MOST_WAITING: usize = 4096;

/// How long a poller that ends waits until its listeners have received the last events.
const GRACE: Duration = Duration::from_secs(5);

pub(super) type Listener = Box<dyn FnMut(&Event) + Send>;

/// The events that wait for the listeners' thread.
#[derive(Default)]
pub(crate) struct EventQueue {
    waiting: Mutex<Waiting>,
    /// The listeners' thread waits for it, and so does the thread that waits for its end.
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<Event>,
    /// How many events were dropped since the last one that waits.
    dropped: u64,
    /// The event after which nothing comes. It is never dropped.
    last: Option<Event>,
    is_closed: bool,
    has_ended: bool,
}

/// Events in their order, how many were dropped after them, and the last event of all.
struct Batch {
    events: VecDeque<Event>,
    dropped: u64,
    last: Option<Event>,
}

impl EventQueue {
    /// Adds an event, or counts it as dropped if too many wait. It never waits for a listener.
    pub(crate) fn push(&self, event: Event) {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            return;
        }
        // Once events were dropped, the rest follow them until the listeners have caught up. So the gap is in one place.
        if waiting.dropped > 0 || waiting.events.len() >= MOST_WAITING {
            waiting.dropped += 1;
            return;
        }
        let was_empty = waiting.events.is_empty();
        waiting.events.push_back(event);
        drop(waiting);
        if was_empty {
            self.changed.notify_all();
        }
    }

    /// Adds the last event, after which the queue is closed. Events of a thread that was left behind are dropped.
    pub(crate) fn push_last(&self, event: Event) {
        let mut waiting = self.waiting.lock();
        if !waiting.is_closed {
            (waiting.last, waiting.is_closed) = (Some(event), true);
        }
        drop(waiting);
        self.changed.notify_all();
    }

    /// Waits for events and takes them all. `None`: the queue is closed and empty.
    fn take(&self) -> Option<Batch> {
        let mut waiting = self.waiting.lock();
        while waiting.events.is_empty() && waiting.dropped == 0 && waiting.last.is_none() {
            if waiting.is_closed {
                return None;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        Some(Batch {
            events: mem::take(&mut waiting.events),
            dropped: mem::take(&mut waiting.dropped),
            last: waiting.last.take(),
        })
    }

    /// Notes that nothing more will come.
    fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Notes that the listeners' thread has ended.
    fn end(&self) {
        self.waiting.lock().has_ended = true;
        self.changed.notify_all();
    }

    /// Waits until the listeners' thread has ended, but no longer than this. Returns whether it has.
    fn await_end(&self, grace: Duration) -> bool {
        let is_at_work = |waiting: &mut Waiting| !waiting.has_ended;
        let waited = self.changed.wait_timeout_while(self.waiting.lock(), grace, is_at_work);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

/// Calls the listeners until the queue is closed.
pub(super) fn pass_on(queue: &EventQueue, listeners: Vec<Listener>, meter: Option<Meter>) {
    let meter_has_panicked = AtomicBool::new(false);
    let mut listeners: Vec<_> = listeners.into_iter().map(|listener| (listener, AtomicBool::new(false))).collect();
    let mut tell = |event: &Event| {
        for (listener, has_panicked) in &mut listeners {
            call_safely(has_panicked, || listener(event));
        }
    };
    while let Some(Batch { events, dropped, last }) = queue.take() {
        events.iter().for_each(&mut tell);
        if dropped > 0 {
            tracing::warn!(events = dropped, "the listeners are too slow; the poller drops events");
            if let Some(meter) = meter {
                call_safely(&meter_has_panicked, || meter(&Measure::DroppedEvents(dropped)));
            }
            tell(&Event::EventsDropped { events: dropped });
        }
        last.iter().for_each(&mut tell);
    }
    // The listeners' own `Drop` is user code too.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(listeners))) {
        mem::forget(panic);
    }
    queue.end();
}

/// Calls a listener, or a recorder of metrics. Its panic is logged once.
pub(super) fn call_safely(has_panicked: &AtomicBool, call: impl FnOnce()) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(call)) else { return };
    let text = panic_text(panic);
    if !has_panicked.swap(true, Ordering::Relaxed) {
        tracing::warn!("a listener panicked; the poller still calls it, and logs no further panic of it: {text}");
    }
}

/// The thread of the listeners. When it is dropped, the listeners receive the last events, if they are fast enough.
pub(crate) struct ListenerThread(pub(super) Option<Arc<EventQueue>>);

impl Drop for ListenerThread {
    fn drop(&mut self) {
        let Some(queue) = &self.0 else { return };
        queue.close();
        if !queue.await_end(GRACE) {
            tracing::warn!("a listener did not return; the poller stops without it");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    fn event(events: u64) -> Event {
        Event::EventsDropped { events }
    }

    #[test]
    fn a_full_queue_drops_and_counts_until_its_events_are_taken() {
        let queue = EventQueue::default();
        let sent = u64::try_from(MOST_WAITING).unwrap_or_default() + 3;
        (0..sent).for_each(|number| queue.push(event(number)));
        let batch = queue.take().expect("the events that wait");
        assert_eq!((batch.events.len(), batch.dropped), (MOST_WAITING, 3));
        assert_eq!(batch.events.back(), Some(&event(sent - 4)));
        queue.push(event(7));
        let batch = queue.take().expect("one event");
        assert_eq!((batch.events.into_iter().collect::<Vec<_>>(), batch.dropped), (vec![event(7)], 0));
        (0..=sent).for_each(|number| queue.push(event(number)));
        queue.push_last(event(8));
        queue.push(event(9));
        let batch = queue.take().expect("the last events");
        assert_eq!((batch.events.len(), batch.dropped, batch.last), (MOST_WAITING, 4, Some(event(8))));
        assert!(queue.take().is_none());
    }

    #[test]
    fn the_end_of_a_listener_is_awaited_no_longer_than_its_grace() {
        let queue = EventQueue::default();
        assert!(!queue.await_end(Duration::ZERO));
        queue.end();
        assert!(queue.await_end(Duration::MAX));
    }

    #[test]
    fn dropped_events_are_measured() {
        static DROPPED: AtomicU64 = AtomicU64::new(0);
        let meter = |measure: &Measure<'_>| {
            if let Measure::DroppedEvents(events) = measure {
                DROPPED.fetch_add(*events, Ordering::Relaxed);
            }
        };
        let queue = EventQueue::default();
        (0..=MOST_WAITING).for_each(|_| queue.push(event(0)));
        queue.close();
        pass_on(&queue, Vec::new(), Some(meter));
        assert_eq!(DROPPED.load(Ordering::Relaxed), 1);
    }
}
