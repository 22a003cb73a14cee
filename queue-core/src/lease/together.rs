//! The answers of several calls, one transaction: apply each, settle all rows, commit once.
//!
//! This saves commits, and nothing else: whatever keeps one answer from being applied and committed undoes the whole
//! transaction. Its answers are then applied one by one, see [`settle_answer`](LeaseRunner::settle_called), as if they
//! had never been together.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use diesel::connection::TransactionManager;
use diesel::result::{Error as DieselError, QueryResult};

use super::attempt::{Written, taken_away};
use super::calls::{Calls, EndedCall};
use super::leased_rows::{LeasedRow, WatchedRow};
use super::runner::{LateRow, LeaseRunner};
use crate::attempt::{InDoubt, Slot, Tally, Turn};
use crate::backend::{QueueConnection, RoundTrips, Session, SessionHolder};
use crate::entity::{Entity, QueueTable};
use crate::fault::fail_point;
use crate::handler::{Answered, HandlerResult, Message, drop_safely};
use crate::row::{Fence, Settlement, failure_text, idempotency_key};
use crate::statement::{Change, QueueOn};

const SAVEPOINT: &str = "SAVEPOINT queueable_handler";

const ROLLBACK_TO: &str = "ROLLBACK TO SAVEPOINT queueable_handler";

const RELEASE: &str = "RELEASE SAVEPOINT queueable_handler";

/// How long a transaction takes up more answers. Handlers that take long to apply theirs are for all workers.
const TAKES_UP_FOR: Duration = Duration::from_millis(20);

/// Answers of one transaction.
struct Batch<Q: Entity, C> {
    ended: Vec<EndedCall<Q, C>>,
    /// What becomes of their rows, in the same order.
    decided: Vec<Decided>,
}

struct Decided {
    settled: Settlement,
    change: Change,
}

/// Rows that one statement settles.
struct Alike<'a, K> {
    change: &'a Change,
    rows: Vec<(&'a K, Fence)>,
}

/// Why a transaction with several answers is over and not certainly committed.
enum Uncommitted {
    /// It is rolled back, for this reason.
    Undone(String),
    /// The answer to COMMIT was lost, or a handler has ended the transaction.
    InDoubt(String),
}

impl From<DieselError> for Uncommitted {
    fn from(error: DieselError) -> Self {
        Uncommitted::Undone(error.to_string())
    }
}

impl<Q: QueueOn<C> + Send, C: QueueConnection> LeaseRunner<Q, C> {
    /// Applies this answer, and those of up to `most` calls that have ended, in one transaction. If that is impossible,
    /// they are to be applied alone.
    pub(crate) fn settle_together(
        &self,
        calls: &Calls<Q, C>,
        holder: &mut SessionHolder<C>,
        slot: &Slot,
        first: EndedCall<Q, C>,
        most: u32,
    ) -> Turn {
        let mut batch = Batch { ended: vec![first], decided: Vec::new() };
        let writing = self.turn_to_write();
        let tried = || self.try_together(calls, holder, slot, &mut batch, most);
        let end = catch_unwind(AssertUnwindSafe(tried)).unwrap_or_else(|panic| {
            // Handlers' panics are caught closer to them. This one comes from this library or from the driver, at any time.
            std::mem::forget(panic);
            holder.close();
            Err(Uncommitted::InDoubt("a panic".to_owned()))
        });
        drop(writing);
        if slot.leave() {
            holder.close();
            // Another thread has recorded that the last handler is late.
            batch.ended.pop();
            calls.put_back(batch.ended);
            return Turn::GivenUp;
        }
        let Batch { ended, decided } = batch;
        let answers = u32::try_from(ended.len()).unwrap_or(u32::MAX);
        let (settled, back) = match end {
            Ok(()) => {
                calls.sizes().went_well();
                let told = |(ended, decided)| self.tell_committed(ended, decided);
                (ended.iter().zip(&decided).map(told).collect(), Vec::new())
            }
            Err(Uncommitted::Undone(why)) => {
                tracing::debug!(entity = Q::ENTITY, answers, why, "answers were not applied together");
                calls.sizes().was_undone(answers);
                (Vec::new(), ended)
            }
            Err(Uncommitted::InDoubt(cause)) => {
                calls.sizes().was_undone(answers);
                self.find_out_each(holder, ended, decided, &cause)
            }
        };
        calls.put_back(back);
        let mut tally = Tally::default();
        settled.into_iter().for_each(|settled| tally.count(Turn::Settled(settled)));
        Turn::Group(tally)
    }

    fn tell_committed(&self, EndedCall { row, .. }: &EndedCall<Q, C>, decided: &Decided) -> Settlement {
        self.rules.teller.settled(&row.key, decided.settled, &decided.change, &row.watch);
        self.is_settled(row, decided.settled)
    }

