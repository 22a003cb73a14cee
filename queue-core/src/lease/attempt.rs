//! One leased message: call its handler without a transaction; then, in a short one, lock, compare, apply, settle,
//! commit.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::TransactionManager;
use diesel::result::QueryResult;

use super::leased_rows::{DecidedRow, LeasedMessage, LeasedRow, WatchedRow};
use super::runner::{LateRow, LeaseRunner, leave};
use crate::attempt::{
    AttemptBody, AttemptError, ClaimPlan, Conclusion, InDoubt, LockedRow, Plan, Remainder, Runner, SettledRow, Slot,
    Turn, in_transaction, is_refusal, record, settle_claimed,
};
use crate::backend::{ErrorClass, HOLD, QueueConnection, Session, SessionHolder};
use crate::claim::{HeldPlaces, Places, Standing};
use crate::entity::{Key, Retry, RetryPolicy, jittered};
use crate::erased_entity::ErasedEntity;
use crate::error::Error;
use crate::event::Ending;
use crate::fault::fail_point;
use crate::handler::{Failure, LeaseLost, PanicSafeDrop, Panicked};
use crate::row::{ErrorText, Fence, QueueState, Settlement, failure_text};
use crate::statement::{Change, Next, literal, time_literal};

/// How long an attempt waits before it writes its answer again, after a conflict or a lost connection.
const BACKOFF: Retry = Retry::exponential(Duration::from_millis(10)).max(Duration::from_secs(1));

/// How often, and after which pause, an attempt asks for the lock of its queue while other workers check whose turn it
/// is.
const EXCLUDED_TRIES: u32 = 20;

const EXCLUDED_PAUSE: Duration = Duration::from_millis(5);

/// The result of one transaction for the answer.
pub(crate) enum Written {
    /// The row's new state is committed.
    Settled(Settlement),
    /// The row is in another state than the one in which this attempt left it: nothing was written.
    Overtaken,
    /// The poller shuts down, and the row is given back.
    Revoked,
    /// Nothing was written, for a reason that may pass.
    NotYet(String),
    /// The attempt failed, and the failure is to be recorded in another transaction.
    Failed(Settlement, Change),
    /// The database refuses to write this on this row, for this reason.
    Refused(String),
    /// It took too long, and another thread has recorded that.
    GivenUp,
}

/// The message of a call, and its answer.
type AppliedTo<'a, C> = (&'a (ErasedEntity, QueueState), &'a AttemptBody<'a, C>);

impl<K: Key, C: QueueConnection> LeaseRunner<K, C> {
    /// Processes a leased message to its end.
    pub(crate) fn work(&self, holder: &mut SessionHolder<C>, slot: &Slot, leased: LeasedMessage<K>) -> Turn {
        let LeasedMessage { held, message } = leased;
        if held.clock.ended().is_some() {
            // The row has waited too long for a worker: half its lease is over, and its handler would see that at once.
            self.give_back(holder, &held);
            return Turn::Interrupted;
        }
        let row = self.watch(held);
        self.to_its_end(holder, slot, &row, |holder| self.call_and_settle(holder, slot, &row, &message))
    }

    /// Does the rest of an attempt, and tells how it has ended.
    pub(crate) fn to_its_end(
        &self,
        holder: &mut SessionHolder<C>,
        slot: &Slot,
        row: &WatchedRow<K>,
        attempt: impl FnOnce(&mut SessionHolder<C>) -> Turn,
    ) -> Turn {
        let _span = self.span(row).entered();
        let turn = catch_unwind(AssertUnwindSafe(|| attempt(holder)));
        let turn = turn.unwrap_or_else(|panic| {
            // A handler's panic is caught closer to the handler. This one comes from this library or from the driver.
            let given_up = slot.leave();
            holder.close();
            if given_up {
                return Turn::GivenUp;
            }
            self.settle_failure(holder, row, &Failure::retry(Panicked::new(panic)))
        });
        self.leased_rows.remove(&row.held);
        match turn {
            Turn::Settled(settled) => tracing::debug!(outcome = ?settled, "settled"),
            Turn::Lost => {
                self.warn("lost a lease: another process changed the row; nothing was written");
                row.watch.ends(Ending::LeaseLost, None, None);
            }
            _ => {}
        }
        turn
    }

