//! Tells the log and the listeners what has become of a row, once that is committed.

use super::ended::NewState;
use crate::event::{AttemptEvent, EndEvent, Event, Events, Watch};
use crate::log::{RateLimitedLog, Redact};
use crate::row::{Instant, RowKey, Settlement, Status};
use crate::statement::Next;

/// Tells what has become of the rows of one entity.
pub(crate) struct Teller {
    entity: &'static str,
    events: Events,
    /// Failures that are not the last ones. A log of its own, so that their many texts crowd out no warning.
    failures: RateLimitedLog,
}

impl Teller {
    pub(crate) fn new(entity: &'static str, events: Events, redact: Option<Redact>) -> Self {
        Teller { entity, events, failures: RateLimitedLog::new(redact) }
    }

    /// Watches an attempt on this row, which was due at this time, if that is known.
    pub(crate) fn watch<K>(&self, key: &RowKey<K>, try_number: u32, due: Option<Instant>) -> Watch {
        Watch::new(&self.events, self.entity, key.text(), try_number, due.map(Into::into))
    }

    /// Tells that a row's new state is committed.
    ///
    /// Every `FAILED` row is logged at once, because no worker will touch it again.
    pub(crate) fn settled<K>(&self, key: &RowKey<K>, NewState { settled, change }: &NewState, watch: &Watch) {
        let settled = *settled;
        let (error, tries) = (change.error.text(), change.try_count);
        let text = error.unwrap_or_default();
        let retry_in = match change.next {
            Some(Next::In(delay)) if settled == Settlement::Retried => Some(delay),
            _ => None,
        };
        match settled {
            Settlement::Failed if change.status == Some(Status::Failed) => {
                tracing::warn!(entity = self.entity, ?key, tries, error = text, "a row has failed for good");
            }
            Settlement::Failed if tracing::enabled!(tracing::Level::WARN) => {
                if let Some(suppressed) = self.failures.admits(text) {
                    let what = "a run has failed for good, and its schedule goes on";
                    tracing::warn!(entity = self.entity, ?key, error = text, suppressed, "{what}");
                }
            }
            Settlement::Retried if tracing::enabled!(tracing::Level::INFO) => {
                if let Some(suppressed) = self.failures.admits(text) {
                    let what = "a row has failed and will be retried";
                    tracing::info!(entity = self.entity, ?key, tries, ?retry_in, error = text, suppressed, "{what}");
                }
            }
            _ => {}
        }
        if watch.is_heard() {
            watch.end(ending(settled), error.filter(|_| settled.is_failure()), retry_in);
        }
    }

    /// Tells the same of a row whose handler was not called.
    pub(crate) fn settled_unhandled<K>(&self, key: &RowKey<K>, new: &NewState) {
        let tries = new.change.try_count.and_then(|tries| u32::try_from(tries).ok()).unwrap_or_default();
        self.settled(key, new, &self.watch(key, tries.max(1), None));
    }

    /// Tells that a row has failed whose key cannot be decoded.
    pub(crate) fn failed_undecodable(&self, key: &str, error: &str) {
        tracing::warn!(entity = self.entity, key, error, "a row has failed for good");
        self.events.tell(|| {
            Event::GaveUp(AttemptEvent {
                entity: self.entity,
                key: key.into(),
                try_number: 1,
                waited: None,
                duration: None,
                retry_in: None,
                error: Some(error.to_owned()),
            })
        });
    }
}

fn ending(settled: Settlement) -> EndEvent {
    match settled {
        Settlement::Succeeded | Settlement::Deleted => Event::Succeeded,
        Settlement::Again => Event::RunsAgain,
        Settlement::Advanced => Event::Advanced,
        Settlement::Skipped => Event::Skipped,
        Settlement::Retried => Event::WillRetry,
        Settlement::Failed => Event::GaveUp,
    }
}
