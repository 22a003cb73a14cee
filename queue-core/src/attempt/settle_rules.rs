//! Turns an outcome or a failure into a row's new state: when it is due again, or that its tries are exhausted. And tells the
//! log and the listeners what has become of a row, once that is committed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::ended::{AttemptError, NewState};
use crate::entity::{NoSchedule, Recurrence, Retry, RetryPolicy, Settings, jittered};
use crate::event::{AttemptEvent, EndEvent, Event, Events, Watch};
use crate::handler::{Failure, HandlerResult, Outcome, RetryChoice, When};
use crate::log::{RateLimitedLog, Redact};
use crate::row::{Details, ErrorText, FailureTexts, Fence, Instant, Options, RowKey, Settlement, Stages, Status};
use crate::statement::{Change, Next};
use crate::sync::Mutex;
use crate::sync::in_test::{NextTime, note_next};

/// The rules by which an entity's rows are settled.
pub(crate) struct SettleRules {
    pub(crate) settings: Settings,
    pub(crate) options: Options,
    pub(crate) retry: Arc<dyn RetryPolicy>,
    /// The delay of retries at run time, in place of that of the policy.
    pub(crate) retry_delay: Mutex<Option<Duration>>,
    pub(crate) texts: FailureTexts,
    /// Whether rows are processed under a lease and not under a lock, so that the application may have stopped one
    /// meanwhile.
    pub(crate) leased: bool,
    /// Tells what has become of a row.
    pub(crate) teller: Teller,
}

impl SettleRules {
    /// Returns the new state of a claimed row whose handler is not to run, because its schedule is invalid or because
    /// it comes too late. `due` is when it was due, if that is known.
    pub(crate) fn instead_of_handling(
        &self,
        before: Fence,
        tries: u32,
        due: Option<DateTime<Utc>>,
        details: &Details,
    ) -> Option<NewState> {
        let recurrence = match self.recurrence(details) {
            Ok(recurrence) => recurrence?,
            Err(why) => {
                let change = self.failure(tries, &Failure::fatal(why), None, details);
                return Some(NewState { settled: Settlement::Failed, change });
            }
        };
        // A run that was tried before has begun in time.
        let next = recurrence.left_out_for(due).filter(|_| tries == 1)?;
        tracing::debug!(?next, "left out, because it comes too late");
        let change = Change {
            status: Some(before.status),
            next: Some(Next::Scheduled(next.into())),
            try_count: Some(before.try_count),
            // The run that is left out may have begun, and been interrupted.
            next_occasion: true,
            unless_stopped: self.leased,
            ..Change::default()
        };
        Some(NewState { settled: Settlement::Again, change })
    }

    /// Accepts a handler's answer, or replaces it by a failure if the entity has no such stage.
    pub(crate) fn accept(&self, answer: HandlerResult) -> HandlerResult {
        let Ok(Outcome::Next(next)) = answer else { return answer };
        let known = match self.options.stages {
            Some(stages) if stages.names.contains(&next) => return answer,
            Some(stages) => format!("the entity has the stages {}", stages.names.join(", ")),
            None => "the entity has no stages: add `#[queue(stage = ..)]` to it".to_owned(),
        };
        Err(Failure::retry(AttemptError::NoSuchStage(next, known)))
    }