    /// Settles a leased row without its handler.
    pub(crate) fn settle_decided(&self, holder: &mut SessionHolder<C>, decided: &DecidedRow<K>) -> Turn {
        let DecidedRow { held, settled, change } = decided;
        let row = self.watch(held.clone());
        tracing::debug!(entity = self.queue.sql.entity, key = ?held.key, outcome = ?settled, "settled by the claim");
        let turn = catch_unwind(AssertUnwindSafe(|| self.record_again_and_again(holder, &row, *settled, change)));
        self.leased_rows.remove(held);
        turn.unwrap_or_else(|panic| {
            // The panic is the driver's. The row becomes due when its lease ends.
            std::mem::forget(panic);
            holder.close();
            Turn::Trouble
        })
    }

    fn call_and_settle(
        &self,
        holder: &mut SessionHolder<C>,
        slot: &Slot,
        held: &WatchedRow<K>,
        message: &(ErasedEntity, QueueState),
    ) -> Turn {
        // This session may have begun the transaction of a claim with the end of its last message, but another worker
        // has made the claim.
        holder.roll_back_idle();
        let lease = self.begin(held, &message.1);
        let late = LateRow { row: held.clone(), timeout: self.time_to_call() };
        slot.enter_leased(held.clock.clone(), Box::new(late), &held.watch);
        held.watch.begins();
        let answer = catch_unwind(AssertUnwindSafe(|| self.handler.call(&message.0, &lease)));
        if slot.leave() {
            return Turn::GivenUp;
        }
        let answer = answer.unwrap_or_else(|panic| Err(Failure::retry(Panicked::new(panic))));
        // A panic in its `Drop` comes too late to belong to the attempt.
        let answer = PanicSafeDrop::new(answer);
        self.settle_called(holder, slot, held, answer.as_ref().map(|answer| (message, &**answer)))
    }

    /// Settles a row after the end of its call.
    pub(crate) fn settle_called(
        &self,
        holder: &mut SessionHolder<C>,
        slot: &Slot,
        held: &WatchedRow<K>,
        called: Result<AppliedTo<'_, C>, &Failure>,
    ) -> Turn {
        fail_point("lease-called");
        if let Some(turn) = self.settle_taken_away(holder, held) {
            return turn;
        }
        match called {
            Ok(applied) => self.settle_answer(holder, slot, held, applied),
            Err(failure) => self.settle_failure(holder, held, failure),
        }
    }

    /// Ends the time of a call. If that was over before, does what is left to do, whatever the call has answered.
    pub(crate) fn settle_taken_away(&self, holder: &mut SessionHolder<C>, held: &WatchedRow<K>) -> Option<Turn> {
        match held.clock.answered()? {
            LeaseLost::Overtaken => Some(Turn::Lost),
            LeaseLost::Shutdown => Some(Turn::Interrupted),
            LeaseLost::TimedOut => {
                held.watch.is_over_budget();
                let failure = Failure::retry(AttemptError::TimedOut(self.time_to_call()));
                Some(self.settle_failure(holder, held, &failure))
            }
            // The row may still be ours. Its state will show.
            LeaseLost::Unconfirmed => None,
        }
    }

    /// Applies the answer and settles the row, again and again until it is written or the lease ends.
    fn settle_answer(
        &self,
        holder: &mut SessionHolder<C>,
        slot: &Slot,
        held: &WatchedRow<K>,
        applied: AppliedTo<'_, C>,
    ) -> Turn {
        self.persist(held, &mut || {
            let writing = self.turn_to_write();
            let places = self.limits().map(Places::hold);
            let written = self.apply(holder, slot, held, places.as_ref(), applied);
            if self.keeps_turns()
                && holder.session().and_then(|session| Ok(leave(self.queue, session, places)?)).is_err()
            {
                holder.close();
            }
            drop(writing);
            match written {
                Ok(Written::Failed(settled, change)) => self.record(holder, held, settled, &change),
                written => written,
            }
            .inspect_err(|_| holder.close())
        })
    }

    /// Records a failure, again and again until it is written or the lease ends.
    fn settle_failure(&self, holder: &mut SessionHolder<C>, held: &WatchedRow<K>, failure: &Failure) -> Turn {
        let (settled, change) = self.rules.after_failure(held.tries, failure, &held.details);
        self.record_again_and_again(holder, held, settled, &change)
    }