    /// Notes that a row's new state is committed.
    fn is_settled(&self, row: &WatchedRow<Q::Key>, settled: Settlement) -> Settlement {
        let _span = self.span(row).entered();
        self.due_rows.is_written(&row.key);
        self.leased_rows.remove(&row.held);
        tracing::debug!(outcome = ?settled, "settled");
        settled
    }

    /// Runs the transaction. After an error it is over.
    fn try_together(
        &self,
        calls: &Calls<Q, C>,
        holder: &mut SessionHolder<C>,
        slot: &Slot,
        batch: &mut Batch<Q, C>,
        most: u32,
    ) -> Result<(), Uncommitted> {
        let session = holder.session().map_err(|error| Uncommitted::Undone(failure_text(&error, 500)))?;
        if let Err(error) = session.begin_group() {
            holder.close();
            return Err(error.into());
        }
        slot.enter(Q::ENTITY, session.id(), self.info.timeout);
        let end = self
            .apply_each(calls, session, slot, batch, most)
            .and_then(|()| self.settle_each(session, batch))
            .and_then(|()| self.commit_together(session, slot));
        let is_over = match &end {
            Ok(()) => session.roll_back_idle().is_ok(),
            // A handler may have left a transaction of its own open, for example by a panic.
            Err(_) => {
                C::TransactionManager::rollback_transaction(&mut **session).is_ok() && session.is_in_no_transaction()
            }
        };
        if !is_over || matches!(end, Err(Uncommitted::InDoubt(_))) {
            holder.close();
        }
        end
    }

    /// Applies the answers, one after the other. If the server lets a handler commit, each row is settled before the
    /// next handler runs, so that the state of a row that a handler commits fits its effects.
    fn apply_each(
        &self,
        calls: &Calls<Q, C>,
        session: &mut Session<C>,
        slot: &Slot,
        batch: &mut Batch<Q, C>,
        most: u32,
    ) -> Result<(), Uncommitted> {
        let started = Instant::now();
        session.control(SAVEPOINT)?;
        loop {
            let decided = self.apply_next(session, slot, &batch.ended)?;
            batch.decided.push(decided);
            if !C::Backend::REFUSES_COMMITS {
                session.control(RELEASE).map_err(|error| without_savepoint(session, &error))?;
                self.settle_last(session, batch)?;
            }
            let goes_on = batch.ended.len() < most as usize
                && started.elapsed() < TAKES_UP_FOR
                && !session.is_spoilt()
                && calls.take_answer().map(|next| batch.ended.push(next)).is_some();
            if !goes_on {
                break;
            }
            if !C::Backend::REFUSES_COMMITS {
                session.control(SAVEPOINT)?;
            }
        }
        if C::Backend::REFUSES_COMMITS {
            if session.has_other_settings()? {
                return Err(Uncommitted::Undone("a handler has set something on the session".to_owned()));
            }
            session.control(RELEASE).map_err(|error| without_savepoint(session, &error))?;
        }
        Ok(())
    }

    /// Applies the last of these answers.
    fn apply_next(
        &self,
        session: &mut Session<C>,
        slot: &Slot,
        ended: &[EndedCall<Q, C>],
    ) -> Result<Decided, Uncommitted> {
        let (last, before) = ended.split_last().expect("a batch is not empty");
        let EndedCall { row, .. } = last;
        let Some(Answered { message, answer }) = last.answer().filter(|_| row.clock.answered().is_none()) else {
            return Err(Uncommitted::Undone("its lease has ended".to_owned()));
        };
        fail_point("lease-called");
        let _span = self.span(row).entered();
        let beside = before.iter().map(|ended| ended.row.held.clone()).collect();
        let (timeout, watch) = (self.info.timeout, row.watch.clone());
        let late = LateRow::<Q> { held: row.held.clone(), timeout, watch, beside };
        slot.hold(Box::new(late), &[&row.watch]);
        let idempotency_key = idempotency_key(&self.info.key_prefix, &row.key, &row.details);
        let mut message_of_call = Message {
            connection: session.lend(),
            state: &message.1,
            details: &row.details,
            try_number: row.tries,
            idempotency_key: &idempotency_key,
            stop: slot.stop_signal(),
        };
        let applied = catch_unwind(AssertUnwindSafe(|| answer.apply(&message.0, &mut message_of_call)));
        let undone = |why: &str| Err(Uncommitted::Undone(why.to_owned()));
        let applied: HandlerResult = match applied {
            Ok(applied) => applied,
            Err(panic) => {
                drop_safely(panic);
                return undone("a handler panicked");
            }
        };
        if slot.revoked().is_some() {
            drop_safely(applied);
            return undone("the transaction was taken away");
        }
        if !session.is_in_our_transaction_alone() {
            drop_safely(applied);
            return Err(Uncommitted::InDoubt("a handler has ended the transaction, or left one open".to_owned()));
        }
        if let Err(error) = session.check_savepoint() {
            drop_safely(applied);
            return Err(without_savepoint(session, &error));
        }
        match self.rules.accept(applied) {
            Ok(outcome) => {
                let (settled, change) = self.rules.after_outcome(row.before, row.tries, outcome, &row.details);
                Ok(Decided { settled, change })
            }
            Err(failure) => {
                drop_safely(failure);
                undone("a handler failed")
            }
        }
    }