    /// Returns the row's new state after an outcome. `tries` includes this attempt.
    pub(crate) fn after_outcome(&self, fence: Fence, tries: u32, outcome: Outcome, details: &Details) -> NewState {
        let recorded = Change {
            next: Some(Next::Never),
            try_count: Some(stored(tries)),
            attempted: true,
            error: ErrorText::Clear,
            unless_stopped: self.leased,
            ..Change::of(details)
        };
        let (settled, change) = match outcome {
            Outcome::Done => {
                let change = Change { status: Some(Status::Success), next_occasion: true, ..recorded };
                (Settlement::Succeeded, self.on_schedule(change, details))
            }
            Outcome::Next(stage) => {
                let change = Change {
                    status: Some(Status::NotAttempted),
                    next: Some(Next::InStage(stage)),
                    try_count: Some(0),
                    // The key names the stage, and a row may enter a stage again.
                    next_occasion: true,
                    ..recorded
                };
                (Settlement::Advanced, change)
            }
            // A skip holds whatever the row contains: a later change of its content would leave the skipped row alone
            // too.
            Outcome::Skip => {
                let skipped =
                    Change { status: Some(Status::Skipped), next_occasion: true, of_content: false, ..recorded };
                (Settlement::Skipped, skipped)
            }
            Outcome::Delete => (Settlement::Deleted, Change { removes: true, ..recorded }),
            Outcome::Again(when) => {
                // Running again is not a failure, so the try count does not change. A finished row that is enqueued again
                // starts at zero.
                let status = if fence.status == Status::Error { Status::Error } else { Status::NotAttempted };
                let next = match when {
                    When::In(delay) => Next::In(delay),
                    When::At(time) => Next::At(time.into()),
                };
                let change = Change {
                    status: Some(status),
                    next: Some(next),
                    try_count: Some(stored(tries - 1)),
                    error: ErrorText::Keep,
                    ..recorded
                };
                (Settlement::Again, change)
            }
        };
        NewState { settled, change }
    }

    /// Returns the row's new state after a failure. `tries` includes this attempt.
    pub(crate) fn after_failure(&self, tries: u32, failure: &Failure, details: &Details) -> NewState {
        let delay = match failure.retry {
            _ if tries >= self.settings.max_tries => None,
            RetryChoice::Never => None,
            RetryChoice::After(delay) => Some(delay),
            RetryChoice::ByPolicy => delay_by(&*self.retry, tries, *self.retry_delay.lock()),
        };
        let change = self.failure(tries, failure, delay, details);
        match delay {
            Some(_) => NewState { settled: Settlement::Retried, change },
            None => NewState { settled: Settlement::Failed, change: self.failed_on_schedule(change, details) },
        }
    }

    /// Returns the change for a failure. Without a delay it is the last one.
    fn failure(&self, tries: u32, failure: &Failure, delay: Option<Duration>, details: &Details) -> Change {
        let has_no_key = failure.new_key && self.options.occasion.is_none();
        let error = match has_no_key {
            true => self.texts.of(&AttemptError::NoNewKey(self.texts.of(&*failure.error))),
            false => self.texts.of(&*failure.error),
        };
        tracing::debug!(error, retry_in = ?delay, "failed");
        Change {
            status: Some(if delay.is_some() { Status::Error } else { Status::Failed }),
            next: Some(delay.map_or(Next::Never, Next::In)),
            try_count: Some(stored(tries)),
            next_occasion: failure.new_key,
            attempted: true,
            error: ErrorText::Set(error),
            redact: self.texts.redact.clone(),
            unless_stopped: self.leased,
            ..Change::of(details)
        }
    }

    /// Completes a change to `FAILED`. If the row has a schedule, the schedule goes on: the text of the failure stays,
    /// and the tries begin anew.
    pub(crate) fn failed_on_schedule(&self, change: Change, details: &Details) -> Change {
        let scheduled = self.on_schedule(change, details);
        match scheduled.next {
            Some(Next::Scheduled(_)) => Change { status: Some(Status::Error), try_count: Some(0), ..scheduled },
            _ => scheduled,
        }
    }

    /// Completes a change that ends a run. If the row has a schedule, it is due for the next run.
    fn on_schedule(&self, change: Change, details: &Details) -> Change {
        let next = self.recurrence(details).ok().flatten().and_then(|recurrence| recurrence.next);
        let Some(next) = next else { return change };
        Change { next: Some(Next::Scheduled(next.into())), next_occasion: true, ..change }
    }

    fn recurrence(&self, details: &Details) -> Result<Option<Recurrence>, NoSchedule> {
        self.options.periodic.map_or(Ok(None), |periodic| Recurrence::of(periodic, details))
    }
}

/// Returns the number of tries that were recorded since the row was enqueued. A finished row that the application made
/// due again, by writing only `next_attempt_time`, begins anew.
pub(crate) fn tries_before(fence: Fence) -> u32 {
    if fence.status.is_terminal() { 0 } else { u32::try_from(fence.try_count).unwrap_or(0) }
}