    /// Records a new state that is decided already, again and again until it is written or the lease ends.
    pub(crate) fn record_again_and_again(
        &self,
        holder: &mut SessionHolder<C>,
        held: &WatchedRow<K>,
        settled: Settlement,
        change: &Change,
    ) -> Turn {
        self.persist(held, &mut || self.record(holder, held, settled, change).inspect_err(|_| holder.close()))
    }

    /// Records that a handler took too long, in place of its worker, to which it does not return. If this cannot be
    /// written now, the end of the lease will show it.
    pub(crate) fn settle_late(&self, holder: &mut SessionHolder<C>, LateRow { row, timeout }: &LateRow<K>) -> Turn {
        let (settled, change) =
            self.rules.after_failure(row.tries, &Failure::retry(AttemptError::TimedOut(*timeout)), &row.details);
        let recorded = self.record(holder, row, settled, &change);
        self.leased_rows.remove(&row.held);
        match recorded {
            Ok(Written::Settled(settled)) => Turn::Settled(settled),
            Ok(Written::Overtaken) => {
                row.watch.ends(Ending::LeaseLost, None, None);
                Turn::Lost
            }
            Ok(_) => Turn::Interrupted,
            Err(error) => {
                self.warn(&format!("a late handler cannot be recorded: {}", failure_text(&error, 500)));
                holder.close();
                Turn::Interrupted
            }
        }
    }

    /// Writes again and again until something is written, or the row's lease may have ended.
    fn persist(&self, held: &WatchedRow<K>, write: &mut dyn FnMut() -> Result<Written, Error>) -> Turn {
        let until = held.clock.holds_until();
        for tries in 1.. {
            let cause = match write() {
                Ok(Written::Settled(settled)) => {
                    self.due_rows.is_written(&held.key);
                    return Turn::Settled(settled);
                }
                Ok(Written::Overtaken) => return Turn::Lost,
                Ok(Written::Revoked) => return Turn::Interrupted,
                Ok(Written::GivenUp) => return Turn::GivenUp,
                Ok(Written::Refused(cause)) => {
                    let what = "the database refuses to write the end of an attempt on row";
                    self.warn(&format!("{what} {}: {cause}", held.key));
                    held.watch.ends(Ending::Refused, Some(&self.redacted(&cause)), None);
                    return Turn::Refused;
                }
                Ok(Written::Failed(..)) => "a failure was not recorded".to_owned(),
                Ok(Written::NotYet(cause)) => cause,
                Err(error) => failure_text(&error, 500),
            };
            self.warn(&format!("the end of an attempt cannot be written yet: {cause}"));
            if !rest(held, until, tries) {
                held.watch.is_interrupted(&cause);
                break;
            }
        }
        // The row becomes due when its lease ends.
        Turn::Trouble
    }

    /// Finds out again and again what a transaction wrote whose answer to COMMIT was lost, until the row's lease may
    /// have ended.
    pub(crate) fn find_out(
        &self,
        holder: &mut SessionHolder<C>,
        held: &WatchedRow<K>,
        in_doubt: &InDoubt,
    ) -> Option<Written> {
        let until = held.clock.holds_until();
        for tries in 1.. {
            let found = holder.session().and_then(|session| Ok(self.written_in_doubt(session, held, in_doubt)?));
            match found.inspect_err(|_| holder.close()) {
                Ok(written) => return Some(written),
                Err(error) => {
                    let cause = failure_text(&error, 500);
                    self.warn(&format!("cannot yet tell whether the commit succeeded: {cause}"));
                    if !rest(held, until, tries) {
                        break;
                    }
                }
            }
        }
        None
    }

