//! A batch in its transaction: the worker calls the handler of each row in turn, in a savepoint of its own or under one for all,
//! settles the rows, and commits once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use diesel::result::QueryResult;

use super::rows::{BatchEnd, BatchRow, DecidedRow, Handled, Reservation, Undone, conflict, undone};
use crate::attempt::{
    AttemptError, Interruption, NewState, RELEASE, ROLLBACK_TO, Rest, Revocation, SAVEPOINT, ServedQueue, Slot,
    is_interruption,
};
use crate::backend::{QueueConnection, Session};
use crate::entity::Key;
use crate::handler::{Failure, HandlerResult, Message, Outcome, Panicked, drop_safely};
use crate::row::{Details, Settlement};
use crate::sync::fail_point;

/// Why a batch is undone whose handlers may have seen a setting that one of them has changed.
const HAS_SET: &str = "a handler changed a setting of the session";

/// An entity whose handler may run, with its row if that was read again. `None`: its row is left as it is.
pub(crate) type AsItIsNow<E, K> = Option<(E, Option<BatchRow<K>>)>;

/// What the messages of a batch are handled by.
pub(crate) trait BatchBody<K: Key, C: QueueConnection>: Sized {
    /// What the handler of a message gets besides the message.
    type Entity;

    /// The entities of a batch, in the order of its rows.
    type Entities: Iterator<Item = Self::Entity>;

    /// Whether the transaction of the next batch may begin with the commit of this one.
    const BEGINS_NEXT: bool;

    /// Notes that the handler of a row is about to run, for the threads that watch it.
    fn begin(&self, slot: &Slot, entity: &Self::Entity, row: &BatchRow<K>);

    /// Calls the handler.
    fn call(&self, entity: &Self::Entity, message: &mut Message<'_, C>) -> HandlerResult;

    /// Takes an entity back whose handler has returned. To drop it is to run the user's code.
    fn take_back(&self, entity: Self::Entity);

    /// Tells whether another handler may begin in a transaction that has been open for so long.
    fn has_time(&self, open_for: Duration) -> bool;

    /// Tells whether the handler of a row may run, just before that.
    fn as_it_is_now(
        &self,
        session: &mut Session<C>,
        is_first: bool,
        entity: Self::Entity,
        row: &BatchRow<K>,
    ) -> QueryResult<AsItIsNow<Self::Entity, K>>;

    /// Offers all messages to the handler at once. Returns whether it has handled them.
    fn offer(
        _batch: &mut OpenBatch<'_, '_, K, C, Self>,
        _entities: &mut Self::Entities,
        _rows: &[BatchRow<K>],
    ) -> Result<bool, BatchEnd<K>> {
        Ok(false)
    }
}

/// A batch in its transaction.
pub(crate) struct OpenBatch<'a, 'c, K: Key, C: QueueConnection, B> {
    pub(crate) session: &'a mut Session<'c, C>,
    pub(crate) served: &'a ServedQueue<K, C>,
    pub(crate) slot: &'a Slot,
    pub(crate) body: &'a B,
    /// Whether each success is settled before the next handler runs, so that a handler that commits then commits those before it
    /// with their effects.
    pub(crate) settles_in_turn: bool,
    pub(crate) reservation: Option<Reservation>,
    /// How many of the rows were handled, or begun.
    pub(crate) begun: usize,
    pub(crate) decided: Vec<DecidedRow<K>>,
    pub(crate) session_is_sound: bool,
    /// A remark about the handler for the log.
    pub(crate) remark: Option<String>,
    started: Instant,
    /// How long one of its messages took on average, once they are handled.
    pub(crate) turn: Option<Duration>,
}

impl<'a, 'c, K: Key, C: QueueConnection, B: BatchBody<K, C>> OpenBatch<'a, 'c, K, C, B> {
    /// Notes that a transaction has begun.
    pub(crate) fn new(
        session: &'a mut Session<'c, C>,
        served: &'a ServedQueue<K, C>,
        slot: &'a Slot,
        body: &'a B,
    ) -> Self {
        let (settles_in_turn, reservation, begun, decided, turn, remark) = Default::default();
        let (session_is_sound, started) = (true, Instant::now());
        OpenBatch {
            session,
            served,
            slot,
            body,
            settles_in_turn,
            reservation,
            begun,
            decided,
            session_is_sound,
            remark,
            started,
            turn,
        }
    }

    /// Handles the messages with a savepoint for each, so that a failure is undone alone.
    pub(crate) fn handle_in_turn(&mut self, entities: &mut B::Entities, rows: &[BatchRow<K>]) -> Handled<K> {
        if rows.len() > 1 {
            self.session.share_settings();
        }
        let handled = self.handle_each(entities, rows);
        let were_shared = self.session.end_sharing();
        handled?;
        if were_shared && self.session.detect_shared_changes().map_err(undone::<K, C>)? {
            return Err(BatchEnd::Undone(Undone::Alone(HAS_SET.to_owned())));
        }
        Ok(())
    }

