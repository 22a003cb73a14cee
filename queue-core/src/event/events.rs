//! How the events of a poller reach its listeners; the events and the span of one attempt.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use tracing::Span;
use tracing::field::Empty;
use tracing::span::EnteredSpan;

use super::counts::Collector;
use super::event::{AttemptEvent, Event, Measure, Meter};
use super::event_queue::{EventQueue, Listener, ListenerThread, call_safely, pass_on};
use super::running::{RunningAttempt, RunningAttempts};
use super::trace::{SPAN_TARGET, link};
use crate::error::Error;
use crate::log::{Redact, redacted};
use crate::sync::Mutex;
use crate::sync::in_test::note_begun;

/// The listeners of a poller that is not started yet.
#[derive(Default)]
pub(crate) struct Listeners {
    listeners: Vec<Listener>,
    /// Records for the facade `metrics`, if the application wants that.
    pub(crate) meter: Option<Meter>,
    /// Counts what attempts come to, if the poller writes that.
    pub(crate) collector: Option<Arc<Collector>>,
    /// Knows which attempts run, if the poller says so to others.
    pub(crate) running: Option<Arc<RunningAttempts>>,
}

impl Listeners {
    pub(crate) fn add(&mut self, listener: impl FnMut(&Event) + Send + 'static) {
        self.listeners.push(Box::new(listener));
    }

    /// Starts the thread of the listeners, if there are any.
    pub(crate) fn start(self, redact: Option<Redact>) -> Result<(Events, ListenerThread), Error> {
        let Listeners { listeners, meter, collector, running } = self;
        if listeners.is_empty() && meter.is_none() && collector.is_none() && running.is_none() {
            return Ok((Events::default(), ListenerThread(None)));
        }
        let queue = (!listeners.is_empty()).then(Arc::<EventQueue>::default);
        if let Some(queue) = queue.clone() {
            let thread = thread::Builder::new().name("queueable-events".to_owned());
            thread.spawn(move || pass_on(&queue, listeners, meter)).map_err(Error::Thread)?;
        }
        let (has_panicked, clock) = (AtomicBool::new(false), DatabaseClock::default());
        let heard = Heard { meter, collector, running, has_panicked, queue: queue.clone(), clock, redact };
        Ok((Events(Some(Arc::new(heard))), ListenerThread(queue)))
    }
}

/// Sends a poller's events to its listeners. Without a listener it costs nothing.
#[derive(Clone, Default)]
pub(crate) struct Events(Option<Arc<Heard>>);

struct Heard {
    /// Called by the thread in which something has happened, so that it misses nothing.
    meter: Option<Meter>,
    collector: Option<Arc<Collector>>,
    running: Option<Arc<RunningAttempts>>,
    /// Whether the meter's recorder has panicked.
    has_panicked: AtomicBool,
    queue: Option<Arc<EventQueue>>,
    clock: DatabaseClock,
    redact: Option<Redact>,
}

impl Events {
    /// Tells whether there is a listener.
    pub(crate) fn are_heard(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the database's clock, if there is a listener.
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
        self.measure(|| Measure::Event(&event));
        if let Some(collector) = &heard.collector {
            collector.count(&event);
        }
        if let Some(queue) = &heard.queue {
            push(queue, event);
        }
    }

    /// Records a measure, which is made only if the application wants metrics.
    pub(crate) fn measure<'a>(&self, measure: impl FnOnce() -> Measure<'a>) {
        if let Some((heard, meter)) = self.0.as_ref().and_then(|heard| Some((heard, heard.meter?))) {
            call_safely(&heard.has_panicked, || meter(&measure()));
        }
    }

    /// Returns who knows which attempts run, if somebody is to.
    fn running(&self) -> Option<&RunningAttempts> {
        self.0.as_ref()?.running.as_deref()
    }

    /// Returns a text as an event may contain it.
    pub(crate) fn redacted(&self, text: &str) -> String {
        redacted(text, self.0.as_ref().and_then(|heard| heard.redact.as_ref()))
    }
}

/// An event that ends an attempt.
pub(crate) type EndEvent = fn(AttemptEvent) -> Event;

/// Follows one attempt for the listeners and in a span. Nothing, without a listener and a subscriber.
#[derive(Clone, Default)]
pub(crate) struct Watch(Option<Arc<Watched>>);

struct Watched {
    events: Events,
    span: Span,
    entity: &'static str,
    queue: Arc<str>,
    stage: Option<&'static str>,
    key: Arc<str>,
    try_number: u32,
    /// When the row was due, if that is known.
    due: Option<DateTime<Utc>>,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    begun: Option<Begun>,
    is_past_timeout: bool,
    has_ended: bool,
}

