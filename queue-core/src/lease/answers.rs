//! The answers of several calls in their transaction: lock each row and apply its answer, then settle all rows, and commit.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::result::{Error as DieselError, QueryResult};

use super::calls::EndedCall;
use super::leased_rows::{DecidedLease, LeasedRow, WatchedRow};
use super::runner::{LateRow, LeaseRunner};
use super::settle::taken_away;
use crate::attempt::{AttemptError, RELEASE, ROLLBACK_TO, SAVEPOINT, Slot, is_interruption};
use crate::backend::{Dialect, QueueConnection, Session, Unfinished};
use crate::entity::Key;
use crate::handler::{Answered, Failure, HandlerResult, Message, Panicked, drop_safely};
use crate::row::{ErrorText, Fence, RowKey, idempotency_key};
use crate::statement::Change;
use crate::sync::{Mutex, fail_point};

/// How long a transaction takes up more answers. Handlers that take long to apply theirs are for all workers.
const TAKES_UP_FOR: Duration = Duration::from_millis(20);

/// The same if the server is far away: as long as it takes to lock rows [`LOCKED_TOGETHER`] times, and at most this long.
const TAKES_UP_FOR_AT_MOST: Duration = Duration::from_secs(1);

/// How many rows are locked together.
const LOCKED_TOGETHER: u32 = 16;

/// The answers that a transaction has applied so far. The thread that gives up a handler which does not return takes
/// them, so that other workers apply them anew.
pub(super) struct Batch<K> {
    pub(super) applied: Vec<EndedCall<K>>,
    /// Those that are to be applied next, whose rows are locked.
    pub(super) locked: VecDeque<EndedCall<K>>,
    /// The row of which that thread has recorded that its handler is late.
    pub(super) given_up: Option<Arc<LeasedRow<K>>>,
}

pub(super) type SharedBatch<K> = Arc<Mutex<Batch<K>>>;

impl<K> Batch<K> {
    /// Takes the answers that other workers are to apply instead.
    pub(super) fn take_answers(&mut self) -> Vec<EndedCall<K>> {
        self.applied.drain(..).chain(self.locked.drain(..)).collect()
    }
}

/// A row whose answer is being applied after others, for the thread that records that its handler is late.
pub(crate) struct LateBatch<K> {
    pub(super) late: LateRow<K>,
    pub(super) batch: SharedBatch<K>,
}

/// A worker's state while it applies answers.
pub(super) struct InHand<K> {
    pub(super) batch: SharedBatch<K>,
    /// What becomes of the rows whose answers are applied, in the same order.
    pub(super) decided: Vec<DecidedLease<K>>,
    /// Answers whose rows are to be locked.
    pub(super) taken: Vec<EndedCall<K>>,
    /// The answer that is being applied.
    pub(super) current: Option<EndedCall<K>>,
    /// Answers that another turn has to deal with: their rows are not as they were claimed, or their leases have ended.
    pub(super) aside: Vec<EndedCall<K>>,
}

/// Rows that one statement settles.
pub(super) struct Alike<'a, K> {
    pub(super) change: &'a Change,
    pub(super) rows: Vec<(&'a RowKey<K>, Fence)>,
}

/// Why a transaction with several answers is over and not certainly committed.
pub(super) enum Uncommitted<K> {
    /// It is rolled back, for this reason.
    Undone(String),
    /// The answer to COMMIT was lost.
    InDoubt(String),
    /// The handler of the current answer has ended it, which is a failure of its row.
    EndedByHandler(String, Box<DecidedLease<K>>),
}

impl<K> Uncommitted<K> {
    fn undone<T>(why: &str) -> Result<T, Self> {
        Err(Uncommitted::Undone(why.to_owned()))
    }
}

impl<K> From<DieselError> for Uncommitted<K> {
    fn from(error: DieselError) -> Self {
        Uncommitted::Undone(error.to_string())
    }
}

