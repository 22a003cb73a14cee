//! The handler of transaction and group mode, and the types around it: message, outcome, failure.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::group::Group;
use super::panic_safe::StopSignal;
use crate::error::panic_text;
use crate::row::{Details, QueueState, Stage};
use crate::sync::in_test::thrown;

/// Processes one message of the entity `Q` on a connection of type `C`.
///
/// The handler runs inside the message's transaction. What it writes through [`Message::connection`] commits together
/// with the queue state, or not at all. A panic counts as a failure.
///
/// A closure is a handler too:
///
/// ```
/// # use queueable::{Handler, Message, HandlerResult, Outcome};
/// # struct Payment { id: i64 }
/// # fn is_handler<C>(_: impl Handler<Payment, C>) {}
/// # fn example<C: 'static>() {
/// is_handler(|payment: &Payment, message: &mut Message<'_, C>| {
///     println!("payment {}, try {}", payment.id, message.try_number());
///     Ok(Outcome::Done)
/// });
/// # }
/// ```
///
/// The compiler does not infer the types of a closure's arguments from here; it does so in
/// [`Queueable::poller_with`](crate::Queueable::poller_with) and [`Poller::serve_with`](crate::Poller::serve_with). An async
/// closure is an `AsyncHandler`, with the features `async-postgres` and `async-mysql`. For calls that take long, see
/// [`LeaseHandler`](crate::LeaseHandler).
///
/// So are a handler in an [`Arc`](std::sync::Arc), which several pollers may share, and a `Box<dyn Handler<Q, C>>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not handle `{Q}` on `{C}`",
    note = "implement `Handler<{Q}, {C}>` for it, or pass a closure: `|entity: &{Q}, message: &mut Message<'_, {C}>| \
            Ok(Outcome::Done)`"
)]
pub trait Handler<Q, C>: Send + Sync {
    /// Processes the message.
    ///
    /// # Errors
    ///
    /// Every error makes the queue retry the message by its policy, unless it was made with [`Failure::fatal`].
    /// Transient errors of the database (deadlock, lost connection, serialization failure) do not use up a try.
    fn handle(&self, entity: &Q, message: &mut Message<'_, C>) -> HandlerResult;

    /// Processes a whole group at once, for an entity with `#[queue(group = 50)]` whose work is better done by a few
    /// statements over many rows. The default returns `None`: the worker then handles every message alone, by
    /// [`handle`](Handler::handle).
    ///
    /// The answer has one result for each entity, in the order of the entities. The group succeeds or fails as a whole.
    /// After a failure among the results, a wrong number of results or a panic, the worker undoes everything that this
    /// method wrote and handles every message alone.
    fn handle_group(&self, _entities: &[Q], _group: &mut Group<'_, C>) -> Option<Vec<HandlerResult>> {
        None
    }
}

impl<Q, C, F> Handler<Q, C> for F
where
    F: Fn(&Q, &mut Message<'_, C>) -> HandlerResult + Send + Sync,
{
    fn handle(&self, entity: &Q, message: &mut Message<'_, C>) -> HandlerResult {
        self(entity, message)
    }
}

impl<Q, C, H: Handler<Q, C> + ?Sized> Handler<Q, C> for Arc<H> {
    fn handle(&self, entity: &Q, message: &mut Message<'_, C>) -> HandlerResult {
        (**self).handle(entity, message)
    }

    fn handle_group(&self, entities: &[Q], group: &mut Group<'_, C>) -> Option<Vec<HandlerResult>> {
        (**self).handle_group(entities, group)
    }
}

// Not for every box: a closure in a box is a closure, and so a handler, itself.
impl<Q, C> Handler<Q, C> for Box<dyn Handler<Q, C>> {
    fn handle(&self, entity: &Q, message: &mut Message<'_, C>) -> HandlerResult {
        (**self).handle(entity, message)
    }

    fn handle_group(&self, entities: &[Q], group: &mut Group<'_, C>) -> Option<Vec<HandlerResult>> {
        (**self).handle_group(entities, group)
    }
}

/// The answer of a handler.
pub type HandlerResult = Result<Outcome, Failure>;

/// What the queue does with a message whose handler succeeded.
///
/// ```
/// use std::time::Duration;
/// use queueable::{HandlerResult, Outcome, When};
///
/// fn settle(approved: Option<bool>) -> HandlerResult {
///     match approved {
///         Some(true) => Ok(Outcome::Done),
///         Some(false) => Ok(Outcome::Skip),
///         None => Ok(Outcome::again_in(Duration::from_secs(60))), // nobody has decided yet: no failure, and no try
///     }
/// }
/// assert_eq!(settle(None).unwrap(), Outcome::Again(When::In(Duration::from_secs(60))));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an outcome does nothing until the handler returns it: `Ok(outcome)`"]
#[non_exhaustive]
pub enum Outcome {
    /// The work is done: the row becomes `SUCCESS` and is no longer pending. A row that has a schedule stays pending,
    /// for its next run.
    Done,
    /// The work is done, and the queue deletes the row in the same transaction. A schedule ends with its row.
    Delete,
    /// The message runs again later. This counts as no failure: the tries stay as they are.
    Again(When),
    /// The work of this stage is done: the row moves on to the stage with this text. It is due at once, and its tries
    /// are counted anew. [`Outcome::next`] takes the stage instead of its text. A stage that the entity does not have
    /// is a failure.
    Next(&'static str),
    /// The row is not to be processed: it becomes `SKIPPED`, and its schedule, if it has one, ends.
    Skip,
}

impl Outcome {
    /// Sends the row on to another stage.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// use queueable::{HandlerResult, Message, Outcome, Queueable, Stage};
    ///
    /// # diesel::table! { invoices (id) { id -> BigInt, } }
    /// #[derive(Debug, Clone, Copy, PartialEq, Eq, Stage)]
    /// enum InvoiceStage {
    ///     Render,
    ///     Send,
    ///     Book,
    /// }
    ///
    /// #[derive(Queryable, Selectable, Queueable)]
    /// #[queue(stage = InvoiceStage)]
    /// struct Invoice {
    ///     id: i64,
    /// }
    ///
    /// fn work<C>(invoice: &Invoice, message: &mut Message<'_, C>) -> HandlerResult {
    ///     match message.stage() {
    ///         InvoiceStage::Render => Ok(Outcome::next(InvoiceStage::Send)),
    ///         InvoiceStage::Send => Ok(Outcome::next(InvoiceStage::Book)),
    ///         InvoiceStage::Book => Ok(Outcome::Done),
    ///     }
    /// }
    /// # let _ = work::<SqliteConnection>;
    /// ```
    pub fn next(stage: impl Stage) -> Self {
        Outcome::Next(stage.name())
    }

    /// Runs the message again after a delay, counted by the database's clock from the end of this attempt.
    pub fn again_in(delay: Duration) -> Self {
        Outcome::Again(When::In(delay))
    }

    /// Runs the message again at a given time.
    pub fn again_at(time: DateTime<Utc>) -> Self {
        Outcome::Again(When::At(time))
    }
}

/// A time at which a message is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// After a delay from now, by the database's clock; at most [`MAX_DELAY`](crate::MAX_DELAY).
    In(Duration),
    /// At a given time.
    At(DateTime<Utc>),
}

/// Why a handler failed. `?` makes one from any error.
///
/// ```
/// use std::time::Duration;
/// use queueable::{Failure, HandlerResult, Outcome};
///
/// fn charge(amount: &str) -> HandlerResult {
///     let cents: i64 = amount.parse()?;                       // retried by the policy
///     if cents <= 0 {
///         return Err(Failure::fatal("the amount is not positive"));
///     }
///     if cents > 1_000_000 {
///         return Err(Failure::retry_after(Duration::from_secs(3600), "above the hourly limit"));
///     }
///     Ok(Outcome::Done)
/// }
/// assert!(charge("12,5").is_err());
/// ```
#[must_use = "a failure does nothing until the handler returns it: `Err(failure)`"]
pub struct Failure {
    pub(crate) error: Box<dyn StdError + Send + Sync>,
    pub(crate) retry: RetryChoice,
    pub(crate) new_key: bool,
}

/// How a failure is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryChoice {
    ByPolicy,
    After(Duration),
    Never,
}

impl Failure {
    /// Makes a failure that is retried by the retry policy, as `?` does. It also takes texts and boxed errors.
    pub fn retry(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Failure { error: error.into(), retry: RetryChoice::ByPolicy, new_key: false }
    }