    fn handle_each(&mut self, entities: &mut B::Entities, rows: &[BatchRow<K>]) -> Handled<K> {
        self.session.control(SAVEPOINT).map_err(undone::<K, C>)?;
        if B::offer(self, entities, rows)? {
            return Ok(());
        }
        let mut left = rows.len();
        for (row, entity) in rows.iter().zip(entities) {
            left -= 1;
            let _span = row.watch.enter_span();
            let Some((entity, anew)) = self.as_it_is_now(entity, row)? else { continue };
            let row = anew.as_ref().unwrap_or(row);
            let (answer, panicked) = self.call(entity, row);
            if let Some(why) = self.slot.check_revoked() {
                drop_safely(answer);
                let rest = self.rest_of_revoked(row, why);
                return Err(self.ended_by(row, rest));
            }
            let goes_on = left > 0 && !panicked && self.has_time();
            match answer {
                Ok(outcome) => self.release(row, outcome, goes_on)?,
                Err(failure) => self.undo(row, failure)?,
            }
            if !goes_on || self.session.is_spoilt() {
                break;
            }
        }
        Ok(())
    }

    /// Handles the messages under one savepoint. At the first failure the batch is undone, and its messages run one by
    /// one.
    pub(crate) fn handle_under_one_savepoint(
        &mut self,
        entities: &mut B::Entities,
        rows: &[BatchRow<K>],
    ) -> Handled<K> {
        self.session.control(SAVEPOINT).map_err(undone::<K, C>)?;
        if B::offer(self, entities, rows)? {
            return Ok(());
        }
        for row in rows {
            if self.begun > 0 && !self.has_time() {
                break;
            }
            let Some(entity) = entities.next() else { break };
            let _span = row.watch.enter_span();
            let Some((entity, anew)) = self.as_it_is_now(entity, row)? else { continue };
            let row = anew.as_ref().unwrap_or(row);
            let (answer, _) = self.call(entity, row);
            if let Some(why) = self.slot.check_revoked() {
                drop_safely(answer);
                let why = self.revoked(why);
                return Err(self.ended_by_unknown(rows, Some(why)));
            }
            // The next handler's writes would be committed by themselves, and any worker could claim its row.
            if self.session.has_lost_savepoint() {
                match answer {
                    Ok(outcome) => self.release(row, outcome, false)?,
                    Err(failure) => self.undo(row, failure)?,
                }
                return Err(BatchEnd::Undone(Undone::Alone("a handler ended the transaction".to_owned())));
            }
            match answer {
                Ok(outcome) => self.decide(row, outcome),
                Err(failure) => {
                    let why = match self.judge(row.tries, failure, &row.details) {
                        Ok(_) => Undone::Alone("a message failed".to_owned()),
                        Err(by) => Undone::Conflict(by.cause),
                    };
                    return Err(self.undo_all(rows, why));
                }
            }
        }
        self.release_all(rows)
    }

    /// Releases the savepoint of all.
    fn release_all(&mut self, rows: &[BatchRow<K>]) -> Handled<K> {
        // Under one savepoint, each handler sees the settings that an earlier one has changed. A handler that changes
        // settings runs alone.
        let why = match self.session.has_other_settings() {
            Ok(is_set) => is_set.then(|| Undone::Alone(HAS_SET.to_owned())),
            // The release reports any other error.
            Err(error) => conflict::<C>(&error),
        };
        if let Some(why) = why {
            return Err(self.undo_all(rows, why));
        }
        // So that the release does not put them back, and the short lock wait of this transaction with them.
        self.session.note_own_settings(false);
        let Err(error) = self.session.control(RELEASE) else { return Ok(()) };
        let why = conflict::<C>(&error);
        let why = why.unwrap_or_else(|| Undone::Alone(AttemptError::SwallowedError(error).to_string()));
        Err(self.undo_all(rows, why))
    }

    /// Returns an entity whose handler may run, unless its row is left as it is.
    fn as_it_is_now(&mut self, entity: B::Entity, row: &BatchRow<K>) -> Result<AsItIsNow<B::Entity, K>, BatchEnd<K>> {
        let now = self.body.as_it_is_now(self.session, self.begun == 0, entity, row).map_err(undone::<K, C>)?;
        self.begun += usize::from(now.is_none());
        Ok(now)
    }

    /// Calls the handler. Returns its answer, and whether it panicked. The entity is taken back before the savepoint is
    /// released, because its `Drop` is user code too.
    fn call(&mut self, entity: B::Entity, row: &BatchRow<K>) -> (HandlerResult, bool) {
        self.begun += 1;
        let (body, slot, session) = (self.body, self.slot, &mut *self.session);
        let answer = catch_unwind(AssertUnwindSafe(|| {
            fail_point("sentinel");
            let mut message = Message {
                connection: session.lend(),
                state: &row.state,
                details: &row.details,
                try_number: row.tries,
                idempotency_key: &row.idempotency_key,
                stop: slot.stop_signal(),
            };
            body.begin(slot, &entity, row);
            let answer = body.call(&entity, &mut message);
            fail_point("handled");
            answer
        }));
        let taken_back = catch_unwind(AssertUnwindSafe(|| body.take_back(entity)));
        match (answer, taken_back) {
            (Ok(answer), Ok(())) => (self.served.rules.accept(answer), false),
            (Err(panic), _) | (Ok(_), Err(panic)) => {
                self.session_is_sound = false;
                (Err(Panicked::failure(panic)), true)
            }
        }
    }

