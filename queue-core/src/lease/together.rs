//! The answers of several calls, one transaction: lock each row and apply its answer, settle all rows, commit once.
//!
//! Batching only saves commits. If one answer cannot be applied, the worker rolls the batch back and applies each answer
//! alone, see [`settle_called`](LeaseRunner::settle_called).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::connection::TransactionManager;
use diesel::result::{Error as DieselError, QueryResult};

use super::calls::{Calls, EndedCall};
use super::leased_rows::{DecidedRow, LeasedRow, WatchedRow};
use super::runner::{LateRow, LeaseRunner};
use super::settle::taken_away;
use crate::attempt::{
    AttemptError, InDoubt, RELEASE, ROLLBACK_TO, SAVEPOINT, Slot, Tally, Turn, WorkerTurn, is_interruption,
};
use crate::backend::{QueueConnection, RoundTrips, Session, SessionHolder};
use crate::entity::Key;
use crate::fault::fail_point;
use crate::handler::{Answered, Failure, HandlerResult, LeaseLost, Message, Panicked, drop_safely};
use crate::lock::Mutex;
use crate::row::{ErrorText, Fence, Settlement, failure_text, idempotency_key};
use crate::statement::Change;

/// How long a transaction takes up more answers. Handlers that take long to apply theirs are for all workers.
const TAKES_UP_FOR: Duration = Duration::from_millis(20);

/// The answers that a transaction has applied so far. The thread that gives up a handler which does not return takes
/// them, so that other workers apply them anew.
struct Batch<K, C> {
    applied: Vec<EndedCall<K, C>>,
    /// The row of which that thread has recorded that its handler is late.
    given_up: Option<Arc<LeasedRow<K>>>,
}

type SharedBatch<K, C> = Arc<Mutex<Batch<K, C>>>;

/// A row whose answer is being applied after others, for the thread that records that its handler is late.
pub(crate) struct LateBatch<K, C> {
    late: LateRow<K>,
    batch: SharedBatch<K, C>,
}

/// A worker's state while it applies answers.
struct InHand<K, C> {
    batch: SharedBatch<K, C>,
    /// What becomes of the rows whose answers are applied, in the same order.
    decided: Vec<DecidedRow<K>>,
    /// The answer that is being applied.
    current: Option<EndedCall<K, C>>,
    /// Answers that another turn has to deal with: their rows are not as they were claimed, or their leases have ended.
    aside: Vec<EndedCall<K, C>>,
}

/// Rows that one statement settles.
struct Alike<'a, K> {
    change: &'a Change,
    rows: Vec<(&'a K, Fence)>,
}