#[derive(Clone, Copy)]
struct Begun {
    at: Instant,
    waited: Option<Duration>,
}

impl Watch {
    /// Watches an attempt in a stage, if somebody wants to know. `queue`: the queue's name in spans, and in tables. `traceparent`: the trace
    /// context in which the row was enqueued.
    pub(crate) fn new(
        events: &Events,
        (entity, queue, stage): (&'static str, (&str, &Arc<str>), Option<&'static str>),
        key: &Arc<str>,
        try_number: u32,
        (due, traceparent): (Option<DateTime<Utc>>, Option<&str>),
    ) -> Self {
        let (queue, name) = queue;
        // The names of OpenTelemetry's conventions for messaging, and of `tracing-opentelemetry` for a span's name, kind and
        // status. A span has at most 32 fields, all of them named here.
        let span = tracing::info_span!(
            target: SPAN_TARGET,
            "process",
            otel.name = format_args!("process {queue}"),
            otel.kind = "consumer",
            otel.status_code = Empty,
            otel.status_description = Empty,
            messaging.system = "queueable",
            messaging.operation.name = "process",
            "messaging.operation.type" = "process",
            messaging.destination.name = queue,
            messaging.message.id = &**key,
            entity,
            try_number,
            outcome = Empty,
            "error.type" = Empty,
        );
        if let Some(traceparent) = traceparent.filter(|_| !span.is_disabled()) {
            link(&span, traceparent);
        }
        let is_wanted = events.are_heard() || !span.is_disabled();
        Watch(is_wanted.then(|| {
            Arc::new(Watched {
                events: events.clone(),
                span,
                entity,
                queue: name.clone(),
                stage,
                key: key.clone(),
                try_number,
                due,
                progress: Mutex::default(),
            })
        }))
    }

    /// Tells whether somebody wants to know.
    pub(crate) fn is_heard(&self) -> bool {
        self.0.is_some()
    }

    /// Enters the attempt's span.
    pub(crate) fn enter_span(&self) -> EnteredSpan {
        self.0.as_ref().map_or_else(Span::none, |watched| watched.span.clone()).entered()
    }

    /// Notes that the handler is called. Only the first call counts: a handler that has refused a group is called again for
    /// each message.
    pub(crate) fn begin(&self) {
        let Some(watched) = &self.0 else { return };
        note_begun(&watched.key);
        let waited = watched.due.and_then(|due| watched.events.clock()?.since(due));
        let is_first = {
            let mut progress = watched.progress.lock();
            let is_first = progress.begun.is_none();
            let at = progress.begun.get_or_insert(Begun { at: Instant::now(), waited }).at;
            // Under the lock, so that no end comes before it.
            if let Some(running) = watched.events.running().filter(|_| is_first && !progress.has_ended) {
                let (queue, key, stage) = (watched.queue.clone(), watched.key.clone(), watched.stage);
                running.begin(watched.number(), RunningAttempt { queue, key, stage, begun: at });
            }
            is_first
        };
        if is_first {
            watched.events.tell(|| Event::Begun(watched.attempt(None, None)));
        }
    }

    /// Notes how the attempt has ended. Only the first end counts.
    pub(crate) fn end(&self, end: EndEvent, error: Option<&str>, retry_in: Option<Duration>) {
        if let Some(watched) = &self.0 {
            watched.end(end, error.map(str::to_owned), retry_in);
        }
    }

    /// Notes that an attempt that has begun has ended without a result. The cause is not redacted yet.
    pub(crate) fn interrupt(&self, cause: &str) {
        if let Some(watched) = self.0.as_ref().filter(|watched| watched.has_begun()) {
            watched.end(Event::Interrupted, Some(watched.events.redacted(cause)), None);
        }
    }

    /// Notes that the handler is past its timeout.
    pub(crate) fn mark_past_timeout(&self) {
        let Some(watched) = &self.0 else { return };
        let is_news = {
            let mut progress = watched.progress.lock();
            !progress.has_ended && !mem::replace(&mut progress.is_past_timeout, true)
        };
        if is_news {
            watched.events.tell(|| Event::TimedOut(watched.attempt(None, None)));
        }
    }

    /// Notes that the handler does not return.
    pub(crate) fn note_stuck(&self, stuck: usize, is_replaced: bool) {
        self.mark_past_timeout();
        if let Some(watched) = &self.0 {
            watched.events.tell(|| Event::WorkerStuck { attempt: watched.attempt(None, None), stuck, is_replaced });
        }
    }
}

