//! One message, one transaction: claim, savepoint, handler, release, settle, commit.
//!
//! What cannot be written inside the message's transaction, because that transaction is gone, is left to
//! [`conclude`](super::conclude::conclude), which writes it in one of its own, under the same fence.

use std::borrow::Borrow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use diesel::connection::TransactionManager;
use diesel::result::Error as DieselError;

use super::attempt_error::AttemptError;
use super::begin::begin_and_claim;
use super::crash_check::check_crashes;
use super::crash_mark::CrashCheck;
use super::end::is_failure;
use super::plan::{
    Attempt, BoxedError, HeldRow, Interruption, LockedRow, Plan, Remainder, UnsettledRow, is_interruption,
};
use super::returned::{claimed_as, has_returned};
use super::settle_rules::tries_before;
use crate::backend::{QueueConnection, Session};
use crate::claim::RowInHand;
use crate::entity::Entity;
use crate::fault::fail_point;
use crate::handler::{Failure, Message, Outcome, Panicked};
use crate::row::{ErrorText, Instant, QueueState, RowKey, Settlement, idempotency_key};
use crate::statement::{Change, Claimed, QueueOn};

/// How an attempt ended, and whether its session may be used on.
pub(crate) struct Attempted<K> {
    pub(crate) end: End<K>,
    pub(crate) session_is_sound: bool,
}

pub(crate) enum End<K> {
    /// No row was due, or others hold those that are.
    Idle,
    /// Nothing was claimed, because the database did not answer as it should.
    NotClaimed(DieselError),
    /// The claimed row is suspected of ending its process: claim again when nothing else runs in it.
    Suspect,
    /// The handler returned long after its timeout: somebody else has recorded that.
    GivenUp,
    /// The row's new state is committed.
    Settled(RowKey<K>, Settlement),
    /// The same, and the row, which was due at that time, has come back so many times.
    SettledInVain(RowKey<K>, Settlement, Option<Instant>, u32),
    /// Another worker of this process has the row in hand, although it could be claimed.
    InOtherHands(RowKey<K>),
    /// The row has come back as it was when its last attempt began, and had come back so many times before.
    Returned(Box<UnsettledRow<K>>, u32),
    /// The message's transaction is gone; the rest is to be done in another one.
    Unsettled(Box<UnsettledRow<K>>, Remainder),
}

/// Attempts the message that is due longest. `claimed` is called once a row is locked, and says whether to go on.
pub(crate) fn attempt<Q, C>(
    session: &mut Session<C>,
    plan: &Plan<'_, Q, C>,
    claimed: impl FnOnce() -> bool,
) -> Attempted<Q::Key>
where
    C: QueueConnection,
    Q: QueueOn<C>,
{
    let (Claimed { key, mut fence, message, details }, is_under_savepoint) =
        match begin_and_claim::<Q, C>(session, plan) {
            Ok(Some(claimed)) => claimed,
            Ok(None) => return Attempted { end: End::Idle, session_is_sound: true },
            Err(error) => return Attempted { end: End::NotClaimed(error), session_is_sound: false },
        };
    let tries = tries_before(fence) + 1;
    let due = message.as_ref().ok().and_then(|(_, state)| state.next_attempt_time).map(Instant::from);
    let _span = tracing::debug_span!("attempt", entity = Q::ENTITY, ?key, try_number = tries).entered();
    tracing::debug!("claimed");
    fail_point("claimed");
    plan.slot.enter(Q::ENTITY, session.id(), plan.timeout);
    // After the slot was entered: a shutdown that did not find this attempt there was asked for before, and is seen here.
    if !claimed() {
        plan.slot.leave();
        return Attempted { end: End::Idle, session_is_sound: false };
    }
    let in_hand = match plan.rows_in_hand.map(|rows| rows.take(&key)) {
        Some(None) => {
            plan.slot.leave();
            let session_is_sound = C::TransactionManager::rollback_transaction(&mut **session).is_ok();
            return Attempted { end: End::InOtherHands(key), session_is_sound };
        }
        in_hand => in_hand.flatten(),
    };
    let claimed_as = claimed_as(plan, &key, &message);
    match has_returned::<Q, C>(session, &key, fence, claimed_as) {
        Ok(None) => {}
        Ok(Some(times)) => {
            plan.slot.leave();
            let session_is_sound = C::TransactionManager::rollback_transaction(&mut **session).is_ok();
            let row = UnsettledRow { key, fence, due, details };
            return Attempted { end: End::Returned(Box::new(row), times), session_is_sound };
        }
        Err(error) => {
            plan.slot.leave();
            return Attempted { end: End::NotClaimed(error), session_is_sound: false };
        }
    }
    let (message, kept) = match check_crashes(&mut **session, plan, &key, &mut fence, message, &details) {
        CrashCheck::Handle(message, kept) => (message, kept),
        unhandled_check => {
            plan.slot.leave();
            return unhandled(unhandled_check, UnsettledRow { key, fence, due, details });
        }
    };
    let unsettled = UnsettledRow { key, fence, due, details };
    plan.slot.hold(Box::new(HeldRow::<Q> { row: unsettled.clone() }));
    let UnsettledRow { key, details, .. } = &unsettled;
    let row = LockedRow { key, fence, before: fence, tries, kept: &kept, details, is_under_savepoint };
    let (result, session_is_sound) = settle_claimed(session, plan, row, message, in_hand);
    let given_up = plan.slot.leave();
    let end = match result {
        _ if given_up => End::GivenUp,
        Ok(settled) => match claimed_as.map_or(0, |(rows, claimed)| rows.is_written(claimed)) {
            0 => End::Settled(unsettled.key, settled),
            times => End::SettledInVain(unsettled.key, settled, due, times),
        },
        Err(remainder) => End::Unsettled(Box::new(unsettled), remainder),
    };
    Attempted { end, session_is_sound }
}