    /// Makes a failure that is never retried: the row becomes `FAILED`.
    pub fn fatal(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Failure { error: error.into(), retry: RetryChoice::Never, new_key: false }
    }

    /// Makes a failure that is retried after `delay`, whatever the policy says. The maximal number of tries still
    /// holds.
    pub fn retry_after(delay: Duration, error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Failure { error: error.into(), retry: RetryChoice::After(delay), new_key: false }
    }

    /// Asks for a new [idempotency key](Message::idempotency_key) at the next attempt. It is for services that store an
    /// error under the key and answer every repetition with it.
    ///
    /// Ask for a new key only if the service has said that it did nothing: under a new key it acts again. This needs
    /// the column `occasion`, which `#[queue(occasion)]` and `#[queue(periodic)]` add. Without the column, the message
    /// is retried with its old key, and the error text on the row says what is missing. A failure that is a conflict in
    /// the database keeps the key.
    ///
    /// ```
    /// use queueable::Failure;
    ///
    /// fn failure_of(status: u16) -> Failure {
    ///     let failure = Failure::retry(format!("the provider answered {status}"));
    ///     if status == 500 { failure.with_new_key() } else { failure }
    /// }
    /// # failure_of(500);
    /// ```
    pub fn with_new_key(self) -> Self {
        Failure { new_key: true, ..self }
    }

