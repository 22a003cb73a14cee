//! One message, one transaction: claim, savepoint, handler, release, settle, commit.
//!
//! If the message's transaction is gone, the rest cannot be written inside it. Then
//! `conclude.rs` writes it in a transaction of its own, under the same fence.

use std::panic::{AssertUnwindSafe, catch_unwind};

use diesel::connection::TransactionManager;

use super::begin::{Attempt, BoxedError, Decision, Effects, LockedRow, Plan, ToHandle};
use super::crash_check::act_on_crashes;
use super::end::SAVEPOINT;
use super::ended::{AttemptError, Attempted, End, Interruption, NewState, Rest, Turn, UnsettledRow, is_interruption};
use super::runner::WorkerCalls;
use super::served_queue::ServedQueue;
use super::settle_rules::tries_before;
use crate::backend::{QueueConnection, Session};
use crate::claim::{ClaimedAs, RowInHand};
use crate::crash::CrashAction;
use crate::entity::Key;
use crate::handler::{Failure, HandlerResult, Message, Panicked};
use crate::row::{ErrorText, Instant, QueueState, Settlement, idempotency_key};
use crate::statement::Claimed;
use crate::sync::{ErasedEntity, fail_point};

/// Attempts the row that the end of the last message has locked, or else the row that has been due longest.
pub(crate) fn attempt<K: Key, C: QueueConnection>(
    session: &mut Session<C>,
    plan: &Plan<'_, K, C>,
    worker: &dyn WorkerCalls,
) -> Attempted<K> {
    let (claimed, is_under_savepoint) = match plan.begin_and_claim(session) {
        Ok(Some(claimed)) => claimed,
        Ok(None) => return Attempted::sound(End::Idle),
        Err(error) => return Attempted::lost(End::NotClaimed(error)),
    };
    if claimed.message.is_err()
        && let Err(error) = plan.served.expect_types(session)
    {
        return Attempted::lost(End::NotClaimed(error));
    }
    tracing::debug!(entity = plan.served.queue.sql.entity, key = ?claimed.key, "claimed");
    fail_point("claimed");
    plan.slot.enter(session.id, plan.served.info.timeout);
    worker.note_claim();
    // After the slot was entered: if a shutdown has not found this attempt there, it was requested before, and the worker
    // sees it here.
    let attempted = match worker.goes_on() {
        true => attempt_claimed(session, plan, claimed, is_under_savepoint).unwrap_or_else(|not_handled| not_handled),
        false => Attempted::lost(End::Idle),
    };
    match plan.slot.leave() {
        true => Attempted { end: End::Known(Turn::GivenUp), ..attempted },
        false => attempted,
    }
}

/// Attempts a claimed row whose slot is entered. The error is the end of an attempt whose handler does not run.
fn attempt_claimed<K: Key, C: QueueConnection>(
    session: &mut Session<C>,
    plan: &Plan<'_, K, C>,
    Claimed { key, fence, message, details }: Claimed<K>,
    is_under_savepoint: bool,
) -> Result<Attempted<K>, Attempted<K>> {
    let state = message.as_ref().ok().map(|(_, state)| state);
    let due = state.and_then(|state| state.next_attempt_time).map(Instant::from);
    let claimed_as = state.map(|state| plan.served.due_rows.passed_rows.claimed_as(&key, state));
    let tries = tries_before(fence) + 1;
    let mut row = UnsettledRow::new(key, fence, due, details);
    let in_hand = take_in_hand(session, plan, &row)?;
    row.watch = plan.served.rules.teller.watch(&row.key, tries, due, &row.details);
    let _span = row.watch.enter_span();
    leave_returned(session, plan, &row, claimed_as)?;
    row.claimed_as = claimed_as;
    let recorder = plan.slot.recorder();
    // The attempt that this mark belonged to has ended.
    drop(recorder.take_mark());
    let mut is_under_savepoint = is_under_savepoint;
    let (message, kept) = match message {
        Ok(message) => match recorder.decide(&plan.served.info.key_prefix, &message.1) {
            CrashAction::Handle(kept) => (Ok(message), kept),
            action => {
                // The transaction that had the savepoint ends with a mark.
                is_under_savepoint = false;
                act_on_crashes(&mut **session, plan, &mut row, message, action)?
            }
        },
        // A row that cannot be decoded is not handled; it fails.
        Err(error) => (Err(error), ErrorText::Keep),
    };
    plan.slot.hold(Box::new(row.clone()), &[&row.watch]);
    let UnsettledRow { key, fence, details, watch, .. } = &row;
    let fence = *fence;
    let locked = LockedRow { key, fence, before: fence, tries, kept: &kept, details, is_under_savepoint, watch };
    let (result, session_is_sound) =
        settle_claimed(session, plan, locked, message.map(|message| Box::new(message) as _), Some(in_hand));
    let end = match result {
        Ok(settled) => plan.end_settled(&row, settled),
        Err(rest) => End::Unsettled(Box::new(row), rest),
    };
    Ok(Attempted { end, session_is_sound })
}