    /// Tells whether to begin the next message.
    fn has_time(&self) -> bool {
        self.body.has_time(self.started.elapsed())
    }

    /// Notes that the messages are handled.
    pub(crate) fn note_handled(&mut self) {
        self.turn = u32::try_from(self.begun).ok().and_then(|begun| self.started.elapsed().checked_div(begun));
    }

    /// Returns the rest for a row whose handler ran when the transaction was taken away. Only the first handler
    /// had the whole timeout.
    fn rest_of_revoked(&self, row: &BatchRow<K>, why: Revocation) -> Rest {
        match why {
            Revocation::TimedOut if self.begun == 1 => {
                Rest::record(self.after(row, AttemptError::TimedOut(self.served.info.timeout)))
            }
            Revocation::TimedOut | Revocation::Shutdown => Rest::Leave,
        }
    }

    pub(crate) fn decide(&mut self, row: &BatchRow<K>, outcome: Outcome) {
        let mut new = self.served.rules.after_outcome(row.before, row.tries, outcome, &row.details);
        if new.settled == Settlement::Again && self.reservation.is_some() {
            // The text stays as it was at the claim; the reservation has replaced it on the row.
            new.change.error = row.text();
        }
        self.decided.push(row.decided(new, false));
    }

    pub(crate) fn revoked(&self, why: Revocation) -> Undone {
        match why {
            // The handler that was running may have had only a part of the timeout.
            Revocation::TimedOut => Undone::Alone(AttemptError::TimedOut(self.served.info.timeout).to_string()),
            Revocation::Shutdown => Undone::Shutdown,
        }
    }

    /// Returns the end of a batch whose transaction the handler of this row may have ended.
    pub(crate) fn ended_by(&mut self, row: &BatchRow<K>, rest: Rest) -> BatchEnd<K> {
        BatchEnd::EndedByHandler { before: std::mem::take(&mut self.decided), offender: Box::new((row.clone(), rest)) }
    }

    /// Returns the end of a batch after an interruption of this row that has cost it the savepoint.
    pub(crate) fn interrupted(&mut self, row: &BatchRow<K>, by: Interruption) -> BatchEnd<K> {
        // The batch was the victim of a deadlock. Its rows are as they were, and prove nothing: others may have
        // processed them since.
        if self.reservation.is_none() && by.rolls_back {
            return BatchEnd::Undone(Undone::Conflict(by.cause));
        }
        self.ended_by(row, Rest::Postpone(by))
    }

    /// Returns the end of a batch whose transaction was ended by one of the handlers that have run.
    pub(crate) fn ended_by_unknown(&mut self, rows: &[BatchRow<K>], why: Option<Undone>) -> BatchEnd<K> {
        let rows = rows[..self.begun].iter().map(|row| row.in_doubt(&self.served.rules)).collect();
        BatchEnd::EndedByUnknown { rows, why }
    }

    /// Undoes all writes of the handlers, if the transaction is still ours.
    pub(crate) fn undo_all(&mut self, rows: &[BatchRow<K>], why: Undone) -> BatchEnd<K> {
        match (self.session.control(ROLLBACK_TO), why) {
            (Ok(()), why) => BatchEnd::Undone(why),
            // MySQL has rolled back the whole transaction if it chose it to end a deadlock.
            (Err(_), Undone::Conflict(cause)) => self.ended_by_unknown(rows, Some(Undone::Conflict(cause))),
            (Err(error), _) => self.ended_by_unknown(rows, conflict::<C>(&error)),
        }
    }

    /// Decides what a failure makes of its row. An error is an interruption. The failure's `source` and `Drop` are user
    /// code.
    pub(crate) fn judge(&mut self, tries: u32, failure: Failure, details: &Details) -> Result<NewState, Interruption> {
        let rules = &self.served.rules;
        let judged = catch_unwind(AssertUnwindSafe(|| {
            let judged = match failure.database_error() {
                Some(error) if is_interruption::<C>(error) => {
                    Err(Interruption::with_text::<C>(error, rules.texts.of(&*failure.error)))
                }
                _ => Ok(rules.after_failure(tries, &failure, details)),
            };
            drop(failure);
            judged
        }));
        judged.unwrap_or_else(|panic| {
            self.session_is_sound = false;
            Ok(rules.after_failure(tries, &Failure::retry(Panicked::new(panic)), details))
        })
    }

    pub(crate) fn after(&self, row: &BatchRow<K>, error: AttemptError) -> NewState {
        self.served.rules.after_failure(row.tries, &Failure::retry(error), &row.details)
    }
}