    /// Runs one transaction: it locks the row and checks that it is still ours, applies the answer, settles and
    /// commits.
    fn apply(
        &self,
        holder: &mut SessionHolder<C>,
        slot: &Slot,
        held: &WatchedRow<K>,
        places: Option<&HeldPlaces<'_, K, C>>,
        (message, answer): AppliedTo<'_, C>,
    ) -> Result<Written, Error> {
        let session = holder.session()?;
        // If a row is claimed already, the next turn calls its handler, in no transaction. Beside calls in flight, it may
        // settle another row.
        session.begin_next(self.calls.is_none() && !self.has_more_claimed() && !self.claims_at_once());
        let is_under_savepoint = match self.hold(session, held, places)? {
            Ok(is_under_savepoint) => is_under_savepoint,
            Err(written) => return Ok(written),
        };
        fail_point("lease-locked");
        slot.enter(session.id, self.info.timeout);
        slot.hold(Box::new(LateRow { row: held.clone(), timeout: self.info.timeout }), &[&held.watch]);
        if let Some(written) = taken_away(held) {
            slot.leave();
            C::TransactionManager::rollback_transaction(&mut **session)?;
            return Ok(written);
        }
        let plan = Plan { served: &self.served, handler: answer, slot, claim: ClaimPlan::none() };
        let LeasedRow { key, fence, before, tries, details, .. } = &*held.held;
        let (fence, before, tries, watch) = (*fence, *before, *tries, &held.watch);
        let row = LockedRow { key, fence, before, tries, kept: &ErrorText::Keep, details, is_under_savepoint, watch };
        let SettledRow { result, session_is_sound, .. } =
            settle_claimed(session, &plan, row, Ok(Box::new(message)), None);
        let given_up = slot.leave();
        if given_up || !session_is_sound {
            holder.close();
        }
        if given_up {
            return Ok(Written::GivenUp);
        }
        fail_point("lease-applied");
        match result {
            Ok(settled) => Ok(Written::Settled(settled)),
            Err(Remainder::Postpone(interruption)) => Ok(Written::NotYet(interruption.cause)),
            Err(Remainder::Record(settled, change) | Remainder::RecordReserved(settled, change)) => {
                Ok(Written::Failed(settled, *change))
            }
            Err(Remainder::Leave) => Ok(Written::Revoked),
            Err(Remainder::FindOut(in_doubt)) => Ok(self.written_in_doubt(holder.session()?, held, &in_doubt)?),
        }
    }

    /// Begins a transaction and locks the row, if it is still ours. Returns whether the handler's savepoint exists, or what
    /// has hindered it: then the transaction is over.
    fn hold(
        &self,
        session: &mut Session<C>,
        held: &LeasedRow<K>,
        places: Option<&HeldPlaces<'_, K, C>>,
    ) -> QueryResult<Result<bool, Written>> {
        let at_once = if places.is_none() { self.hold_at_once(session, held)? } else { None };
        if let Some(is_held) = at_once {
            return Ok(if is_held { Ok(true) } else { Err(Written::Overtaken) });
        }
        session.begin()?;
        let Some(written) = self.hindrance(session, held, places)? else { return Ok(Ok(false)) };
        C::TransactionManager::rollback_transaction(&mut **session)?;
        Ok(Err(written))
    }

    /// Finds out what a transaction wrote whose answer to COMMIT was lost.
    fn written_in_doubt(
        &self,
        session: &mut Session<C>,
        held: &WatchedRow<K>,
        in_doubt: &InDoubt,
    ) -> QueryResult<Written> {
        Ok(match self.served.find_out(session, &held.key, held.fence, in_doubt)? {
            Conclusion::Settled(settled) => {
                let change = in_doubt.change.iter();
                change.for_each(|change| self.rules.teller.settled(&held.key, settled, change, &held.watch));
                Written::Settled(settled)
            }
            Conclusion::Overtaken => Written::Overtaken,
            Conclusion::Interrupted | Conclusion::Refused { .. } | Conclusion::Kept => {
                Written::NotYet(in_doubt.cause.clone())
            }
        })
    }

    /// Begins the transaction, locks the row and sets the handler's savepoint in one round trip, if possible. `false`:
    /// the row is no longer as it was claimed.
    fn hold_at_once(&self, session: &mut Session<C>, held: &LeasedRow<K>) -> QueryResult<Option<bool>> {
        let Fence { status, try_count, began: Some(began), change_count: None, .. } = held.fence else {
            return Ok(None);
        };
        let (Some(number), Some(key)) =
            (session.prepare_lease(self.queue.id(), || self.queue.finish_lease())?, literal(&held.key))
        else {
            return Ok(None);
        };
        let hold = format!("{HOLD}_{number}({key}, '{status}', {try_count}, {})", time_literal(began));
        session.begin_holding(&hold, "queueable_handler").map(Some)
    }

