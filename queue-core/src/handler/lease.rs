//! The lease that a call holds on its row.

use std::any::Any;
use std::fmt::{self, Debug};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};

use super::handler::{Failure, HandlerResult, Message};
use super::panic_safe::PanicSafeDrop;
use crate::error::Error;
use crate::row::{Details, QueueState, Stage};
use crate::sync::{ErasedEntity, Mutex};

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
    /// How long the call may take.
    pub(crate) timeout: Duration,
}

impl Lease {
    /// Begins the time of the call.
    pub(crate) fn begin(&self) {
        self.clock.begin(self.timeout);
    }

    /// Returns a key for external calls that is the same at every attempt of this message, see
    /// [`Message::idempotency_key`](crate::Message::idempotency_key).
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

    /// Returns the row's stage, see [`Message::stage`](crate::Message::stage).
    pub fn stage<S: Stage>(&self) -> S {
        self.details.stage()
    }

    /// Returns the scheduled time of this run, see [`Message::scheduled_for`](crate::Message::scheduled_for).
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
        self.clock.extend(by)
    }

    /// Returns how much time the handler has left. Use it as the timeout of an external call.
    pub fn remaining(&self) -> Duration {
        self.clock.deadline().saturating_duration_since(Instant::now())
    }

    /// Tells whether the lease has ended: the row may soon belong to another worker, and there is no point in going on.
    /// A handler that works in steps should ask between them.
    ///
    /// It is true as soon as half the lease has passed without an answer from the database, the handler's time is over,
    /// another session has changed the row, or the poller is shutting down and its grace is over. Once true, it stays
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
    /// Another session has changed the row: an operator's, the application's, or another worker's.
    #[error("the lease is lost: another session changed the row")]
    Overtaken,
    /// Half the lease has passed without an answer from the database. Another worker may soon claim the row.
    #[error("the lease is lost: half of it has passed without an answer from the database")]
    Unconfirmed,
    /// The handler has taken longer than it may. This is recorded as the failure of the attempt.
    #[error("the lease is lost: the handler exceeded its timeout")]
    TimedOut,
    /// The poller is shutting down and its grace is over. The worker gives the row back.
    #[error("the lease is lost: the poller shuts down")]
    Shutdown,
}

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
/// The closures' arguments need no types in [`Poller::serve_lease_with`](crate::Poller::serve_lease_with).
///
/// So is a handler in an [`Arc`](std::sync::Arc) or a [`Box`].
///
/// Each running call keeps a worker. With the feature `tokio`, `AsyncCalls` is a handler whose calls are futures, a thousand of
/// them on a few workers.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not handle `{Q}` under a lease on `{C}`",
    note = "implement `LeaseHandler<{Q}, {C}>` for it, or pass two closures: `(|entity: &{Q}, lease: &Lease| Ok(answer), \
            |entity: &{Q}, answer: &Answer, message: &mut Message<'_, {C}>| Ok(Outcome::Done))`"
)]
pub trait LeaseHandler<Q, C>: Send + Sync {
    /// The answer of `call`, for `apply` to write. If a worker is left behind because an `apply` does not return, other
    /// workers apply the answers that it holds.
    type Answer: Send + 'static;

    /// Does the slow work. It has no transaction and no connection, so it blocks no other session of the database. It
    /// may take as long as the entity's `timeout`, which is the lease by default; [`Lease::extend`] asks for more.
    ///
    /// # Errors
    ///
    /// Every error means that the message is retried by its policy, unless it was made with [`Failure::fatal`].
    fn call(&self, entity: &Q, lease: &Lease) -> Result<Self::Answer, Failure>;