/// Takes the row in hand, unless another worker of this process is processing it although it could be claimed: then its
/// handler has ended its transaction, and the row is passed over until that handler has returned.
fn take_in_hand<K: Key, C: QueueConnection>(
    session: &mut Session<C>,
    plan: &Plan<'_, K, C>,
    row: &UnsettledRow<K>,
) -> Result<RowInHand, Attempted<K>> {
    let due_rows = &plan.served.due_rows;
    due_rows.rows_in_hand.hold(row.key.text().clone(), 1).ok_or_else(|| {
        due_rows.passed_rows.skip_for_a_while(&row.key);
        roll_back(session, Turn::Interrupted)
    })
}

/// Leaves the row alone if it has come back as it was when its last attempt began, although its new state was committed.
fn leave_returned<K: Key, C: QueueConnection>(
    session: &mut Session<C>,
    plan: &Plan<'_, K, C>,
    row: &UnsettledRow<K>,
    claimed_as: Option<ClaimedAs>,
) -> Result<(), Attempted<K>> {
    let passed_rows = &plan.served.due_rows.passed_rows;
    let Some(claimed) = claimed_as else { return Ok(()) };
    let Some(times) = passed_rows.take_returned(claimed) else { return Ok(()) };
    match plan.served.puts_old_values_back(session, &row.key, row.fence) {
        Ok(true) => Err(roll_back(session, plan.served.leave_kept_alone(row, times))),
        Ok(false) => {
            passed_rows.forget_written(claimed);
            Ok(())
        }
        Err(error) => Err(Attempted::lost(End::NotClaimed(error))),
    }
}

/// Rolls back an attempt, which leaves its row as it was.
fn roll_back<K, C: QueueConnection>(session: &mut Session<C>, turn: Turn) -> Attempted<K> {
    let session_is_sound = C::TransactionManager::rollback_transaction(&mut **session).is_ok();
    Attempted { end: End::Known(turn), session_is_sound }
}

/// Handles, settles and commits a message whose row is locked and whose slot is entered. Returns the settlement, or what is
/// left to do, and whether the session may be used again.
pub(crate) fn settle_claimed<K: Key, C: QueueConnection>(
    session: &mut Session<C>,
    plan: &Plan<'_, K, C>,
    row: LockedRow<'_, K>,
    message: Result<ToHandle<'_>, BoxedError>,
    in_hand: Option<RowInHand>,
) -> (Result<Settlement, Rest>, bool) {
    let mut attempt = Attempt { session, plan, row, session_is_sound: true, is_refused: false, in_hand };
    let result = attempt.run(message);
    let Attempt { session, session_is_sound, is_refused, .. } = attempt;
    let session_is_sound = session_is_sound
        && match &result {
            Ok(_) => true,
            // After a conflict or a refusal the session is as good as before; after a lost connection the rollback fails.
            Err(rest) => {
                (matches!(rest, Rest::Postpone(_)) || is_refused && plan.slot.check_revoked().is_none())
                    && C::TransactionManager::rollback_transaction(&mut **session).is_ok()
                    // A transaction that the handler has left open inside ours was rolled back, perhaps, and no more.
                    && session.is_in_no_transaction()
            }
        };
    (result, session_is_sound)
}

impl<K: Key, C: QueueConnection> Plan<'_, K, C> {
    /// Notes that the claimed row's new state is committed, and returns the end of its attempt.
    pub(super) fn end_settled(&self, row: &UnsettledRow<K>, settled: Settlement) -> End<K> {
        if self.served.note_settled(row) {
            self.claim.floor.inspect(|floor| floor.keep());
        }
        End::Known(Turn::Settled(settled))
    }
}