    /// Returns what keeps the worker from writing the answer: the row is no longer as it was claimed, or others have its
    /// place, for example, in a queue that processes one row at a time, because another row is leased too.
    fn hindrance(
        &self,
        connection: &mut C,
        held: &LeasedRow<K>,
        places: Option<&HeldPlaces<'_, K, C>>,
    ) -> QueryResult<Option<Written>> {
        for tries in 1.. {
            match self.standing(connection, held, places)? {
                Standing::Holds => break,
                Standing::Lost => return Ok(Some(Written::Overtaken)),
                Standing::Unknown if tries == EXCLUDED_TRIES => {
                    return Ok(Some(Written::NotYet("other workers hold the queue's lock".to_owned())));
                }
                Standing::Unknown => thread::sleep(EXCLUDED_PAUSE),
            }
        }
        Ok((!self.queue.is_still(connection, &held.key, held.fence)?).then_some(Written::Overtaken))
    }

    /// Records a failure in a transaction of its own.
    fn record(
        &self,
        holder: &mut SessionHolder<C>,
        held: &WatchedRow<K>,
        settled: Settlement,
        change: &Change,
    ) -> Result<Written, Error> {
        let _writing = self.turn_to_write();
        let session = holder.session()?;
        let settle = |connection: &mut C, change: &Change| {
            // Under the lock, so that a row that was given back meanwhile is not mistaken for this attempt's row.
            if !self.queue.is_still(connection, &held.key, held.fence)? || taken_away(held).is_some() {
                return Ok(0);
            }
            self.queue.settle(connection, &held.key, held.fence, change)
        };
        match record(&mut **session, change, &settle) {
            Ok(1) => {
                self.rules.teller.settled(&held.key, settled, change, &held.watch);
                Ok(Written::Settled(settled))
            }
            Ok(_) => Ok(taken_away(held).unwrap_or(Written::Overtaken)),
            Err(error) if matches!(C::classify(&error), ErrorClass::Conflict | ErrorClass::NoRoom) => {
                Ok(Written::NotYet(error.to_string()))
            }
            Err(error) if is_refusal::<C>(&error) => {
                let cause = failure_text(&error, 500);
                self.note_on_leased(session, held, &change.error)?;
                Ok(Written::Refused(cause))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Notes on a row what the database allows after it has refused to settle it: the reason, and that the row waits.
    /// If it allows nothing, the row becomes due when its lease ends.
    fn note_on_leased(&self, connection: &mut C, held: &LeasedRow<K>, text: &ErrorText) -> Result<(), Error> {
        let pause = self.due_rows.refused_rows.pause_of(&held.key).max(self.length());
        for error in [text.clone(), ErrorText::Keep] {
            let change = Change { next: Some(Next::In(pause)), error, unless_stopped: true, ..Change::default() };
            match in_transaction(connection, |connection| self.queue.settle(connection, &held.key, held.fence, &change))
            {
                Err(error) if is_refusal::<C>(&error) => {}
                noted => return noted.map(drop).map_err(Error::from),
            }
        }
        Ok(self.try_writing(connection, &held.key, held.fence)?)
    }
}

/// Waits before the next of so many tries to write the end of an attempt. Returns at once if it would come too late.
fn rest<K>(held: &LeasedRow<K>, until: Instant, tries: u32) -> bool {
    let pause = jittered(BACKOFF.delay(tries).unwrap_or_default(), 1.0, fastrand::f64());
    if Instant::now() + pause >= until || held.clock.ended() == Some(LeaseLost::Shutdown) {
        return false;
    }
    thread::sleep(pause);
    true
}

/// Returns the result of an attempt whose row this process has taken away: it writes nothing. The row may be in the
/// very state again in which the attempt left it.
pub(crate) fn taken_away<K>(held: &LeasedRow<K>) -> Option<Written> {
    match held.clock.ended()? {
        LeaseLost::Shutdown => Some(Written::Revoked),
        LeaseLost::Overtaken => Some(Written::Overtaken),
        LeaseLost::Unconfirmed | LeaseLost::TimedOut => None,
    }
}