/// Handles, settles and commits a message whose row is locked and whose slot is entered. Returns what was settled, or what
/// is left to do, and whether the session may be used on.
pub(crate) fn settle_claimed<Q, C>(
    session: &mut Session<C>,
    plan: &Plan<'_, Q, C>,
    row: LockedRow<'_, Q::Key>,
    message: Result<impl Borrow<(Q, QueueState)>, BoxedError>,
    in_hand: Option<RowInHand<'_>>,
) -> (Result<Settlement, Remainder>, bool)
where
    C: QueueConnection,
    Q: QueueOn<C>,
{
    let mut attempt = Attempt { session, plan, row, session_is_sound: true, finish: None, in_hand };
    let result = attempt.run(message);
    let session_is_sound = attempt.session_is_sound;
    drop(attempt);
    let session_is_sound = session_is_sound
        && match &result {
            Ok(_) => true,
            // After a conflict the session is as good as before; after a lost connection the rollback fails.
            Err(Remainder::Postpone(_)) => C::TransactionManager::rollback_transaction(&mut **session).is_ok(),
            Err(_) => false,
        };
    (result, session_is_sound)
}

/// What an attempt came to whose row was not handled, for what is known of its crashes.
fn unhandled<Q: Entity>(check: CrashCheck<Q>, row: UnsettledRow<Q::Key>) -> Attempted<Q::Key> {
    let (end, session_is_sound) = match check {
        CrashCheck::Handle(..) | CrashCheck::Suspect => (End::Suspect, true),
        CrashCheck::SetAside => (End::Settled(row.key, Settlement::Failed), true),
        CrashCheck::Lost(error) => (End::NotClaimed(error), false),
        CrashCheck::Unsettled(remainder) => (End::Unsettled(Box::new(row), remainder), false),
    };
    Attempted { end, session_is_sound }
}