/// Why a transaction with several answers is over and not certainly committed.
enum Uncommitted<K> {
    /// It is rolled back, for this reason.
    Undone(String),
    /// The answer to COMMIT was lost.
    InDoubt(String),
    /// The handler of the current answer has ended it, which is a failure of its row.
    EndedByHandler(String, Box<DecidedRow<K>>),
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

impl<K: Key, C: QueueConnection> LeaseRunner<K, C> {
    /// Applies this answer, and those of other calls that have ended, up to `most` in all, in one transaction. If that
    /// is impossible, they are to be applied alone.
    pub(crate) fn settle_together(
        &self,
        calls: &Calls<K, C>,
        worker: &mut WorkerTurn<'_, C>,
        first: EndedCall<K, C>,
        most: u32,
    ) -> Turn {
        let batch = Arc::new(Mutex::new(Batch { applied: Vec::new(), given_up: None }));
        let mut hand = InHand { batch, decided: Vec::new(), current: Some(first), aside: Vec::new() };
        let writing = self.turn_to_write();
        let tried = || self.try_together(calls, worker, &mut hand, most);
        let end = catch_unwind(AssertUnwindSafe(tried)).unwrap_or_else(|panic| {
            // Handlers' panics are caught closer to them. This one comes from this library or from the driver, at any time.
            std::mem::forget(panic);
            worker.holder.close();
            Err(Uncommitted::InDoubt("a panic".to_owned()))
        });
        drop(writing);
        let is_given_up = worker.slot.leave();
        let InHand { batch, decided, current, aside: mut back } = hand;
        let Batch { applied, given_up } = {
            let mut batch = batch.lock();
            Batch { applied: std::mem::take(&mut batch.applied), given_up: batch.given_up.take() }
        };
        if is_given_up {
            worker.holder.close();
            let is_recorded = |row: &Arc<LeasedRow<K>>| given_up.as_ref().is_some_and(|it| Arc::ptr_eq(it, row));
            back.extend(applied.into_iter().chain(current).filter(|ended| !is_recorded(&ended.row.held)));
            calls.put_back(back);
            return Turn::GivenUp;
        }
        let mut tally = Tally::default();
        match end {
            Ok(()) => {
                calls.sizes.lock().note_success();
                for (EndedCall { row, .. }, DecidedRow { settled, change, .. }) in applied.iter().zip(&decided) {
                    self.served.rules.teller.settled(&row.key, *settled, change, &row.watch);
                    tally.count(self.note_settled(row, *settled));
                }
            }
            Err(Uncommitted::Undone(why)) => {
                let answers = decided.len();
                let why = self.served.redacted(&why);
                tracing::debug!(entity = self.served.queue.sql.entity, answers, %why, "answers were not applied together");
                calls.sizes.lock().note_hindered();
                back.extend(applied.into_iter().chain(current));
            }
            Err(Uncommitted::InDoubt(cause)) => {
                calls.sizes.lock().note_hindered();
                back.extend(self.find_out_each(worker.holder, applied, decided, &cause, &mut tally));
                back.extend(current);
            }
            Err(Uncommitted::EndedByHandler(cause, failed)) => {
                calls.sizes.lock().note_hindered();
                back.extend(self.find_out_each(worker.holder, applied, decided, &cause, &mut tally));
                if let Some(EndedCall { row, .. }) = &current {
                    tally.count(self.to_its_end(worker, row, |worker| {
                        self.record_again_and_again(worker.holder, row, failed.settled, &failed.change)
                    }));
                }
            }
        }
        for EndedCall { row, .. } in calls.put_back(back) {
            row.watch.is_interrupted("the poller shuts down");
            tally.count(Turn::Interrupted);
        }
        Turn::Group(tally)
    }

    /// Notes that a row's new state is committed.
    fn note_settled(&self, row: &WatchedRow<K>, settled: Settlement) -> Turn {
        let _span = self.span(row).entered();
        self.served.due_rows.is_written(&row.key);
        self.leased_rows.remove(&row.held);
        tracing::debug!(outcome = ?settled, "settled");
        Turn::Settled(settled)
    }

    /// Records that the last of several handlers is late, and has the answers before it applied anew.
    pub(crate) fn settle_late_batch(&self, holder: &mut SessionHolder<C>, late: &LateBatch<K, C>) -> Turn {
        let applied = {
            let mut batch = late.batch.lock();
            batch.given_up = Some(late.late.row.held.clone());
            std::mem::take(&mut batch.applied)
        };
        if let Some(calls) = &self.calls {
            // The transaction was taken away, and cannot commit any more.
            let is_another = |ended: &EndedCall<K, C>| !Arc::ptr_eq(&ended.row.held, &late.late.row.held);
            calls.put_back(applied.into_iter().filter(is_another).collect());
        }
        self.settle_late(holder, &late.late)
    }

    /// Runs the transaction. After an error it is over.
    fn try_together(
        &self,
        calls: &Calls<K, C>,
        worker: &mut WorkerTurn<'_, C>,
        hand: &mut InHand<K, C>,
        most: u32,
    ) -> Result<(), Uncommitted<K>> {
        let slot = worker.slot;
        let session = worker.holder.session().map_err(|error| Uncommitted::Undone(failure_text(&error, 500)))?;
        if let Err(error) = session.begin_group() {
            worker.holder.close();
            return Err(error.into());
        }
        slot.enter(session.id, self.served.info.timeout);
        let end = self
            .apply_each(calls, session, slot, hand, most)
            .and_then(|()| self.settle_each(session, &hand.decided))
            .and_then(|()| self.commit_together(session, slot));
        let is_over = match &end {
            Ok(()) => session.roll_back_idle().is_ok(),
            // A handler may have left a transaction of its own open, for example by a panic.
            Err(_) => {
                C::TransactionManager::rollback_transaction(&mut **session).is_ok() && session.is_in_no_transaction()
            }
        };
        if !is_over || !matches!(end, Ok(()) | Err(Uncommitted::Undone(_))) {
            worker.holder.close();
        }
        end
    }

