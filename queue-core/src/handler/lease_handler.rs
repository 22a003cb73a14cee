//! The handler of lease mode, in two parts, and the lease that its first part holds.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};

use super::handler::{Failure, HandlerResult, Message};
use super::lease_clock::{LeaseClock, LeaseEnd};
use crate::row::{Details, QueueState, Stage};

/// Processes one message of the entity `Q` in two parts: [`call`](LeaseHandler::call) does the slow work without a
/// transaction, [`apply`](LeaseHandler::apply) writes its result in the message's transaction, on a connection of type `C`.
///
/// It is for entities with `#[queue(lease = "60s")]`. What `apply` writes commits together with the queue state, or not
/// at all. `call` happens *at least* once: every attempt of one occasion has the same
/// [`idempotency_key`](Lease::idempotency_key).
///
/// A pair of closures is a handler too:
///
/// ```
/// # use queueable::{Failure, LeaseHandler, Lease, Message, HandlerResult, Outcome};
/// # struct Webhook { id: i64, url: String }
/// # fn post(url: &str, key: &str) -> Result<u16, std::io::Error> { Ok(200) }
/// # fn is_handler<C>(_: impl LeaseHandler<Webhook, C>) {}
/// # fn example<C: 'static>() {
/// is_handler((
///     |webhook: &Webhook, lease: &Lease| Ok(post(&webhook.url, lease.idempotency_key())?),
///     |webhook: &Webhook, status: &u16, message: &mut Message<'_, C>| {
///         println!("webhook {} was answered {status}", webhook.id);
///         Ok(Outcome::Done)
///     },
/// ));
/// # }
/// ```
///
/// So is a handler in an [`Arc`](std::sync::Arc) or a [`Box`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not handle `{Q}` under a lease on `{C}`",
    note = "implement `LeaseHandler<{Q}, {C}>` for it, or pass two closures: `(|entity: &{Q}, lease: &Lease| Ok(answer), \
            |entity: &{Q}, answer: &Answer, message: &mut Message<'_, {C}>| Ok(Outcome::Done))`"
)]
pub trait LeaseHandler<Q, C>: Send + Sync {
    /// The answer of `call`, for `apply` to write.
    type Answer;

    /// Does the slow work. It has no transaction and no connection, so it holds up nobody in the database. It may take
    /// as long as the entity's `timeout`, which is the lease by default; [`Lease::extend`] asks for more.
    ///
    /// # Errors
    ///
    /// Every error means that the message is retried by its policy, unless it was made with [`Failure::fatal`].
    fn call(&self, entity: &Q, lease: &Lease) -> Result<Self::Answer, Failure>;

