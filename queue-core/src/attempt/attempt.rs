//! One message, one transaction: claim, savepoint, handler, release, settle, commit.
//!
//! If the message's transaction is gone, the rest cannot be written inside it. Then
//! [`conclude`](super::conclude::conclude) writes it in a transaction of its own, under the same fence.

use std::panic::{AssertUnwindSafe, catch_unwind};

use diesel::connection::TransactionManager;
use diesel::result::Error as DieselError;

use super::attempt_error::AttemptError;
use super::crash_check::check_crashes;
use super::crash_mark::NotHandled;
use super::end::SAVEPOINT;
use super::plan::{
    Attempt, BoxedError, Decision, Effects, Interruption, LockedRow, Plan, Remainder, ToHandle, UnsettledRow,
    is_interruption,
};
use super::runner::WorkerCalls;
use super::settle_rules::tries_before;
use crate::backend::{QueueConnection, Session};
use crate::claim::{ReadRow, RowInHand};
use crate::entity::Key;
use crate::erased_entity::ErasedEntity;
use crate::event::Watch;
use crate::fault::fail_point;
use crate::handler::{Failure, HandlerResult, Message, Panicked};
use crate::row::{Instant, QueueState, RowKey, Settlement, idempotency_key};
use crate::statement::{Change, Claimed};

/// How an attempt ended, and what it passes on to the next one.
pub(crate) struct Attempted<K> {
    pub(crate) end: End<K>,
    /// Whether the session may be used again.
    pub(crate) session_is_sound: bool,
    /// The next row, if the end of this one began a transaction and locked it there.
    pub(crate) next: Option<ReadRow<K>>,
}

pub(crate) enum End<K> {
    /// No row was due, or others hold the due rows.
    Idle,
    /// Nothing was claimed, because the database returned an error.
    NotClaimed(DieselError),
    /// The claimed row is suspected of ending its process: a worker claims it again when nothing else runs in the
    /// process.
    Suspect,
    /// The handler returned long after its timeout, and another thread has recorded the failure.
    GivenUp,
    /// The row's new state is committed.
    Settled(RowKey<K>, Settlement),
    /// The same, but the row has come back this many times.
    SettledInVain(Box<UnsettledRow<K>>, Settlement, u32),
    /// Another worker of this process is processing the row, although it could be claimed.
    InOtherHands(RowKey<K>),
    /// The row has come back as it was when its last attempt began. It had come back this many times before.
    Returned(Box<UnsettledRow<K>>, u32),
    /// The message's transaction is gone; the remainder is to be written in another one.
    Unsettled(Box<UnsettledRow<K>>, Remainder, Watch),
}

impl<K> Attempted<K> {
    /// An attempt after which the session is closed.
    fn lost(end: End<K>) -> Self {
        Attempted { end, session_is_sound: false, next: None }
    }

    /// Rolls back an attempt, which leaves its row as it was.
    fn undone<C: QueueConnection>(session: &mut Session<C>, end: End<K>) -> Self {
        let session_is_sound = C::TransactionManager::rollback_transaction(&mut **session).is_ok();
        Attempted { end, session_is_sound, next: None }
    }
}

/// Attempts the row that is `locked` already, or else the row that has been due longest.
pub(crate) fn attempt<K: Key, C: QueueConnection>(
    session: &mut Session<C>,
    plan: &Plan<'_, K, C>,
    locked: Option<ReadRow<K>>,
    worker: &dyn WorkerCalls,
) -> Attempted<K> {
    let queue = plan.queue;
    let (claimed, is_under_savepoint) = match plan.begin_and_claim(session, locked) {
        Ok(Some(claimed)) => claimed,
        Ok(None) => return Attempted { end: End::Idle, session_is_sound: true, next: None },
        Err(error) => return Attempted::lost(End::NotClaimed(error)),
    };
    let (key, tries) = (&claimed.key, tries_before(claimed.fence) + 1);
    let _span = tracing::debug_span!("attempt", entity = queue.sql.entity, ?key, try_number = tries).entered();
    tracing::debug!("claimed");
    fail_point("claimed");
    plan.slot.enter(session.id, plan.info.timeout);
    worker.has_claimed();
    // After the slot was entered: a shutdown that did not find this attempt there was requested before, so it is seen
    // here.
    let attempted = match worker.goes_on() {
        true => attempt_claimed(session, plan, claimed, is_under_savepoint),
        false => Attempted::lost(End::Idle),
    };
    match plan.slot.leave() {
        true => Attempted { end: End::GivenUp, ..attempted },
        false => attempted,
    }
}