impl Watched {
    /// Returns a number that no other attempt has meanwhile.
    fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn has_begun(&self) -> bool {
        self.progress.lock().begun.is_some()
    }

    fn attempt(&self, error: Option<String>, retry_in: Option<Duration>) -> AttemptEvent {
        let begun = self.progress.lock().begun;
        AttemptEvent {
            entity: self.entity,
            queue: self.queue.clone(),
            key: self.key.clone(),
            stage: self.stage,
            try_number: self.try_number,
            waited: begun.and_then(|begun| begun.waited),
            duration: begun.map(|begun| begun.at.elapsed()),
            retry_in,
            error,
        }
    }

    fn end(&self, end: EndEvent, error: Option<String>, retry_in: Option<Duration>) {
        if mem::replace(&mut self.progress.lock().has_ended, true) {
            return;
        }
        if let Some(running) = self.events.running() {
            running.end(self.number());
        }
        if !self.span.is_disabled() {
            record_end(&self.span, &end(self.attempt(error.clone(), retry_in)));
        }
        self.events.tell(|| end(self.attempt(error, retry_in)));
    }
}

/// Notes in a span how its attempt has ended. An interruption is no error: the row runs again as if nothing had been.
fn record_end(span: &Span, event: &Event) {
    let Some((outcome, attempt)) = event.end() else { return };
    span.record("outcome", outcome);
    if matches!(event, Event::WillRetry(_) | Event::GaveUp(_) | Event::Refused(_) | Event::LeaseLost(_)) {
        span.record("error.type", outcome);
        span.record("otel.status_code", "ERROR");
        attempt.error.as_deref().inspect(|error| {
            span.record("otel.status_description", error);
        });
    }
}

impl Drop for Watched {
    /// An attempt that has begun, and whose end was not sent, has recorded nothing.
    fn drop(&mut self) {
        if self.has_begun() {
            self.end(Event::Interrupted, None, None);
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watch").field(&self.0.as_ref().map(|watched| &watched.key)).finish()
    }
}

/// How long a reading is used. In this time two clocks drift apart by less than a millisecond.
const READ_EVERY: Duration = Duration::from_secs(10);

/// The last reading of the database's clock. Only events use it: the database decides which rows are due.
#[derive(Debug, Default)]
pub(crate) struct DatabaseClock(Mutex<Option<Reading>>);

#[derive(Debug, Clone, Copy)]
struct Reading {
    time: DateTime<Utc>,
    at: Instant,
}

impl DatabaseClock {
    /// Tells whether the clock is to be read again.
    pub(crate) fn has_to_be_read(&self) -> bool {
        self.reading().is_none_or(|reading| reading.at.elapsed() >= READ_EVERY)
    }

    /// Takes the time that the database has answered to a question of this moment.
    pub(crate) fn tell(&self, time: DateTime<Utc>, asked: Instant) {
        // The database has answered at some time between the question and now.
        let at = asked + asked.elapsed() / 2;
        *self.0.lock() = Some(Reading { time, at });
    }

    /// Returns how long ago a time was, zero if it lies in the future. `None`: the clock was never read.
    pub(crate) fn since(&self, time: DateTime<Utc>) -> Option<Duration> {
        let reading = self.reading()?;
        let before = (reading.time - time).max(TimeDelta::MIN);
        let elapsed = TimeDelta::from_std(reading.at.elapsed()).ok()?;
        let waited = before.checked_add(&elapsed)?;
        Some(waited.to_std().unwrap_or_default())
    }

    fn reading(&self) -> Option<Reading> {
        *self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_as_long_ago_as_the_databases_clock_says() {
        let clock = DatabaseClock::default();
        let time: DateTime<Utc> = "2001-02-03T04:05:06Z".parse().expect("a time");
        assert!(clock.has_to_be_read() && clock.since(time).is_none());
        clock.tell(time, Instant::now());
        assert!(!clock.has_to_be_read());
        let hour = TimeDelta::hours(1);
        let ago = clock.since(time - hour).expect("the clock was read");
        assert!(ago >= Duration::from_secs(3600) && ago < Duration::from_secs(4000), "{ago:?}");
        assert_eq!(clock.since(time + hour), Some(Duration::ZERO));
        assert!(clock.since(DateTime::<Utc>::MIN_UTC).is_some());
        assert_eq!(clock.since(DateTime::<Utc>::MAX_UTC), Some(Duration::ZERO));
    }
}