    /// Writes the answer of `call` in the message's transaction. It should be short: it may take 30 seconds, on SQLite
    /// one second, whatever the entity's `timeout` says. The worker runs it again, with the same answer, if its
    /// transaction meets a conflict or loses its connection.
    ///
    /// If calls are quick and many rows are due, one transaction applies several answers. If one of them cannot be
    /// committed, the transaction is undone, and each is applied in a transaction of its own. So `apply` may run more than
    /// once for one answer; its writes are committed once. What it leaves behind in the transaction beside its writes, the
    /// next `apply` sees: a `SET LOCAL` of the application's own setting, an advisory lock, the time of `now()`. With
    /// [`claim_batch(1)`](crate::Poller::claim_batch) each answer has a transaction of its own.
    ///
    /// # Errors
    ///
    /// Every error rolls back what `apply` has written. The message is then retried by its policy, and `call` runs
    /// again, unless the failure was made with [`Failure::fatal`].
    fn apply(&self, entity: &Q, answer: &Self::Answer, message: &mut Message<'_, C>) -> HandlerResult;

    /// Returns how the calls run beside the workers, if they do: then the poller does not use `call`.
    #[doc(hidden)]
    fn background(&self) -> Result<Option<Background>, Error> {
        Ok(None)
    }
}

impl<Q, C, A, Call, Apply> LeaseHandler<Q, C> for (Call, Apply)
where
    A: Send + 'static,
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

impl<Q, C, H: LeaseHandler<Q, C> + ?Sized> LeaseHandler<Q, C> for Arc<H> {
    type Answer = H::Answer;

    fn call(&self, entity: &Q, lease: &Lease) -> Result<H::Answer, Failure> {
        (**self).call(entity, lease)
    }

    fn apply(&self, entity: &Q, answer: &H::Answer, message: &mut Message<'_, C>) -> HandlerResult {
        (**self).apply(entity, answer, message)
    }

    fn background(&self) -> Result<Option<Background>, Error> {
        (**self).background()
    }
}

impl<Q, C, H: LeaseHandler<Q, C> + ?Sized> LeaseHandler<Q, C> for Box<H> {
    type Answer = H::Answer;

    fn call(&self, entity: &Q, lease: &Lease) -> Result<H::Answer, Failure> {
        (**self).call(entity, lease)
    }

    fn apply(&self, entity: &Q, answer: &H::Answer, message: &mut Message<'_, C>) -> HandlerResult {
        (**self).apply(entity, answer, message)
    }

    fn background(&self) -> Result<Option<Background>, Error> {
        (**self).background()
    }
}

/// What this process knows about one lease, by its monotonic clock.
#[derive(Debug)]
pub(crate) struct LeaseClock {
    pub(crate) lease: Duration,
    state: Mutex<ClockState>,
}

#[derive(Debug)]
struct ClockState {
    /// When this process sent the last statement that claimed or extended the lease. The lease ends no earlier than
    /// this time plus its length, whatever the clock.
    confirmed: Instant,
    /// When the handler's time is over.
    deadline: Instant,
    /// Whether the handler runs.
    in_call: bool,
    /// Whether the handler has answered and its answer is being written.
    settling: bool,
    /// Whether it was said to be late since it was confirmed.
    is_late: bool,
    ended: Option<LeaseLost>,
}

impl LeaseClock {
    /// Starts the clock of a lease whose claim was sent at `claimed`. The row still waits for a worker.
    pub(crate) fn new(claimed: Instant, lease: Duration) -> Self {
        let (confirmed, deadline) = (claimed, far_from(claimed, Duration::MAX));
        let state = ClockState { confirmed, deadline, in_call: false, settling: false, is_late: false, ended: None };
        LeaseClock { lease, state: Mutex::new(state) }
    }

    /// Begins the handler's time.
    pub(crate) fn begin(&self, timeout: Duration) {
        let mut state = self.state.lock();
        (state.deadline, state.in_call) = (far_from(Instant::now(), timeout), true);
    }

    /// Tells whether the handler runs.
    pub(crate) fn is_in_call(&self) -> bool {
        self.state.lock().in_call
    }

    /// Ends the handler's time, because it has answered, while its answer waits for a worker that writes it. The heartbeat
    /// goes on extending the lease.
    pub(crate) fn awaits_writing(&self) {
        let is_late = self.ended() == Some(LeaseLost::TimedOut);
        let mut state = self.state.lock();
        state.in_call = false;
        if !is_late {
            (state.deadline, state.settling) = (far_from(Instant::now(), Duration::MAX), false);
        }
    }

    /// Ends the handler's time, because it has answered. Returns why the lease has ended, if it has.
    pub(crate) fn answered(&self) -> Option<LeaseLost> {
        let ended = self.ended();
        let mut state = self.state.lock();
        (state.settling, state.in_call) = (true, false);
        // The scout may have ended the lease between the two calls.
        state.ended.or(ended)
    }