/// Attempts a claimed row whose slot is entered. It does not run the handler if another worker has the row, if the row
/// has come back, or because of its crashes.
fn attempt_claimed<K: Key, C: QueueConnection>(
    session: &mut Session<C>,
    plan: &Plan<'_, K, C>,
    Claimed { key, mut fence, message, details }: Claimed<K>,
    is_under_savepoint: bool,
) -> Attempted<K> {
    let due = message.as_ref().ok().and_then(|(_, state)| state.next_attempt_time).map(Instant::from);
    let due_rows = &plan.due_rows;
    let Some(in_hand) = due_rows.rows_in_hand.take(&key) else {
        return Attempted::undone(session, End::InOtherHands(key));
    };
    let watch = plan.rules.teller.watch(&key, tries_before(fence) + 1, due);
    let claimed_as = message.as_ref().ok().map(|(_, state)| due_rows.kept_rows.claimed_as(&key, state));
    match plan.has_returned(session, &key, fence, claimed_as) {
        Ok(None) => {}
        Ok(Some(times)) => {
            let row = UnsettledRow { key, fence, due, details, claimed_as: None };
            return Attempted::undone(session, End::Returned(Box::new(row), times));
        }
        Err(error) => return Attempted::lost(End::NotClaimed(error)),
    }
    let (message, kept) = match check_crashes(&mut **session, plan, (&key, &watch), &mut fence, message, &details) {
        Ok(to_handle) => to_handle,
        Err(not_handled) => {
            if let (NotHandled::Suspect, Some(places), Some(lane)) = (&not_handled, plan.claim.places, &details.lane) {
                // The worker claims again, alone, and finds the row only in this lane.
                places.is_next(lane);
            }
            let row = UnsettledRow { key, fence, due, details, claimed_as: None };
            let (end, session_is_sound) = match not_handled {
                NotHandled::Suspect => (End::Suspect, true),
                NotHandled::SetAside => (End::Settled(row.key, Settlement::Failed), true),
                NotHandled::Lost(error) => (End::NotClaimed(error), false),
                NotHandled::Unsettled(remainder) => (End::Unsettled(Box::new(row), remainder, watch), false),
            };
            return Attempted { end, session_is_sound, next: None };
        }
    };
    let unsettled = UnsettledRow { key, fence, due, details, claimed_as };
    plan.slot.hold(Box::new((unsettled.clone(), watch.clone())), &[&watch]);
    let UnsettledRow { key, details, .. } = &unsettled;
    let tries = tries_before(fence) + 1;
    let row = LockedRow { key, fence, before: fence, tries, kept: &kept, details, is_under_savepoint, watch: &watch };
    let SettledRow { result, session_is_sound, next } =
        settle_claimed(session, plan, row, message.map(|message| Box::new(message) as _), Some(in_hand));
    let end = match result {
        Ok(settled) => match claimed_as.map_or(0, |claimed| due_rows.kept_rows.is_written(claimed)) {
            0 => End::Settled(unsettled.key, settled),
            times => End::SettledInVain(Box::new(unsettled), settled, times),
        },
        Err(remainder) => End::Unsettled(Box::new(unsettled), remainder, watch),
    };
    Attempted { end, session_is_sound, next }
}

/// The result for a row that was handled.
pub(crate) struct SettledRow<K> {
    /// The settlement, or what is left to do.
    pub(crate) result: Result<Settlement, Remainder>,
    /// Whether the session may be used again.
    pub(crate) session_is_sound: bool,
    /// The next row, which the end of this one has locked.
    pub(crate) next: Option<ReadRow<K>>,
}