impl<K: Key, C: QueueConnection> ServedQueue<K, C> {
    /// Notes that a row's new state is committed. If the row has come back although its new state was committed before, it is
    /// left alone for a while. Returns whether it has not.
    pub(super) fn note_settled(&self, row: &UnsettledRow<K>) -> bool {
        let times = self.due_rows.passed_rows.note_settled(&row.key, row.claimed_as);
        if times > 0 {
            // If the row does not come back this time, its next try finds that it is not due.
            self.refuse(row, times, false);
        } else {
            self.due_rows.end_in_lane(&row.key);
        }
        times == 0
    }
}

impl<K: Key, C: QueueConnection> Attempt<'_, '_, K, C> {
    /// Handles, settles and commits. An error means that nothing more can be written in the transaction.
    fn run(&mut self, message: Result<ToHandle<'_>, BoxedError>) -> Result<Settlement, Rest> {
        let decision = self.handle_and_decide(message)?;
        // Once the row is settled, it may be due, and any worker may claim it.
        self.in_hand = None;
        match self.one_trip(&decision) {
            Some(ending) => self.end_at_once(ending, decision),
            None => self.end_in_steps(decision),
        }
    }

    /// Handles the message and decides what becomes of its row. User code also runs outside the handler: the `Drop` of
    /// the entity and of the error, and the error's `source`. A panic there would leave the row due, and first in line
    /// for ever.
    fn handle_and_decide(&mut self, message: Result<ToHandle<'_>, BoxedError>) -> Result<Decision, Rest> {
        let decided = catch_unwind(AssertUnwindSafe(|| match message {
            Ok(message) => {
                let (entity, state) = (*message).borrow();
                match self.instead_of_handling(state) {
                    Some(new) => Ok(Decision { new, effects: Effects::None }),
                    None => self.handle(entity, state),
                }
            }
            Err(error) => {
                let failure = Failure::retry(AttemptError::Undecodable(error));
                Ok(self.decide(Err(failure), Effects::None))
            }
        }));
        decided.unwrap_or_else(|panic| {
            self.session_is_sound = false;
            Err(self.rest_of_failure(&Failure::retry(Panicked::new(panic))))
        })
    }

    /// Returns the new state of a row whose handler is not to run. In lease mode, the claim has already checked this.
    fn instead_of_handling(&self, state: &QueueState) -> Option<NewState> {
        let (rules, row) = (&self.plan.served.rules, &self.row);
        (!rules.leased)
            .then(|| rules.instead_of_handling(row.before, row.tries, state.next_attempt_time, row.details))
            .flatten()
    }

    /// Runs the handler in its savepoint, which still exists afterwards.
    fn handle(&mut self, entity: &ErasedEntity, state: &QueueState) -> Result<Decision, Rest> {
        if !self.row.is_under_savepoint {
            self.session.control(SAVEPOINT).map_err(|error| self.rest_of_error(error, AttemptError::NotWritten))?;
        }
        fail_point("sentinel");
        let idempotency_key = idempotency_key(&self.plan.served.info.key_prefix, self.row.key, self.row.details);
        let mut message = Message {
            connection: self.session.lend(),
            state,
            details: self.row.details,
            try_number: self.row.tries,
            idempotency_key: &idempotency_key,
            stop: self.plan.slot.stop_signal(),
        };
        self.row.watch.begin();
        let handler = self.plan.handler;
        let answer = catch_unwind(AssertUnwindSafe(|| {
            let answer = handler(entity, &mut message);
            fail_point("handled");
            answer
        }));
        if let Some(why) = self.plan.slot.check_revoked() {
            return Err(self.rest_of_revocation(why));
        }
        let answer = match answer {
            Ok(answer) => self.plan.served.rules.accept(answer),
            Err(panic) => {
                self.session_is_sound = false;
                Err(Panicked::failure(panic))
            }
        };
        match &answer {
            Ok(_) => Ok(self.decide(answer, Effects::Stand)),
            Err(failure) => match failure.database_error().filter(|error| is_interruption::<C>(error)) {
                Some(error) => {
                    let text = self.plan.served.rules.texts.of(&*failure.error);
                    Err(Rest::Postpone(Interruption::with_text::<C>(error, text)))
                }
                None => Ok(self.decide(answer, Effects::Undone)),
            },
        }
    }

    /// Decides what becomes of the row, and of its handler's writes.
    pub(crate) fn decide(&self, answer: HandlerResult, effects: Effects) -> Decision {
        let (rules, row) = (&self.plan.served.rules, &self.row);
        let new = match answer {
            Ok(outcome) => rules.after_outcome(row.before, row.tries, outcome, row.details),
            Err(failure) => rules.after_failure(row.tries, &failure, row.details),
        };
        Decision { new, effects }
    }
}