    /// Finds Diesel's error behind this failure, even if other errors wrap it.
    pub(crate) fn database_error(&self) -> Option<&diesel::result::Error> {
        let mut error: &(dyn StdError + 'static) = &*self.error;
        // The walk would never end if the sources formed a cycle; no real chain is this long.
        for _ in 0..32 {
            if let Some(found) = error.downcast_ref::<diesel::result::Error>() {
                return Some(found);
            }
            error = error.source()?;
        }
        None
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Failure");
        shown.field("error", &self.error).field("retry", &self.retry);
        if self.new_key {
            shown.field("new_key", &true);
        }
        shown.finish()
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::retry(error)
    }
}

/// The message that a handler is processing: its transaction, and what the queue knows about its row.
///
/// ```
/// # use diesel::prelude::*;
/// use queueable::{HandlerResult, Message, Outcome};
///
/// # diesel::table! { ledger (payment_id) { payment_id -> BigInt, reference -> Text, } }
/// # struct Payment { id: i64 }
/// fn book(payment: &Payment, message: &mut Message<'_, SqliteConnection>) -> HandlerResult {
///     println!("payment {}, try {}", payment.id, message.try_number());
///     let reference = message.idempotency_key().to_owned();
///     diesel::insert_into(ledger::table)
///         .values((ledger::payment_id.eq(payment.id), ledger::reference.eq(reference)))
///         .execute(message.connection())?;
///     Ok(Outcome::Done)
/// }
/// # let _ = book;
/// ```
pub struct Message<'a, C> {
    pub(crate) connection: &'a mut C,
    pub(crate) state: &'a QueueState,
    pub(crate) details: &'a Details,
    pub(crate) try_number: u32,
    pub(crate) idempotency_key: &'a str,
    pub(crate) stop: &'a StopSignal,
}

impl<C> Message<'_, C> {
    /// Returns the connection, inside the message's transaction. Nested `transaction` calls become savepoints.
    ///
    /// The handler must not end the transaction. If it commits or rolls back by SQL of its own, or runs a statement
    /// that commits (DDL on MySQL), the worker detects it, and the attempt is a failure that says so.
    ///
    /// The session serves further messages afterwards. The worker puts most settings back (the documentation's chapter
    /// "Operating" lists them), but not those of the application or of an extension: use `SET LOCAL` where the database has it.
    ///
    /// On PostgreSQL the transaction may have begun when the previous message ended, so `now()` may lie before the time
    /// at which this message was enqueued. `clock_timestamp()` is the current time.
    pub fn connection(&mut self) -> &mut C {
        self.connection
    }