    /// Applies the answers, one after the other. If the server lets a handler commit, each row is settled before the
    /// next handler runs, so that the state of a row that a handler commits fits its effects.
    fn apply_each(
        &self,
        calls: &Calls<K, C>,
        session: &mut Session<C>,
        slot: &Slot,
        hand: &mut InHand<K, C>,
        most: u32,
    ) -> Result<(), Uncommitted<K>> {
        let (started, in_turn) = (Instant::now(), !C::Backend::REFUSES_COMMITS);
        if !in_turn {
            session.control(SAVEPOINT)?;
        }
        while let Some(ended) = &hand.current {
            let row = &ended.row;
            let late = LateRow { row: row.clone(), timeout: self.served.info.timeout };
            slot.hold(Box::new(LateBatch { late, batch: hand.batch.clone() }), &[&row.watch]);
            let decided = match self.lock_row(session, row)? {
                false => None,
                true if in_turn => {
                    session.control(SAVEPOINT)?;
                    let decided = self.apply_one(session, slot, ended)?;
                    if let Err(error) = session.control(RELEASE) {
                        return Err(self.without_savepoint(session, row, error));
                    }
                    expect(self.write(session, &decided), 1)?;
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
            if hand.decided.len() < most as usize && started.elapsed() < TAKES_UP_FOR && !session.is_spoilt() {
                hand.current = calls.take_answer();
            }
        }
        if !in_turn {
            if session.has_other_settings()? {
                return Uncommitted::undone("a handler changed a setting of the session");
            }
            // So that the release does not put them back, and the short lock wait of this transaction with them.
            session.has_own_settings();
            session.control(RELEASE)?;
        }
        Ok(())
    }

    /// Locks a row, and tells whether its answer may be applied: it is as it was claimed, and its call was in time.
    fn lock_row(&self, session: &mut Session<C>, row: &WatchedRow<K>) -> Result<bool, Uncommitted<K>> {
        fail_point("lease-called");
        if !self.served.queue.is_still(session, &row.key, row.fence)? {
            return Ok(false);
        }
        fail_point("lease-locked");
        Ok(matches!(row.clock.answered(), None | Some(LeaseLost::Unconfirmed)))
    }

    /// Applies one of the answers.
    fn apply_one(
        &self,
        session: &mut Session<C>,
        slot: &Slot,
        ended: &EndedCall<K, C>,
    ) -> Result<DecidedRow<K>, Uncommitted<K>> {
        let EndedCall { row, .. } = ended;
        let Some(Answered { message, answer }) = ended.answer() else {
            return Uncommitted::undone("a call without an answer");
        };
        let _span = self.span(row).entered();
        let idempotency_key = idempotency_key(&self.served.info.key_prefix, &row.key, &row.details);
        let mut message_of_call = Message {
            connection: session.lend(),
            state: &message.1,
            details: &row.details,
            try_number: row.tries,
            idempotency_key: &idempotency_key,
            stop: slot.stop_signal(),
        };
        let applied = catch_unwind(AssertUnwindSafe(|| answer(&message.0, &mut message_of_call)));
        if slot.revoked().is_some() {
            drop_safely(applied);
            return Uncommitted::undone("the transaction was taken away");
        }
        let applied: HandlerResult = applied.unwrap_or_else(|panic| Err(Failure::retry(Panicked::new(panic))));
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
                let (settled, change) = self.served.rules.after_outcome(row.before, row.tries, outcome, &row.details);
                Ok(DecidedRow { held: row.held.clone(), settled, change })
            }
        }
    }