    /// Moves the end of the handler's time to `by` from now, unless it is later already.
    pub(crate) fn extend(&self, by: Duration) -> Result<(), LeaseLost> {
        if let Some(why) = self.ended() {
            return Err(why);
        }
        let mut state = self.state.lock();
        state.deadline = state.deadline.max(far_from(Instant::now(), by));
        Ok(())
    }

    /// Notes that a statement sent at `sent` has extended the lease.
    pub(crate) fn confirm(&self, sent: Instant) {
        let mut state = self.state.lock();
        (state.confirmed, state.is_late) = (state.confirmed.max(sent), false);
    }

    /// Ends the lease, and returns whether this call ended it. A lease that was only unconfirmed counts as not ended
    /// yet. `Overtaken` replaces every other reason, because nothing may be written on a row that belongs to somebody
    /// else.
    pub(crate) fn end(&self, why: LeaseLost) -> bool {
        let mut state = self.state.lock();
        let first = matches!(state.ended, None | Some(LeaseLost::Unconfirmed));
        if first || why == LeaseLost::Overtaken {
            state.ended = Some(why);
        }
        first
    }

    /// Returns why the lease has ended, if it has.
    pub(crate) fn ended(&self) -> Option<LeaseLost> {
        let mut state = self.state.lock();
        let now = Instant::now();
        // An unconfirmed lease times out too: the heartbeat extends it again as soon as it can, and a handler that
        // never returns would keep its row for ever.
        if matches!(state.ended, None | Some(LeaseLost::Unconfirmed)) && !state.settling && now >= state.deadline {
            state.ended = Some(LeaseLost::TimedOut);
        }
        if state.ended.is_none() && now.duration_since(state.confirmed) >= self.lease / 2 {
            state.ended = Some(LeaseLost::Unconfirmed);
        }
        state.ended
    }

    /// Tells whether the heartbeat should extend the lease: it was not confirmed lately, and no answer is being
    /// written.
    pub(crate) fn is_due_for_renewal(&self) -> bool {
        let wanted = matches!(self.ended(), None | Some(LeaseLost::Unconfirmed));
        let state = self.state.lock();
        wanted && !state.settling && state.confirmed.elapsed() >= self.lease / 8
    }

    /// Tells whether its last confirmation is a quarter of its length ago, while the heartbeat renews it after an eighth: once
    /// until it is confirmed again.
    pub(crate) fn becomes_late(&self) -> bool {
        let mut state = self.state.lock();
        state.confirmed.elapsed() >= self.lease / 4 && !mem::replace(&mut state.is_late, true)
    }

    /// Returns the earliest time at which the lease can end, by this process's clock.
    pub(crate) fn holds_until(&self) -> Instant {
        self.state.lock().confirmed + self.lease
    }

    /// Returns when the handler's time is over.
    pub(crate) fn deadline(&self) -> Instant {
        self.state.lock().deadline
    }
}

/// Adds a duration that may be longer than the clock reaches; it is cut to a year.
fn far_from(now: Instant, duration: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    now + duration.min(FAR)
}

/// Calls that run beside the workers.
#[doc(hidden)]
pub struct Background {
    /// How many rows of the entity are leased by this process at most.
    pub(crate) in_flight: usize,
    /// How many answers one transaction applies at most.
    pub(crate) most_together: u32,
    pub(crate) executor: Box<dyn BeginCall>,
}

/// Where the calls run.
pub(crate) trait BeginCall: Send + Sync {
    /// Begins a call, which does not block, and returns at once. `done` is called once, on any thread, after the call's
    /// future is dropped.
    fn begin(&self, message: OwnedMessage, lease: Lease, done: Done) -> AbortCall;

    /// Tells whether it runs nothing any more.
    fn has_ended(&self) -> bool;

