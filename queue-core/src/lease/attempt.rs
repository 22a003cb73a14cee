//! One leased message: call its handler without a transaction; then, in a short one, lock, compare, apply, settle,
//! commit.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use diesel::connection::TransactionManager;
use diesel::result::QueryResult;

use super::calls::{CallEnd, EndedCall};
use super::leased_rows::{DecidedLease, LeasedMessage, LeasedRow, WatchedRow};
use super::runner::{LateRow, LeaseRunner, leave};
use super::settle::{Written, taken_away};
use crate::attempt::{AttemptError, ClaimPlan, LockedRow, Plan, Rest, Runner, Turn, WorkerTurn, settle_claimed};
use crate::backend::{HOLD, QueueConnection, Session, SessionHolder};
use crate::claim::{HeldPlaces, Places, Standing};
use crate::entity::Key;
use crate::error::Error;
use crate::event::Event;
use crate::handler::{
    Answer, Answered, Called, Failure, Lease, LeaseLost, Message, OwnedMessage, PanicSafeDrop, Panicked, drop_safely,
};
use crate::row::{ErrorText, Fence, Settlement, literal, time_literal};
use crate::statement::Claimed;
use crate::sync::in_test::{note_begun, offer_second_call, wants_second_call};
use crate::sync::{ErasedEntity, InTurn, fail_point};

/// How often, and after which pause, an attempt asks for the lock of its queue while other workers check whose turn it
/// is.
const EXCLUDED_TRIES: u32 = 20;

const EXCLUDED_PAUSE: Duration = Duration::from_millis(5);