    /// Returns why the transaction of an answer that was not applied is over.
    fn failed(&self, session: &mut Session<C>, row: &WatchedRow<K>, failure: &Failure) -> Uncommitted<K> {
        let is_known = failure.database_error().is_some_and(is_interruption::<C>);
        match session.control(ROLLBACK_TO) {
            Err(error) if !is_known && !is_interruption::<C>(&error) => {
                let (settled, mut change) = self.served.rules.after_failure(row.tries, failure, &row.details);
                let text = change.error.text().unwrap_or_default().to_owned();
                change.error = ErrorText::Set(self.served.rules.texts.of(&AttemptError::FailedAndEnded(text)));
                let decided = DecidedRow { held: row.held.clone(), settled, change };
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
        let (settled, change) = self.served.rules.after_failure(row.tries, &Failure::retry(error), &row.details);
        let decided = DecidedRow { held: row.held.clone(), settled, change };
        Uncommitted::EndedByHandler(cause, Box::new(decided))
    }

    /// Settles the rows, unless that was done: rows with the same change by one statement.
    fn settle_each(&self, session: &mut Session<C>, decided: &[DecidedRow<K>]) -> Result<(), Uncommitted<K>> {
        fail_point("lease-applied");
        if decided.iter().any(|decided| taken_away(&decided.held).is_some()) {
            return Uncommitted::undone("a lease has ended");
        }
        if !C::Backend::REFUSES_COMMITS {
            return Ok(());
        }
        let mut alike: Vec<Alike<'_, K>> = Vec::new();
        for row in decided {
            let (key, fence) = (row.held.key.value(), row.held.fence);
            match alike.iter_mut().find(|alike| *alike.change == row.change) {
                _ if row.change.removes => expect(self.write(session, row), 1)?,
                Some(alike) => alike.rows.push((key, fence)),
                None => alike.push(Alike { change: &row.change, rows: vec![(key, fence)] }),
            }
        }
        for Alike { change, rows } in alike {
            expect(self.served.queue.settle_many(session, &rows, change), rows.len())?;
        }
        Ok(())
    }

    /// Writes a row's new state, under its fence.
    fn write(&self, connection: &mut C, DecidedRow { held, change, .. }: &DecidedRow<K>) -> QueryResult<usize> {
        self.served.queue.settle(connection, &held.key, held.fence, change)
    }

    fn commit_together(&self, session: &mut Session<C>, slot: &Slot) -> Result<(), Uncommitted<K>> {
        if slot.commit().is_err() {
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

    /// Finds out which rows were settled by a transaction that may have been committed, and counts them. Returns the
    /// calls of the others.
    fn find_out_each(
        &self,
        holder: &mut SessionHolder<C>,
        applied: Vec<EndedCall<K, C>>,
        decided: Vec<DecidedRow<K>>,
        cause: &str,
        tally: &mut Tally,
    ) -> Vec<EndedCall<K, C>> {
        let (mut others, since) = (Vec::new(), Instant::now());
        for (ended, DecidedRow { settled, change, .. }) in applied.into_iter().zip(decided) {
            let row = &ended.row;
            let reached = change.reached(row.fence, self.served.queue.sql.options);
            let in_doubt = InDoubt { settled, reached, cause: cause.to_owned(), since, change: Some(change) };
            let found = catch_unwind(AssertUnwindSafe(|| self.find_out(holder, row, &in_doubt)));
            match found {
                Ok(Some(found)) => tally.count(self.note_settled(row, found)),
                Ok(None) => others.push(ended),
                Err(panic) => {
                    // The driver's. Alone, the row shows what has become of it.
                    std::mem::forget(panic);
                    holder.close();
                    others.push(ended);
                }
            }
        }
        others
    }
}

/// Checks how many rows were written. A row that is no longer as it was claimed is found when it runs alone.
fn expect<K>(written: QueryResult<usize>, expected: usize) -> Result<(), Uncommitted<K>> {
    match written? {
        rows if rows == expected => Ok(()),
        rows => Err(Uncommitted::Undone(format!("{rows} rows were settled instead of {expected}"))),
    }
}