impl<Q: QueueOn<C>, C: QueueConnection> Attempt<'_, Q, C> {
    /// Handles, settles and commits. An error means that the transaction is gone.
    fn run(&mut self, message: Result<impl Borrow<(Q, QueueState)>, BoxedError>) -> Result<Settlement, Remainder> {
        let (mut settled, mut change) = self.handle_and_decide(message)?;
        // Once it is settled, the row may be due for anybody.
        self.in_hand = None;
        if let Some(ending) = self.finish.take() {
            match self.finish_at_once(&ending, settled, &change)? {
                Ok(settled) => return Ok(settled),
                Err(failure) => {
                    (settled, change) = self.plan.rules.after_failure(self.row.tries, &failure, self.row.details);
                }
            }
        }
        if change.error == ErrorText::Keep {
            change.error = self.row.kept.clone();
        }
        if is_failure(settled) {
            fail_point("recording");
        }
        self.settle(settled, &change)?;
        fail_point("settled");
        if is_failure(settled) {
            fail_point("recorded");
        }
        self.commit(settled, &change)
    }

    /// Handles, and decides what becomes of the row. The user's code runs outside the handler too: the entity's and the
    /// error's `Drop`, the error's `source`. A panic there would leave the row due, and first in line for ever.
    fn handle_and_decide(
        &mut self,
        message: Result<impl Borrow<(Q, QueueState)>, BoxedError>,
    ) -> Result<(Settlement, Change), Remainder> {
        let decided = catch_unwind(AssertUnwindSafe(|| {
            let answer = match message {
                Ok(message) => {
                    let (entity, state) = message.borrow();
                    if let Some(decided) = self.instead_of_handling(state) {
                        return Ok(decided);
                    }
                    self.handle(entity, state)?
                }
                Err(error) => Err(Failure::retry(AttemptError::Undecodable(error))),
            };
            Ok(match answer {
                Ok(outcome) => {
                    self.plan.rules.after_outcome(self.row.before, self.row.tries, outcome, self.row.details)
                }
                Err(failure) => self.plan.rules.after_failure(self.row.tries, &failure, self.row.details),
            })
        }));
        decided.unwrap_or_else(|panic| {
            self.session_is_sound = false;
            Err(self.record(&Failure::retry(Panicked::new(panic))))
        })
    }

    /// What becomes of the row if its handler is not to run. A lease's claim has asked already.
    fn instead_of_handling(&self, state: &QueueState) -> Option<(Settlement, Change)> {
        let (rules, row) = (self.plan.rules, &self.row);
        (!rules.leased)
            .then(|| rules.instead_of_handling(row.before, row.tries, state.next_attempt_time, row.details))
            .flatten()
    }

    /// Runs the handler in its savepoint. The answer's effects stand; a failure's effects are undone and the row is
    /// still locked.
    fn handle(&mut self, entity: &Q, state: &QueueState) -> Result<Result<Outcome, Failure>, Remainder> {
        if !self.row.is_under_savepoint {
            self.session
                .control("SAVEPOINT queueable_handler")
                .map_err(|error| self.lost(error, AttemptError::NotWritten))?;
        }
        fail_point("sentinel");
        let idempotency_key = idempotency_key(self.plan.key_prefix, self.row.key, self.row.details);
        let mut message = Message {
            connection: self.session.lend(),
            state,
            details: self.row.details,
            try_number: self.row.tries,
            idempotency_key: &idempotency_key,
        };
        let handler = self.plan.handler;
        let answer = catch_unwind(AssertUnwindSafe(|| handler.handle(entity, &mut message)));
        if let Some(why) = self.plan.slot.revoked() {
            return Err(self.revoked(why));
        }
        match answer.map(|answer| self.plan.rules.accept(answer)) {
            Ok(Ok(outcome)) => self.release(outcome),
            Ok(Err(failure)) => self.undo(failure),
            Err(panic) => {
                self.session_is_sound = false;
                self.undo(Failure::retry(Panicked::new(panic)))
            }
        }
    }

    /// Releases the sentinel. If it is gone, the handler's writes are not ours to commit.
    fn release(&mut self, outcome: Outcome) -> Result<Result<Outcome, Failure>, Remainder> {
        fail_point("releasing");
        if let Some(finish) = self.one_trip_ending(outcome) {
            self.finish = Some(finish);
            return Ok(Ok(outcome));
        }
        let Err(error) = self.session.control("RELEASE SAVEPOINT queueable_handler") else {
            fail_point("released");
            return Ok(Ok(outcome));
        };
        if is_interruption::<C>(&error) {
            return Err(Remainder::Postpone(Interruption::of::<C>(&error)));
        }
        self.not_released(error).map(Err)
    }

    /// Undoes what the handler wrote and keeps the lock.
    fn undo(&mut self, mut failure: Failure) -> Result<Result<Outcome, Failure>, Remainder> {
        if let Some(error) = failure.database_error().filter(|error| is_interruption::<C>(error)) {
            let text = self.plan.rules.texts.of(&*failure.error);
            return Err(Remainder::Postpone(Interruption::with_text::<C>(error, text)));
        }
        match self.session.control("ROLLBACK TO SAVEPOINT queueable_handler") {
            Ok(()) => Ok(Err(failure)),
            Err(error) if is_interruption::<C>(&error) => Err(Remainder::Postpone(Interruption::of::<C>(&error))),
            Err(_) => {
                let text = self.plan.rules.texts.of(&*failure.error);
                failure.error = AttemptError::FailedAndEnded(text).into();
                Err(self.record(&failure))
            }
        }
    }
}