impl<K: Key, C: QueueConnection> LeaseRunner<'_, K, C> {
    /// Does the rest of an attempt, and tells how it has ended.
    pub(crate) fn to_its_end(
        &self,
        worker: &mut WorkerTurn<'_, '_, C>,
        row: &WatchedRow<K>,
        attempt: impl FnOnce(&mut WorkerTurn<'_, '_, C>) -> Turn,
    ) -> Turn {
        let _span = row.watch.enter_span();
        let turn = self.unless_it_panics(worker, row, attempt).unwrap_or_else(|turn| turn);
        match turn {
            // The poller shut down meanwhile. The heartbeat gives back what it finds once, perhaps before or after this.
            Turn::Interrupted if row.clock.ended() == Some(LeaseLost::Shutdown) => {
                self.give_back(worker.holder, &row.held);
            }
            _ => self.leased_rows.remove(&row.held),
        }
        match turn {
            Turn::Settled(settled) => tracing::debug!(outcome = ?settled, "settled"),
            Turn::Lost => {
                row.watch.end(Event::LeaseLost, None, None);
                return self.explain_loss(worker.holder, row);
            }
            _ => {}
        }
        turn
    }

    /// Does a part of an attempt. If it panics, the attempt ends with that. A handler's panic is caught closer to the handler; this
    /// one comes from this library or from the driver.
    fn unless_it_panics<T>(
        &self,
        worker: &mut WorkerTurn<'_, '_, C>,
        row: &WatchedRow<K>,
        part: impl FnOnce(&mut WorkerTurn<'_, '_, C>) -> T,
    ) -> Result<T, Turn> {
        catch_unwind(AssertUnwindSafe(|| part(worker))).map_err(|panic| {
            let given_up = worker.slot.leave();
            worker.holder.close();
            if given_up {
                return Turn::GivenUp;
            }
            self.settle_failure(worker.holder, row, &Failure::retry(Panicked::new(panic)))
        })
    }

    /// Fails a row that is still leased, and that no statement finds by its key. The lease of any other was taken by somebody
    /// else.
    fn explain_loss(&self, holder: &mut SessionHolder<C>, row: &WatchedRow<K>) -> Turn {
        if self.served.queue.can_lose_keys() {
            let _writing = self.turn_to_write();
            let set_aside = |connection: &mut C| self.served.set_lost_aside(connection, &row.key, row.fence.began);
            match holder.session().and_then(|session| Ok(set_aside(session)?)) {
                Ok(true) => return Turn::Settled(Settlement::Failed),
                Ok(false) => {}
                Err(_) => holder.close(),
            }
        }
        self.served.warn("lost a lease: another process changed the row; nothing was written");
        Turn::Lost
    }

    /// Settles a leased row without its handler.
    pub(crate) fn settle_decided(&self, holder: &mut SessionHolder<C>, decided: &DecidedLease<K>) -> Turn {
        let DecidedLease { held, new } = decided;
        held.clock.answered();
        let row = self.watch(held.clone());
        tracing::debug!(entity = self.served.queue.sql.entity, key = ?held.key, outcome = ?new.settled, "settled without its handler");
        let turn = catch_unwind(AssertUnwindSafe(|| self.record_again_and_again(holder, &row, new)));
        self.leased_rows.remove(held);
        turn.unwrap_or_else(|panic| {
            // The panic is the driver's. The row becomes due when its lease ends.
            std::mem::forget(panic);
            holder.close();
            Turn::Trouble
        })
    }

    /// Calls the handler of a leased message. An error is the end of its attempt.
    pub(super) fn call_leased(
        &self,
        worker: &mut WorkerTurn<'_, '_, C>,
        LeasedMessage { held, message }: LeasedMessage<K>,
    ) -> Result<EndedCall<K>, Turn> {
        if held.clock.ended().is_some() {
            // The row has waited too long for a worker: half its lease is over, and its handler would see that at once.
            self.give_back(worker.holder, &held);
            return Err(Turn::Interrupted);
        }
        let row = self.watch(held);
        let _span = row.watch.enter_span();
        let called = self.unless_it_panics(worker, &row, |worker| self.call_for(worker, &row, message));
        match called {
            Ok(Some(called)) => Ok(EndedCall::new(row, CallEnd::Called(called), None)),
            ended => {
                self.leased_rows.remove(&row.held);
                Err(ended.err().unwrap_or(Turn::GivenUp))
            }
        }
    }

    /// Calls the handler. `None`: the call was given up, and its end recorded.
    fn call_for(
        &self,
        worker: &mut WorkerTurn<'_, '_, C>,
        row: &WatchedRow<K>,
        message: OwnedMessage,
    ) -> Option<Called> {
        let lease = self.lease_of(row, &message.1);
        lease.begin();
        // This session may have begun the transaction of a claim with the end of its last message, but another worker
        // has made the claim.
        worker.holder.roll_back_idle();
        let late = LateRow { row: row.clone(), timeout: self.time_to_call() };
        worker.slot.enter_leased(row.clock.clone(), Box::new(late), &row.watch);
        row.watch.begin();
        worker.holder.end_wait();
        let answer = catch_unwind(AssertUnwindSafe(|| {
            fail_point("calling");
            let answer = self.call(worker.holder, row, &message.0, &lease);
            fail_point("called");
            answer
        }));
        if worker.slot.leave() {
            return None;
        }
        let answer = answer.unwrap_or_else(|panic| Err(Panicked::failure(panic)));
        // A panic in its `Drop` comes too late to belong to the attempt.
        Some(PanicSafeDrop::new(answer.map(|answer| Answered { message, answer })))
    }

    /// Calls the handler; and a second time for the same row while the first call runs, as after a lost lease, if a test of the
    /// application's wants to see that. A second call has its own copy of the entity, and its answer is lost.
    fn call(
        &self,
        holder: &mut SessionHolder<C>,
        held: &LeasedRow<K>,
        entity: &ErasedEntity,
        lease: &Lease,
    ) -> Result<Answer, Failure> {
        let handler = &*self.handler;
        if !wants_second_call() {
            return handler.call(entity, lease);
        }
        let read = self.served.queue.retake(holder.session()?, &held.key, held.fence)?;
        let Some(Claimed { message: Ok((copy, state)), .. }) = read else { return handler.call(entity, lease) };
        let (clock, details, idempotency_key) =
            (lease.clock.clone(), lease.details.clone(), lease.idempotency_key.clone());
        let second =
            Lease { clock, state, details, try_number: lease.try_number, idempotency_key, timeout: lease.timeout };
        thread::scope(|scope| {
            // Withdrawn before the thread is waited for.
            let (_offered, begins, ends) = offer_second_call();
            scope.spawn(move || {
                if begins.recv().is_ok() {
                    drop_safely(catch_unwind(AssertUnwindSafe(|| drop(handler.call(&copy, &second)))));
                    // Nobody waits any more if the first call has panicked.
                    let _ = ends.send(());
                }
            });
            handler.call(entity, lease)
        })
    }

    /// Settles a row after the end of its call.
    pub(crate) fn settle_called(
        &self,
        worker: &mut WorkerTurn<'_, '_, C>,
        held: &WatchedRow<K>,
        called: Result<&Answered, &Failure>,
    ) -> Turn {
        fail_point("lease-called");
        if let Some(turn) = self.settle_taken_away(worker.holder, held) {
            return turn;
        }
        match called {
            Ok(answered) => self.settle_answer(worker, held, answered),
            Err(failure) => self.settle_failure(worker.holder, held, failure),
        }
    }

    /// Ends the time of a call. If that was over before, does what is left to do, whatever the call has answered.
    pub(crate) fn settle_taken_away(&self, holder: &mut SessionHolder<C>, held: &WatchedRow<K>) -> Option<Turn> {
        match held.clock.answered()? {
            LeaseLost::Overtaken => Some(Turn::Lost),
            LeaseLost::Shutdown => Some(Turn::Interrupted),
            LeaseLost::TimedOut => {
                held.watch.mark_past_timeout();
                let failure = Failure::retry(AttemptError::TimedOut(self.time_to_call()));
                Some(self.settle_failure(holder, held, &failure))
            }
            // The row may still be ours. Its state will show.
            LeaseLost::Unconfirmed => None,
        }
    }

    /// Applies the answer and settles the row, again and again until it is written or the lease ends.
    fn settle_answer(&self, worker: &mut WorkerTurn<'_, '_, C>, held: &WatchedRow<K>, answered: &Answered) -> Turn {
        self.persist(held, &mut || {
            let writing = self.turn_to_write();
            let places = self.limits().map(Places::hold);
            let written = self.apply(worker, held, places.as_ref(), answered);
            if self.keeps_turns()
                && worker.holder.session().and_then(|session| Ok(leave(self.served.queue, session, places)?)).is_err()
            {
                worker.holder.close();
            }
            drop(writing);
            match written {
                Ok(Written::Failed(new)) => self.record(worker.holder, held, &new),
                written => written,
            }
            .inspect_err(|_| worker.holder.close())
        })
    }

    /// Runs one transaction: it locks the row and checks that it is still ours, applies the answer, settles and
    /// commits.
    fn apply(
        &self,
        worker: &mut WorkerTurn<'_, '_, C>,
        held: &WatchedRow<K>,
        places: Option<&HeldPlaces<'_, K, C>>,
        Answered { message, answer }: &Answered,
    ) -> Result<Written, Error> {
        let (slot, session) = (worker.slot, worker.holder.session()?);
        // If a row is claimed already, the next turn calls its handler, in no transaction. Beside calls in flight, it may
        // settle another row.
        let claims_at_once = self.served.queue.leases_at_once() && self.statements.are_one();
        session.begin_next(!self.calls.run_beside() && self.claimed_ahead() == 0 && !claims_at_once);
        let is_under_savepoint = match self.hold(session, held, places)? {
            Ok(is_under_savepoint) => is_under_savepoint,
            Err(written) => return Ok(written),
        };
        fail_point("lease-locked");
        slot.enter(session.id, self.served.info.timeout);
        slot.hold(Box::new(LateRow { row: held.clone(), timeout: self.served.info.timeout }), &[&held.watch]);
        if let Some(turn) = taken_away(held) {
            slot.leave();
            C::TransactionManager::rollback_transaction(&mut **session)?;
            return Ok(Written::Ended(turn));
        }
        note_begun(held.key.text());
        let apply = |entity: &ErasedEntity, message: &mut Message<'_, C>| {
            let _in_turn = InTurn::begin();
            self.handler.apply(entity, answer, message)
        };
        let plan = Plan { served: &self.served, handler: &apply, slot, claim: ClaimPlan::none() };
        let LeasedRow { key, fence, before, tries, details, .. } = &*held.held;
        let (fence, before, tries, watch) = (*fence, *before, *tries, &held.watch);
        let row = LockedRow { key, fence, before, tries, kept: &ErrorText::Keep, details, is_under_savepoint, watch };
        let (result, session_is_sound) = settle_claimed(session, &plan, row, Ok(Box::new(&**message)), None);
        let given_up = slot.leave();
        if given_up || !session_is_sound {
            worker.holder.close();
        }
        if given_up {
            return Ok(Written::Ended(Turn::GivenUp));
        }
        fail_point("lease-applied");
        match result {
            Ok(settled) => Ok(Written::Ended(Turn::Settled(settled))),
            Err(Rest::Postpone(interruption)) => Ok(Written::NotYet(interruption.cause)),
            Err(Rest::Record(new) | Rest::RecordReserved(new)) => Ok(Written::Failed(new)),
            Err(Rest::Leave) => Ok(Written::Ended(Turn::Interrupted)),
            Err(Rest::FindOut(in_doubt)) => Ok(self.written_in_doubt(worker.holder.session()?, held, &in_doubt)?),
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
            return Ok(if is_held { Ok(true) } else { Err(Written::Ended(Turn::Lost)) });
        }
        session.begin()?;
        let Some(written) = self.hindrance(session, held, places)? else { return Ok(Ok(false)) };
        C::TransactionManager::rollback_transaction(&mut **session)?;
        Ok(Err(written))
    }

    /// Begins the transaction, locks the row and sets the handler's savepoint in one round trip, if possible. `false`:
    /// the row is no longer as it was claimed.
    fn hold_at_once(&self, session: &mut Session<C>, held: &LeasedRow<K>) -> QueryResult<Option<bool>> {
        let Fence { status, try_count, began: Some(began), change_count: None, .. } = held.fence else {
            return Ok(None);
        };
        let (Some(number), Some(key)) = (session.prepare_lease(self.served.queue)?, literal(&held.key)) else {
            return Ok(None);
        };
        let Some(began) = time_literal(began, "+00") else { return Ok(None) };
        let hold = format!("{HOLD}_{number}({key}, '{status}', {try_count}, {began})");
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
                Standing::Lost => return Ok(Some(Written::Ended(Turn::Lost))),
                Standing::Unknown if tries == EXCLUDED_TRIES => {
                    return Ok(Some(Written::NotYet("other workers hold the queue's lock".to_owned())));
                }
                Standing::Unknown => thread::sleep(EXCLUDED_PAUSE),
            }
        }
        Ok((!self.served.queue.is_still(connection, &held.key, held.fence)?).then_some(Written::Ended(Turn::Lost)))
    }
}
