//! One attempt, as the listeners hear of it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};

use super::event::{AttemptEvent, Event};
use super::events::Events;

/// How an attempt has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Succeeded,
    Advanced,
    RunsAgain,
    Skipped,
    WillRetry,
    GaveUp,
    Interrupted,
    Refused,
    LeaseLost,
}

/// Follows one attempt for the listeners. Nothing, if nobody listens.
#[derive(Clone, Default)]
pub(crate) struct Watch(Option<Arc<Watched>>);

struct Watched {
    events: Events,
    entity: &'static str,
    key: Arc<str>,
    try_number: u32,
    /// When the row was due, if that is known.
    due: Option<DateTime<Utc>>,
    begun: OnceLock<Begun>,
    is_over_budget: AtomicBool,
    has_ended: AtomicBool,
}

struct Begun {
    at: Instant,
    waited: Option<Duration>,
}

impl Watch {
    /// Watches an attempt, if anybody listens.
    pub(crate) fn new(
        events: &Events,
        entity: &'static str,
        key: &Arc<str>,
        try_number: u32,
        due: Option<DateTime<Utc>>,
    ) -> Self {
        Watch(events.are_heard().then(|| {
            Arc::new(Watched {
                events: events.clone(),
                entity,
                key: key.clone(),
                try_number,
                due,
                begun: OnceLock::new(),
                is_over_budget: AtomicBool::new(false),
                has_ended: AtomicBool::new(false),
            })
        }))
    }

    /// Tells whether anybody listens.
    pub(crate) fn is_heard(&self) -> bool {
        self.0.is_some()
    }

    /// Notes that the handler is called. Only the first call counts: a handler that has refused a group is called again for
    /// each message.
    pub(crate) fn begins(&self) {
        let Some(watched) = &self.0 else { return };
        let waited = watched.due.and_then(|due| watched.events.clock()?.since(due));
        if watched.begun.set(Begun { at: Instant::now(), waited }).is_ok() {
            watched.events.tell(|| Event::Begun(watched.attempt(None, None)));
        }
    }

    /// Notes how the attempt has ended. Only the first end counts.
    pub(crate) fn ends(&self, ending: Ending, error: Option<&str>, retry_in: Option<Duration>) {
        if let Some(watched) = &self.0 {
            watched.ends(ending, error.map(str::to_owned), retry_in);
        }
    }

    /// Notes that an attempt that has begun has ended without a result. The cause is not redacted yet.
    pub(crate) fn is_interrupted(&self, cause: &str) {
        if let Some(watched) = self.0.as_ref().filter(|watched| watched.begun.get().is_some()) {
            watched.ends(Ending::Interrupted, Some(watched.events.redacted(cause)), None);
        }
    }

    /// Notes that the handler is past its timeout.
    pub(crate) fn is_over_budget(&self) {
        if let Some(watched) = &self.0
            && !watched.has_ended.load(Ordering::Acquire)
            && !watched.is_over_budget.swap(true, Ordering::AcqRel)
        {
            watched.events.tell(|| Event::OverBudget(watched.attempt(None, None)));
        }
    }

    /// Notes that the handler does not return.
    pub(crate) fn is_stuck(&self, stuck: usize, is_replaced: bool) {
        self.is_over_budget();
        if let Some(watched) = &self.0 {
            watched.events.tell(|| Event::WorkerStuck { attempt: watched.attempt(None, None), stuck, is_replaced });
        }
    }
}

impl Watched {
    fn attempt(&self, error: Option<String>, retry_in: Option<Duration>) -> AttemptEvent {
        let begun = self.begun.get();
        AttemptEvent {
            entity: self.entity,
            key: self.key.clone(),
            try_number: self.try_number,
            waited: begun.and_then(|begun| begun.waited),
            duration: begun.map(|begun| begun.at.elapsed()),
            retry_in,
            error,
        }
    }

    fn ends(&self, ending: Ending, error: Option<String>, retry_in: Option<Duration>) {
        if self.has_ended.swap(true, Ordering::AcqRel) {
            return;
        }
        let event = match ending {
            Ending::Succeeded => Event::Succeeded,
            Ending::Advanced => Event::Advanced,
            Ending::RunsAgain => Event::RunsAgain,
            Ending::Skipped => Event::Skipped,
            Ending::WillRetry => Event::WillRetry,
            Ending::GaveUp => Event::GaveUp,
            Ending::Interrupted => Event::Interrupted,
            Ending::Refused => Event::Refused,
            Ending::LeaseLost => Event::LeaseLost,
        };
        self.events.tell(|| event(self.attempt(error, retry_in)));
    }
}

impl Drop for Watched {
    /// An attempt that has begun, and of which nobody has told an end, has recorded nothing.
    fn drop(&mut self) {
        if self.begun.get().is_some() {
            self.ends(Ending::Interrupted, None, None);
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watch").field(&self.0.as_ref().map(|watched| &watched.key)).finish()
    }
}