impl<K: Key, C: QueueConnection> LeaseRunner<'_, K, C> {
    /// Applies the answers, one after the other. If the server lets a handler commit, each row is settled before the
    /// next handler runs, so that the state of a row that a handler commits fits its effects.
    pub(super) fn apply_each(
        &self,
        session: &mut Session<C>,
        slot: &Slot,
        hand: &mut InHand<K>,
        most: u32,
    ) -> Result<(), Uncommitted<K>> {
        let (in_turn, mut has_savepoint) = (!C::Backend::REFUSES_COMMITS, false);
        if !in_turn {
            session.control(SAVEPOINT)?;
        }
        let (started, mut takes_up_for) = (Instant::now(), TAKES_UP_FOR);
        loop {
            // What is left of the rows that were locked together is for other workers, if the first ones took long.
            if !hand.decided.is_empty() && started.elapsed() >= takes_up_for {
                let left = std::mem::take(&mut hand.batch.lock().locked);
                hand.aside.extend(self.calls.hand_on(left.into()));
                break;
            }
            hand.current = hand.batch.lock().locked.pop_front();
            let Some(ended) = &hand.current else {
                let left = most.saturating_sub(u32::try_from(hand.decided.len()).unwrap_or(most));
                if left == 0 || session.is_spoilt() {
                    break;
                }
                let sent = Instant::now();
                if !self.take_up_answers(session, hand, left.min(LOCKED_TOGETHER))? {
                    break;
                }
                takes_up_for = takes_up_for.max((sent.elapsed() * LOCKED_TOGETHER).min(TAKES_UP_FOR_AT_MOST));
                continue;
            };
            let row = &ended.row;
            let late = LateRow { row: row.clone(), timeout: self.served.info.timeout };
            slot.hold_next(Box::new(LateBatch { late, batch: hand.batch.clone() }), &row.watch);
            let decided = match ended.may_join() {
                false => None,
                true if in_turn => {
                    if !std::mem::replace(&mut has_savepoint, true) {
                        session.control(SAVEPOINT)?;
                    }
                    let decided = self.apply_one(session, slot, ended)?;
                    has_savepoint = self.settle_in_turn(session, row, &decided)?;
                    Some(decided)
                }
                true => Some(self.apply_one(session, slot, ended)?),
            };
            match decided {
                Some(decided) => {
                    hand.decided.push(decided);
                    hand.batch.lock().applied.extend(hand.current.take());
                }
                None => hand.aside.extend(hand.current.take()),
            }
        }
        if !in_turn {
            if session.has_other_settings()? {
                return Uncommitted::undone("a handler changed a setting of the session");
            }
            // So that the release does not put them back, and the short lock wait of this transaction with them.
            session.note_own_settings(false);
            session.control(RELEASE)?;
        }
        Ok(())
    }

    /// Settles a row before the next handler runs. Returns whether the savepoint for that is set.
    fn settle_in_turn(
        &self,
        session: &mut Session<C>,
        row: &WatchedRow<K>,
        decided: &DecidedLease<K>,
    ) -> Result<bool, Uncommitted<K>> {
        match self.served.pass_on(session, &row.held.key, row.held.fence, &decided.new) {
            Some(Ok(())) => return Ok(true),
            Some(Err(Unfinished::Savepoint(error))) => return Err(self.without_savepoint(session, row, error)),
            Some(Err(unfinished)) => return Err(unfinished.into_error().into()),
            None => {}
        }
        session.control(RELEASE).map_err(|error| self.without_savepoint(session, row, error))?;
        expect(self.write(session, decided), 1)?;
        Ok(false)
    }

    /// Takes up more answers, and locks those of their rows that are as they were claimed. Returns whether there are any.
    fn take_up_answers(
        &self,
        session: &mut Session<C>,
        hand: &mut InHand<K>,
        most: u32,
    ) -> Result<bool, Uncommitted<K>> {
        // In the hand while the statement runs, which may fail.
        hand.taken.extend(std::iter::from_fn(|| self.calls.take_answer()).take(most as usize - hand.taken.len()));
        if hand.taken.is_empty() {
            return Ok(false);
        }
        // If the database does not answer from here on, their leases end.
        for ended in &hand.taken {
            ended.row.clock.answered();
        }
        let rows: Vec<_> = hand.taken.iter().map(|ended| (&ended.row.key, ended.row.fence)).collect();
        let mut locked = Vec::new();
        if C::Backend::REFUSES_COMMITS {
            locked = self.served.queue.lock_still(session, &rows)?;
        } else {
            // MySQL waits for each locked row that a reading statement passes, and several keys may make it pass others.
            for (place, (key, fence)) in rows.iter().enumerate() {
                if self.served.queue.is_still(session, key, *fence)? {
                    locked.push(place);
                }
            }
        }
        fail_point("lease-locked");
        let mut batch = hand.batch.lock();
        for (place, ended) in std::mem::take(&mut hand.taken).into_iter().enumerate() {
            if locked.contains(&place) { batch.locked.push_back(ended) } else { hand.aside.push(ended) }
        }
        Ok(true)
    }

    /// Applies one of the answers.
    fn apply_one(
        &self,
        session: &mut Session<C>,
        slot: &Slot,
        ended: &EndedCall<K>,
    ) -> Result<DecidedLease<K>, Uncommitted<K>> {
        let EndedCall { row, .. } = ended;
        let Some(Answered { message, answer }) = ended.answer() else {
            return Uncommitted::undone("a call without an answer");
        };
        let _span = row.watch.enter_span();
        let idempotency_key = idempotency_key(&self.served.info.key_prefix, &row.key, &row.details);
        let mut message_of_call = Message {
            connection: session.lend(),
            state: &message.1,
            details: &row.details,
            try_number: row.tries,
            idempotency_key: &idempotency_key,
            stop: slot.stop_signal(),
        };
        let applied = catch_unwind(AssertUnwindSafe(|| {
            fail_point("sentinel");
            let applied = self.handler.apply(&message.0, answer, &mut message_of_call);
            fail_point("handled");
            applied
        }));
        if slot.check_revoked().is_some() {
            drop_safely(applied);
            return Uncommitted::undone("the transaction was taken away");
        }
        let applied: HandlerResult = applied.unwrap_or_else(|panic| Err(Panicked::failure(panic)));
        match self.served.rules.accept(applied) {
            Err(failure) => Err(self.failed(session, row, &failure)),
            Ok(outcome) => {
                if session.is_in_no_transaction() {
                    drop_safely(outcome);
                    let error = DieselError::NotInTransaction;
                    return Err(self.ended_by_handler(row, error.to_string(), AttemptError::TransactionEnded(error)));
                }
                if let Err(error) = session.check_savepoint() {
                    return Err(self.without_savepoint(session, row, error));
                }
                if !session.is_in_our_transaction_alone() {
                    return Uncommitted::undone("a handler has left a transaction open");
                }
                let new = self.served.rules.after_outcome(row.before, row.tries, outcome, &row.details);
                Ok(DecidedLease { held: row.held.clone(), new })
            }
        }
    }

    /// Returns why the transaction of an answer that was not applied is over.
    fn failed(&self, session: &mut Session<C>, row: &WatchedRow<K>, failure: &Failure) -> Uncommitted<K> {
        let is_known = failure.database_error().is_some_and(is_interruption::<C>);
        match session.control(ROLLBACK_TO) {
            Err(error) if !is_known && !is_interruption::<C>(&error) => {
                let mut new = self.served.rules.after_failure(row.tries, failure, &row.details);
                let text = new.change.error.text().unwrap_or_default().to_owned();
                new.change.error = ErrorText::Set(self.served.rules.texts.of(&AttemptError::FailedAndEnded(text)));
                let decided = DecidedLease { held: row.held.clone(), new };
                Uncommitted::EndedByHandler(error.to_string(), Box::new(decided))
            }
            _ => Uncommitted::Undone("a handler failed".to_owned()),
        }
    }

    /// Returns why a transaction is over whose savepoint cannot be released. If it still exists, no handler has ended
    /// the transaction.
    fn without_savepoint(&self, session: &mut Session<C>, row: &WatchedRow<K>, error: DieselError) -> Uncommitted<K> {
        if is_interruption::<C>(&error) || session.control(ROLLBACK_TO).is_ok() {
            return error.into();
        }
        self.ended_by_handler(row, error.to_string(), AttemptError::TransactionEnded(error))
    }

    fn ended_by_handler(&self, row: &WatchedRow<K>, cause: String, error: AttemptError) -> Uncommitted<K> {
        let new = self.served.rules.after_failure(row.tries, &Failure::retry(error), &row.details);
        let decided = DecidedLease { held: row.held.clone(), new };
        Uncommitted::EndedByHandler(cause, Box::new(decided))
    }

    /// Settles the rows, unless that was done: rows with the same change by one statement.
    pub(super) fn settle_each(
        &self,
        session: &mut Session<C>,
        decided: &[DecidedLease<K>],
    ) -> Result<(), Uncommitted<K>> {
        fail_point("lease-applied");
        if decided.iter().any(|decided| taken_away(&decided.held).is_some()) {
            return Uncommitted::undone("a lease has ended");
        }
        if !C::Backend::REFUSES_COMMITS {
            return Ok(());
        }
        let mut alike: Vec<Alike<'_, K>> = Vec::new();
        for row in decided {
            let (key, fence) = (&row.held.key, row.held.fence);
            match alike.iter_mut().find(|alike| *alike.change == row.new.change) {
                _ if row.new.change.removes => expect(self.write(session, row), 1)?,
                Some(alike) => alike.rows.push((key, fence)),
                None => alike.push(Alike { change: &row.new.change, rows: vec![(key, fence)] }),
            }
        }
        for Alike { change, rows } in alike {
            expect(self.served.queue.settle_many(session, &rows, change), rows.len())?;
        }
        Ok(())
    }

    /// Writes a row's new state, under its fence.
    fn write(&self, connection: &mut C, DecidedLease { held, new }: &DecidedLease<K>) -> QueryResult<usize> {
        self.served.queue.settle(connection, &held.key, held.fence, &new.change)
    }

    pub(super) fn commit_together(&self, session: &mut Session<C>, slot: &Slot) -> Result<(), Uncommitted<K>> {
        if slot.begin_commit().is_err() {
            return Uncommitted::undone("the transaction was taken away");
        }
        fail_point("committing");
        match session.commit_group(false) {
            Ok(()) => {
                fail_point("committed");
                Ok(())
            }
            Err(error) if C::leaves_commit_in_doubt(&error) => Err(Uncommitted::InDoubt(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }
}

/// Checks how many rows were written. A row that is no longer as it was claimed is found when it runs alone.
fn expect<K>(written: QueryResult<usize>, expected: usize) -> Result<(), Uncommitted<K>> {
    match written? {
        rows if rows == expected => Ok(()),
        rows => Err(Uncommitted::Undone(format!("{rows} rows were settled instead of {expected}"))),
    }
}