    /// Tells whether calls make progress while the calling thread waits: an empty one is run, and waited for so long.
    fn responds_within(&self, patience: Duration) -> bool;
}

/// A message that its call owns, because it outlives the turn of the worker that has begun it.
pub(crate) type OwnedMessage = PanicSafeDrop<(ErasedEntity, QueueState)>;

/// Hears of the end of a call. `None`: the executor has dropped the call before its end.
pub(crate) type Done = Box<dyn FnOnce(Option<Called>) + Send>;

/// The result of a call. A panic is a failure.
pub(crate) type Called = PanicSafeDrop<Result<Answered, Failure>>;

/// The answer of a call, with the message that it answers.
pub(crate) struct Answered {
    pub(crate) message: OwnedMessage,
    pub(crate) answer: Answer,
}

/// The answer of a call, which its handler applies.
pub(crate) type Answer = Box<dyn Any + Send>;

/// What ends a call from outside.
pub(crate) struct AbortCall(pub(crate) Box<dyn Fn() + Send + Sync>);

impl AbortCall {
    /// Has the call's future dropped at the next point where it waits. A call that has ended already does not mind.
    pub(crate) fn abort(&self) {
        (self.0)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_lease_without_a_sign_of_life_ends_the_lease_for_good() {
        let lease = Duration::from_secs(60);
        let long_ago = Instant::now().checked_sub(lease / 2).expect("the machine has run for a minute");
        let clock = LeaseClock::new(long_ago, lease);
        assert!(clock.is_due_for_renewal());
        assert_eq!(clock.ended(), Some(LeaseLost::Unconfirmed));
        clock.confirm(Instant::now());
        assert_eq!(clock.ended(), Some(LeaseLost::Unconfirmed), "the handler may have given up already");
        assert_eq!(clock.extend(lease), Err(LeaseLost::Unconfirmed));
    }

    #[test]
    fn a_lease_becomes_late_once_until_it_is_confirmed() {
        let lease = Duration::from_secs(60);
        let a_quarter_ago = || Instant::now().checked_sub(lease / 4).expect("the machine has run for a minute");
        let clock = LeaseClock::new(a_quarter_ago(), lease);
        assert_eq!([clock.becomes_late(), clock.becomes_late()], [true, false]);
        clock.confirm(Instant::now());
        assert!(!clock.becomes_late());
        clock.state.lock().confirmed = a_quarter_ago();
        assert_eq!([clock.becomes_late(), clock.becomes_late()], [true, false]);
    }

    #[test]
    fn a_handler_that_was_told_once_is_past_its_timeout_all_the_same() {
        let lease = Duration::from_secs(60);
        let long_ago = Instant::now().checked_sub(lease / 2).expect("the machine has run for a minute");
        let clock = LeaseClock::new(long_ago, lease);
        assert_eq!(clock.ended(), Some(LeaseLost::Unconfirmed));
        clock.confirm(Instant::now());
        clock.begin(Duration::ZERO);
        assert_eq!(clock.ended(), Some(LeaseLost::TimedOut));
        assert!(!clock.is_due_for_renewal());
    }

    #[test]
    fn an_answer_that_waits_to_be_written_is_not_late_and_its_lease_is_extended() {
        let lease = Duration::from_secs(60);
        let claimed = Instant::now().checked_sub(lease / 4).expect("the machine has run for a minute");
        let clock = LeaseClock::new(claimed, lease);
        clock.begin(lease);
        clock.awaits_writing();
        assert!(clock.deadline() > Instant::now() + 2 * lease);
        assert!(clock.is_due_for_renewal());
        assert_eq!(clock.answered(), None);
        let late = LeaseClock::new(Instant::now(), lease);
        late.begin(Duration::ZERO);
        late.awaits_writing();
        assert_eq!(late.answered(), Some(LeaseLost::TimedOut));
    }

    #[test]
    fn a_handler_past_its_timeout_loses_the_lease_unless_it_asked_for_more_or_has_answered() {
        let clock = || LeaseClock::new(Instant::now(), Duration::from_secs(60));
        let late = clock();
        late.begin(Duration::ZERO);
        assert_eq!(late.ended(), Some(LeaseLost::TimedOut));
        assert_eq!(late.answered(), Some(LeaseLost::TimedOut));
        let asked = clock();
        asked.begin(Duration::from_secs(60));
        assert_eq!(asked.extend(Duration::from_secs(600)), Ok(()));
        assert_eq!(asked.ended(), None);
        assert_eq!(asked.answered(), None);
        asked.begin(Duration::ZERO);
        assert_eq!(asked.ended(), None, "what is being written is not taken back");
    }
}
