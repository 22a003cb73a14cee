//! The listeners of a poller, and how events reach them.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::database_clock::DatabaseClock;
use super::event::Event;
use super::event_queue::{Batch, EventQueue};
use super::meter::Meter;
use crate::error::{Error, panic_text};
use crate::redact::{Redact, redacted};

/// How long the end of a poller waits for its listeners to hear the last events.
const GRACE: Duration = Duration::from_secs(5);

type Listener = Box<dyn FnMut(&Event) + Send>;

/// The listeners of a poller that is not started yet.
#[derive(Default)]
pub(crate) struct Listeners {
    listeners: Vec<Listener>,
    pub(crate) meter: Meter,
}

impl Listeners {
    pub(crate) fn add(&mut self, listener: impl FnMut(&Event) + Send + 'static) {
        self.listeners.push(Box::new(listener));
    }

    /// Starts the thread of the listeners, if there are any.
    pub(crate) fn start(self, redact: Option<Redact>) -> Result<(Events, ListenerThread), Error> {
        let Listeners { listeners, meter } = self;
        if listeners.is_empty() && !meter.is_on() {
            return Ok((Events::default(), ListenerThread(None)));
        }
        let queue = (!listeners.is_empty()).then(Arc::<EventQueue>::default);
        if let Some(queue) = queue.clone() {
            let thread = thread::Builder::new().name("queueable-events".to_owned());
            thread.spawn(move || pass_on(&queue, listeners)).map_err(Error::Thread)?;
        }
        let has_panicked = AtomicBool::new(false);
        call_safely(&has_panicked, || meter.describe());
        let clock = DatabaseClock::default();
        let heard = Heard { meter, has_panicked, queue: queue.clone(), clock, redact };
        Ok((Events(Some(Arc::new(heard))), ListenerThread(queue)))
    }
}

/// Calls the listeners until the queue is closed.
fn pass_on(queue: &EventQueue, listeners: Vec<Listener>) {
    let mut listeners: Vec<_> = listeners.into_iter().map(|listener| (listener, AtomicBool::new(false))).collect();
    let mut tell = |event: &Event| {
        for (listener, has_panicked) in &mut listeners {
            call_safely(has_panicked, || listener(event));
        }
    };
    while let Some(Batch { events, dropped, last }) = queue.take() {
        events.iter().for_each(&mut tell);
        if dropped > 0 {
            tracing::warn!(events = dropped, "the listeners are too slow, and events are dropped");
            tell(&Event::EventsDropped { events: dropped });
        }
        last.iter().for_each(&mut tell);
    }
    // The listeners' own `Drop` is user code too.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(listeners))) {
        mem::forget(panic);
    }
    queue.ends();
}

/// Calls a listener, or a recorder of metrics. Its panic is logged once.
fn call_safely(has_panicked: &AtomicBool, call: impl FnOnce()) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(call)) else { return };
    let text = panic_text(panic);
    if !has_panicked.swap(true, Ordering::Relaxed) {
        tracing::warn!("a listener panicked, and is still called; its further panics are not logged: {text}");
    }
}

/// The way of a poller's events to its listeners. Without a listener it costs nothing.
#[derive(Clone, Default)]
pub(crate) struct Events(Option<Arc<Heard>>);

struct Heard {
    /// Called by the thread in which something has happened, so that it misses nothing.
    meter: Meter,
    /// Whether the meter's recorder has panicked.
    has_panicked: AtomicBool,
    queue: Option<Arc<EventQueue>>,
    clock: DatabaseClock,
    redact: Option<Redact>,
}

impl Events {
    /// Tells whether anybody listens.
    pub(crate) fn are_heard(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the database's clock, if anybody listens.
    pub(crate) fn clock(&self) -> Option<&DatabaseClock> {
        self.0.as_deref().map(|heard| &heard.clock)
    }

    /// Tells the listeners an event, which is made only if there are any.
    pub(crate) fn tell(&self, event: impl FnOnce() -> Event) {
        self.tell_by(event, EventQueue::push);
    }

    /// Tells the listeners the last event.
    pub(crate) fn tell_last(&self, event: impl FnOnce() -> Event) {
        self.tell_by(event, EventQueue::push_last);
    }

    fn tell_by(&self, event: impl FnOnce() -> Event, push: fn(&EventQueue, Event)) {
        let Some(heard) = &self.0 else { return };
        let event = event();
        if heard.meter.is_on() {
            call_safely(&heard.has_panicked, || heard.meter.count(&event));
        }
        if let Some(queue) = &heard.queue {
            push(queue, event);
        }
    }

    /// Returns a text as an event may contain it.
    pub(crate) fn redacted(&self, text: &str) -> String {
        redacted(text, self.0.as_ref().and_then(|heard| heard.redact.as_ref()))
    }
}

/// The thread of the listeners. When it is dropped, the listeners hear the last events, as far as they are fast enough.
pub(crate) struct ListenerThread(Option<Arc<EventQueue>>);

impl Drop for ListenerThread {
    fn drop(&mut self) {
        let Some(queue) = &self.0 else { return };
        queue.close();
        if !queue.await_end(GRACE) {
            tracing::warn!("a listener does not return, and is left behind");
        }
    }
}
