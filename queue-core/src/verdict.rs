//! What an outcome or a failure makes of a row: its new state, when it is due again, or that the tries are exhausted.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::details::Details;
use crate::entity::Settings;
use crate::failure_text::failure_text;
use crate::handler::{Failure, Outcome, RetryChoice, When};
use crate::retry::{Retry, RetryPolicy, jittered};
use crate::statement::{Change, ErrorText, Fence, Next};
use crate::status::Status;

/// What was committed on a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    Succeeded,
    Deleted,
    Again,
    Skipped,
    Retried,
    Failed,
}

/// By which rules an entity's rows are settled.
pub(crate) struct Rules {
    pub(crate) settings: Settings,
    pub(crate) retry: Arc<dyn RetryPolicy>,
    pub(crate) error_text_limit: usize,
    /// Whether rows are worked under a lease and not under a lock: somebody may have stopped one meanwhile.
    pub(crate) leased: bool,
}

impl Rules {
    /// The row's state after an outcome. `tries` counts this attempt.
    pub(crate) fn after_outcome(
        &self,
        fence: Fence,
        tries: u32,
        outcome: Outcome,
        details: &Details,
    ) -> (Settled, Change) {
        let recorded = Change {
            next: Some(Next::Never),
            try_count: Some(stored(tries)),
            attempted: true,
            error: ErrorText::Clear,
            unless_stopped: self.leased,
            ..Change::of(details)
        };
        match outcome {
            Outcome::Done => (Settled::Succeeded, Change { status: Some(Status::Success), ..recorded }),
            Outcome::Skip => (Settled::Skipped, Change { status: Some(Status::Skipped), ..recorded }),
            Outcome::Delete => (Settled::Deleted, recorded),
            Outcome::Again(when) => {
                // No failure, so the tries stay; a finished row that was made due again begins anew.
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
                (Settled::Again, change)
            }
        }
    }

    /// The row's state after a failure. `tries` counts this attempt.
    pub(crate) fn after_failure(&self, tries: u32, failure: &Failure, details: &Details) -> (Settled, Change) {
        let delay = match failure.retry {
            _ if tries >= self.settings.max_tries => None,
            RetryChoice::Never => None,
            RetryChoice::After(delay) => Some(delay),
            RetryChoice::ByPolicy => delay_by(&*self.retry, tries),
        };
        let error = failure_text(&*failure.error, self.error_text_limit);
        tracing::debug!(error, retry_in = ?delay, "failed");
        let change = Change {
            status: Some(if delay.is_some() { Status::Error } else { Status::Failed }),
            next: Some(delay.map_or(Next::Never, Next::In)),
            try_count: Some(stored(tries)),
            attempted: true,
            error: ErrorText::Set(error),
            unless_stopped: self.leased,
            ..Change::of(details)
        };
        (if delay.is_some() { Settled::Retried } else { Settled::Failed }, change)
    }
}

/// The tries that were recorded since the row was enqueued. A finished row that the application made due again, by
/// writing `next_attempt_time` alone, begins anew.
pub(crate) fn tries_before(fence: Fence) -> u32 {
    if fence.status.is_terminal() { 0 } else { u32::try_from(fence.try_count).unwrap_or(0) }
}

pub(crate) fn stored(tries: u32) -> i32 {
    i32::try_from(tries).unwrap_or(i32::MAX)
}

/// Asks the policy, which may be the user's own: one that panics counts as the default.
fn delay_by(policy: &dyn RetryPolicy, tries: u32) -> Option<Duration> {
    let random = fastrand::f64();
    catch_unwind(AssertUnwindSafe(|| policy.delay(tries).map(|delay| jittered(delay, policy.jitter(), random))))
        .unwrap_or_else(|panic| {
            std::mem::forget(panic);
            tracing::error!(tries, "the retry policy panicked, the default one is used");
            Retry::DEFAULT.delay(tries)
        })
}