    /// Returns the number of this attempt since the row was enqueued; the first is 1.
    pub fn try_number(&self) -> u32 {
        self.try_number
    }

    /// Returns the queue columns as they were when the row was claimed.
    pub fn queue_state(&self) -> &QueueState {
        self.state
    }

    /// Returns the row's stage, as a value of the enum that `#[queue(stage = ..)]` names.
    ///
    /// # Panics
    ///
    /// If the row's stage is not in this enum, because the entity names another enum. The panic is the attempt's
    /// failure.
    pub fn stage<S: Stage>(&self) -> S {
        self.details.stage()
    }

    /// Returns the scheduled time of this run. It is the same at every try of the run, so it names a day or an hour of
    /// work better than the clock does. `None` if the row has no schedule, or if it was made due before its scheduled
    /// time.
    pub fn scheduled_for(&self) -> Option<DateTime<Utc>> {
        self.details.scheduled_for()
    }

    /// Returns a key for external calls. It is the same at every attempt of one occasion, even after a crash, and
    /// different for every other occasion: a service that honours it acts once for each occasion.
    ///
    /// The key is made of the table, the queue's status column and the database's text of the primary key, as in
    /// `payments.status:42`, and, where the entity has them, of these parts:
    ///
    /// | part | of | a new occasion begins |
    /// |---|---|---|
    /// | `:stage=SEND` | `#[queue(stage = ..)]` | with each stage |
    /// | `:version=7` | `#[queue(version = ..)]` | with each value of the column |
    /// | `:content=3` | `#[queue(rerun_on_change(..))]` | with each change of the columns |
    /// | `:occasion=2` | `#[queue(occasion)]`, `#[queue(periodic)]` | after each success, skip and run of a schedule, and with each [`rerun`](crate::QueueRows::rerun) |
    ///
    /// Counts of 0 are left out. A retry, [`retry_now`](crate::QueueRows::retry_now), a new due time, a conflict, a crash
    /// or a lost lease do not change the key. A `FAILED` row that is made due again is retried, and keeps its key too.
    ///
    /// Without the column `occasion`, a row keeps its key when `rerun` or the application's own SQL enqueues it again
    /// after a success: the five columns do not tell this from a retry. A service that honours the key then does not
    /// act a second time. Add `#[queue(occasion)]` if it should.
    ///
    /// The key has at most 255 bytes, all of them printable ASCII without spaces. Other bytes, and `%`, `:` and `,` in
    /// names and values, are written as `%` and two hexadecimal digits. A text that is too long is replaced by its
    /// SHA-256. No two occasions of a queue have the same key, and later releases make the same keys. The name of the
    /// database is not part of the key.
    pub fn idempotency_key(&self) -> &str {
        self.idempotency_key
    }
}

impl<C> fmt::Debug for Message<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("idempotency_key", &self.idempotency_key)
            .field("try_number", &self.try_number)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// A panic of a handler, as an error.
#[derive(Debug)]
pub(crate) struct Panicked(String);

impl Panicked {
    pub(crate) fn new(payload: Box<dyn Any + Send>) -> Self {
        Panicked(panic_text(payload))
    }

    /// Returns the failure of an attempt whose handler has panicked.
    pub(crate) fn failure(payload: Box<dyn Any + Send>) -> Failure {
        thrown(payload).map_or_else(|payload| Failure::retry(Panicked::new(payload)), Failure::retry)
    }
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the handler panicked: {}", self.0)
    }
}

impl StdError for Panicked {}