/// Handles, settles and commits a message whose row is locked and whose slot is entered.
pub(crate) fn settle_claimed<K: Key, C: QueueConnection>(
    session: &mut Session<C>,
    plan: &Plan<'_, K, C>,
    row: LockedRow<'_, K>,
    message: Result<ToHandle<'_>, BoxedError>,
    in_hand: Option<RowInHand<'_>>,
) -> SettledRow<K> {
    let mut attempt = Attempt { session, plan, row, session_is_sound: true, in_hand, next: None };
    let result = attempt.run(message);
    let Attempt { session, session_is_sound, next, .. } = attempt;
    let session_is_sound = session_is_sound
        && match &result {
            Ok(_) => true,
            // After a conflict the session is as good as before; after a lost connection the rollback fails.
            Err(Remainder::Postpone(_)) => C::TransactionManager::rollback_transaction(&mut **session).is_ok(),
            Err(_) => false,
        };
    SettledRow { result, session_is_sound, next }
}

impl<K: Key, C: QueueConnection> Attempt<'_, K, C> {
    /// Handles, settles and commits. An error means that the transaction is gone.
    fn run(&mut self, message: Result<ToHandle<'_>, BoxedError>) -> Result<Settlement, Remainder> {
        let decision = self.handle_and_decide(message)?;
        // Once the row is settled, it may be due, and any worker may claim it.
        self.in_hand = None;
        match self.one_trip_ending(&decision) {
            Some(ending) => self.end_at_once(&ending, decision),
            None => self.end_in_steps(decision),
        }
    }

    /// Handles the message and decides what becomes of its row. User code also runs outside the handler: the `Drop` of
    /// the entity and of the error, and the error's `source`. A panic there would leave the row due, and first in line
    /// for ever.
    fn handle_and_decide(&mut self, message: Result<ToHandle<'_>, BoxedError>) -> Result<Decision, Remainder> {
        let decided = catch_unwind(AssertUnwindSafe(|| match message {
            Ok(message) => {
                let (entity, state) = (*message).borrow();
                match self.instead_of_handling(state) {
                    Some((settled, change)) => Ok(Decision { settled, change, effects: Effects::None }),
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
            Err(self.record(&Failure::retry(Panicked::new(panic))))
        })
    }

    /// Returns the new state of a row whose handler is not to run. In lease mode, the claim has already checked this.
    fn instead_of_handling(&self, state: &QueueState) -> Option<(Settlement, Change)> {
        let (rules, row) = (&self.plan.rules, &self.row);
        (!rules.leased)
            .then(|| rules.instead_of_handling(row.before, row.tries, state.next_attempt_time, row.details))
            .flatten()
    }

    /// Runs the handler in its savepoint, which still exists afterwards.
    fn handle(&mut self, entity: &ErasedEntity, state: &QueueState) -> Result<Decision, Remainder> {
        if !self.row.is_under_savepoint {
            self.session.control(SAVEPOINT).map_err(|error| self.lost(error, AttemptError::NotWritten))?;
        }
        fail_point("sentinel");
        let idempotency_key = idempotency_key(&self.plan.info.key_prefix, self.row.key, self.row.details);
        let mut message = Message {
            connection: self.session.lend(),
            state,
            details: self.row.details,
            try_number: self.row.tries,
            idempotency_key: &idempotency_key,
            stop: self.plan.slot.stop_signal(),
        };
        self.row.watch.begins();
        let handler = self.plan.handler;
        let answer = catch_unwind(AssertUnwindSafe(|| handler(entity, &mut message)));
        if let Some(why) = self.plan.slot.revoked() {
            return Err(self.revoked(why));
        }
        let answer = match answer {
            Ok(answer) => self.plan.rules.accept(answer),
            Err(panic) => {
                self.session_is_sound = false;
                Err(Failure::retry(Panicked::new(panic)))
            }
        };
        match &answer {
            Ok(_) => Ok(self.decide(answer, Effects::Stand)),
            Err(failure) => match failure.database_error().filter(|error| is_interruption::<C>(error)) {
                Some(error) => {
                    let text = self.plan.rules.texts.of(&*failure.error);
                    Err(Remainder::Postpone(Interruption::with_text::<C>(error, text)))
                }
                None => Ok(self.decide(answer, Effects::Undone)),
            },
        }
    }

    /// Decides what becomes of the row, and of its handler's writes.
    pub(crate) fn decide(&self, answer: HandlerResult, effects: Effects) -> Decision {
        let (rules, row) = (&self.plan.rules, &self.row);
        let (settled, change) = match answer {
            Ok(outcome) => rules.after_outcome(row.before, row.tries, outcome, row.details),
            Err(failure) => rules.after_failure(row.tries, &failure, row.details),
        };
        Decision { settled, change, effects }
    }
}