    /// Writes the answer of `call` in the message's transaction. It should be short: it may take 30 seconds, on SQLite
    /// one second, whatever the entity's `timeout` says. The worker runs it again, with the same answer, if its
    /// transaction meets a conflict or loses its connection.
    ///
    /// # Errors
    ///
    /// Every error rolls back what `apply` has written. The message is then retried by its policy, and `call` runs
    /// again, unless the failure was made with [`Failure::fatal`].
    fn apply(&self, entity: &Q, answer: &Self::Answer, message: &mut Message<'_, C>) -> HandlerResult;
}

impl<Q, C, A, Call, Apply> LeaseHandler<Q, C> for (Call, Apply)
where
    Call: Fn(&Q, &Lease) -> Result<A, Failure> + Send + Sync,
    Apply: Fn(&Q, &A, &mut Message<'_, C>) -> HandlerResult + Send + Sync,
{
    type Answer = A;

    fn call(&self, entity: &Q, lease: &Lease) -> Result<A, Failure> {
        (self.0)(entity, lease)
    }

    fn apply(&self, entity: &Q, answer: &A, message: &mut Message<'_, C>) -> HandlerResult {
        (self.1)(entity, answer, message)
    }
}

/// The lease of a message that `call` is working on: the row belongs to this attempt, and no transaction is open.
///
/// ```
/// use std::time::Duration;
/// use queueable::{Failure, Lease};
///
/// # struct Report { pages: u32 }
/// # fn render(page: u32, timeout: Duration) -> Result<(), std::io::Error> { Ok(()) }
/// fn print(report: &Report, lease: &Lease) -> Result<u32, Failure> {
///     for page in 0..report.pages {
///         lease.extend(Duration::from_secs(30))?; // a lost lease is a failure: there is no use in going on
///         render(page, lease.remaining())?;
///     }
///     Ok(report.pages)
/// }
/// # let _ = print;
/// ```
pub struct Lease {
    pub(crate) clock: Arc<LeaseClock>,
    pub(crate) state: QueueState,
    pub(crate) details: Details,
    pub(crate) try_number: u32,
    pub(crate) idempotency_key: String,
}

impl Lease {
    /// Returns a key for external calls that is the same at every attempt of this message, see
    /// [`Message::idempotency_key`].
    pub fn idempotency_key(&self) -> &str {
        &self.idempotency_key
    }

    /// Returns the number of this attempt since the row was enqueued; the first is 1.
    pub fn try_number(&self) -> u32 {
        self.try_number
    }

    /// Returns the queue columns as the claim left them: the status is `IN_PROGRESS`, and this attempt is counted. The
    /// end of the lease is not among them, because the heartbeat extends the lease while the handler runs.
    pub fn queue_state(&self) -> &QueueState {
        &self.state
    }

    /// Returns the row's stage, see [`Message::stage`].
    pub fn stage<S: Stage>(&self) -> S {
        self.details.stage()
    }

    /// Returns the scheduled time of this run, see [`Message::scheduled_for`].
    pub fn scheduled_for(&self) -> Option<DateTime<Utc>> {
        self.details.scheduled_for()
    }

    /// Asks for more time: the handler may run for `by` from now, if that is more than it has left. The row stays with
    /// this attempt meanwhile, because the heartbeat extends its lease in the background.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`] if the lease has already ended. `?` makes a failure of it, which uses a try.
    pub fn extend(&self, by: Duration) -> Result<(), LeaseLost> {
        self.clock.extend(by).map_err(LeaseLost::from)
    }

    /// Returns how much time the handler has left. Use it as the timeout of an external call.
    pub fn remaining(&self) -> Duration {
        self.clock.deadline().saturating_duration_since(Instant::now())
    }

    /// Tells whether the lease has ended: the row may soon belong to another worker, and there is no point in going on.
    /// A handler that works in steps should ask between them.
    ///
    /// It is true as soon as half the lease has passed without an answer from the database, the handler's time is over,
    /// somebody else has changed the row, or the poller is shutting down and its grace is over. Once true, it stays
    /// true.
    pub fn lease_lost(&self) -> bool {
        self.clock.ended().is_some()
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("idempotency_key", &self.idempotency_key)
            .field("try_number", &self.try_number)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// Why a lease has ended. The row may belong to another worker by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseLost {
    /// Somebody else has changed the row: an operator, the application, or another worker.
    #[error("the lease is lost: somebody else has changed the row")]
    Overtaken,
    /// Half the lease has passed without an answer from the database. Another worker may soon claim the row.
    #[error("the lease is lost: half of it has passed without an answer from the database")]
    Unconfirmed,
    /// The handler has taken longer than it may. This is recorded as the failure of the attempt.
    #[error("the lease is lost: the handler's time is over")]
    TimedOut,
    /// The poller is shutting down and its grace is over. The worker gives the row back.
    #[error("the lease is lost: the poller shuts down")]
    Shutdown,
}

impl From<LeaseEnd> for LeaseLost {
    fn from(why: LeaseEnd) -> Self {
        match why {
            LeaseEnd::Overtaken => LeaseLost::Overtaken,
            LeaseEnd::Unconfirmed => LeaseLost::Unconfirmed,
            LeaseEnd::TimedOut => LeaseLost::TimedOut,
            LeaseEnd::Shutdown => LeaseLost::Shutdown,
        }
    }
}