    /// Settles the row of the answer that was applied last.
    fn settle_last(&self, session: &mut Session<C>, batch: &Batch<Q, C>) -> Result<(), Uncommitted> {
        let (Some(ended), Some(Decided { settled, change })) = (batch.ended.last(), batch.decided.last()) else {
            return Ok(());
        };
        self.expect_held(&ended.row)?;
        let LeasedRow { key, fence, .. } = &*ended.row.held;
        expect(write::<Q, C>(session, key, *fence, *settled, change), 1)
    }

    /// Settles the rows, unless that was done: rows with the same change by one statement.
    fn settle_each(&self, session: &mut Session<C>, batch: &Batch<Q, C>) -> Result<(), Uncommitted> {
        fail_point("lease-applied");
        if !C::Backend::REFUSES_COMMITS {
            return Ok(());
        }
        let mut alike: Vec<Alike<'_, Q::Key>> = Vec::new();
        for (ended, Decided { settled, change }) in batch.ended.iter().zip(&batch.decided) {
            self.expect_held(&ended.row)?;
            let LeasedRow { key, fence, .. } = &*ended.row.held;
            match alike.iter_mut().find(|alike| alike.change == change) {
                _ if *settled == Settlement::Deleted => {
                    expect(write::<Q, C>(session, key, *fence, *settled, change), 1)?;
                }
                Some(alike) => alike.rows.push((key.value(), *fence)),
                None => alike.push(Alike { change, rows: vec![(key.value(), *fence)] }),
            }
        }
        for Alike { change, rows } in alike {
            expect(Q::settle_many(session, &rows, change), rows.len())?;
        }
        Ok(())
    }

    /// Checks that nobody in this process has taken the row away.
    fn expect_held(&self, row: &LeasedRow<Q::Key>) -> Result<(), Uncommitted> {
        match taken_away(row) {
            None => Ok(()),
            Some(_) => Err(Uncommitted::Undone("a lease has ended".to_owned())),
        }
    }

    fn commit_together(&self, session: &mut Session<C>, slot: &Slot) -> Result<(), Uncommitted> {
        slot.commit().map_err(|_| Uncommitted::Undone("the transaction was taken away".to_owned()))?;
        fail_point("committing");
        match session.commit_last_group() {
            Ok(()) => {
                fail_point("committed");
                Ok(())
            }
            Err(error) if C::leaves_commit_in_doubt(&error) => Err(Uncommitted::InDoubt(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// Finds out which rows were settled by a transaction that may have been committed. Also returns the calls of the
    /// others.
    fn find_out_each(
        &self,
        holder: &mut SessionHolder<C>,
        ended: Vec<EndedCall<Q, C>>,
        decided: Vec<Decided>,
        cause: &str,
    ) -> (Vec<Settlement>, Vec<EndedCall<Q, C>>) {
        let (mut settled, mut others) = (Vec::new(), Vec::new());
        let (mut decided, since) = (decided.into_iter(), Instant::now());
        for ended in ended {
            let in_doubt = decided.next().map(|decided| {
                let Decided { settled, change } = decided;
                let reached = match settled {
                    Settlement::Deleted => None,
                    _ => change.reached(ended.row.fence, &Q::Queue::OPTIONS),
                };
                InDoubt { settled, reached, cause: cause.to_owned(), since, change: Some(change) }
            });
            match in_doubt.and_then(|in_doubt| self.find_out(holder, &ended.row, &in_doubt)) {
                Some(Written::Settled(found)) => settled.push(self.is_settled(&ended.row, found)),
                _ => others.push(ended),
            }
        }
        (settled, others)
    }
}

/// Returns what is known of a transaction whose savepoint cannot be released. If it still exists, no handler has ended
/// the transaction.
fn without_savepoint<C: QueueConnection>(session: &mut Session<C>, error: &DieselError) -> Uncommitted {
    match session.control(ROLLBACK_TO) {
        Ok(()) => Uncommitted::Undone(error.to_string()),
        Err(_) => Uncommitted::InDoubt(error.to_string()),
    }
}

fn write<Q: QueueOn<C>, C: QueueConnection>(
    connection: &mut C,
    key: &Q::Key,
    fence: Fence,
    settled: Settlement,
    change: &Change,
) -> QueryResult<usize> {
    match settled {
        Settlement::Deleted => Q::remove(connection, key, fence),
        _ => Q::settle(connection, key, fence, change),
    }
}

/// Checks how many rows were written. A row that is no longer as it was claimed is found when it runs alone.
fn expect(written: QueryResult<usize>, expected: usize) -> Result<(), Uncommitted> {
    match written? {
        rows if rows == expected => Ok(()),
        rows => Err(Uncommitted::Undone(format!("{rows} rows were settled instead of {expected}"))),
    }
}