pub(crate) fn stored(tries: u32) -> i32 {
    i32::try_from(tries).unwrap_or(i32::MAX)
}

/// Asks the policy, which may be the user's own. If it panics, the default one is used. `limit`: the delay that an operator has set.
fn delay_by(policy: &dyn RetryPolicy, tries: u32, limit: Option<Duration>) -> Option<Duration> {
    let random = fastrand::f64();
    let delay = |policy: &dyn RetryPolicy| {
        policy.delay(tries).map(|delay| jittered(limit.unwrap_or(delay), policy.jitter(), random))
    };
    catch_unwind(AssertUnwindSafe(|| delay(policy))).unwrap_or_else(|panic| {
        std::mem::forget(panic);
        tracing::error!(tries, "the retry policy panicked; the poller uses the default policy");
        Retry::DEFAULT.delay(tries).map(|delay| limit.unwrap_or(delay))
    })
}

/// Tells what has become of the rows of one entity.
pub(crate) struct Teller {
    entity: &'static str,
    /// The queue's name in spans, and in tables.
    queue: (String, Arc<str>),
    stages: &'static [&'static str],
    pub(crate) events: Events,
    /// Failures that are not the last ones. A log of its own, so that their many texts crowd out no warning.
    failures: RateLimitedLog,
}

impl Teller {
    /// `queue`: the queue's name, as the control table has it.
    pub(crate) fn new(
        (entity, queue): (&'static str, &str),
        stages: Option<Stages>,
        events: Events,
        redact: Option<Redact>,
    ) -> Self {
        let queue = (queue.strip_suffix(".status").unwrap_or(queue).to_owned(), queue.into());
        let stages = stages.map_or_else(Default::default, |stages| stages.names);
        Teller { entity, queue, stages, events, failures: RateLimitedLog::new(redact) }
    }

    /// Watches an attempt on this row, which was due at this time, if that is known.
    pub(crate) fn watch<K>(&self, key: &RowKey<K>, try_number: u32, due: Option<Instant>, details: &Details) -> Watch {
        let stage = details.stage.as_deref().and_then(|stage| self.stages.iter().find(|known| **known == stage));
        let about = (self.entity, (&*self.queue.0, &self.queue.1), stage.copied());
        Watch::new(&self.events, about, key.text(), try_number, (due.map(Into::into), details.traceparent.as_deref()))
    }

    /// Tells that a row's new state is committed.
    ///
    /// Every `FAILED` row is logged at once, because no worker will touch it again.
    pub(crate) fn tell_settled<K>(&self, key: &RowKey<K>, NewState { settled, change }: &NewState, watch: &Watch) {
        let settled = *settled;
        let (error, tries) = (change.error.text(), change.try_count);
        let text = error.unwrap_or_default();
        let retry_in = match change.next {
            Some(Next::In(delay)) if settled == Settlement::Retried => Some(delay),
            _ => None,
        };
        note_next(key.text(), || match change.next? {
            Next::Never => None,
            Next::In(delay) => Some(NextTime::In(delay)),
            Next::At(time) | Next::Scheduled(time) => Some(NextTime::At(DateTime::from(time).into())),
            Next::AheadOf(_) | Next::InStage(_) => Some(NextTime::In(Duration::ZERO)),
        });
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
    pub(crate) fn tell_settled_unhandled<K>(&self, key: &RowKey<K>, new: &NewState) {
        let tries = new.change.try_count.and_then(|tries| u32::try_from(tries).ok()).unwrap_or_default();
        self.tell_settled(key, new, &self.watch(key, tries.max(1), None, &Details::default()));
    }

    /// Tells that a row has failed whose key cannot be used.
    pub(crate) fn tell_unusable(&self, key: &str, error: &str) {
        tracing::warn!(entity = self.entity, key, error, "a row has failed for good");
        self.events.tell(|| {
            Event::GaveUp(AttemptEvent {
                entity: self.entity,
                queue: self.queue.1.clone(),
                stage: None,
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
