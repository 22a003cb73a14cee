//! The answers of several calls, one transaction: lock each row and apply its answer, settle all rows, commit once.
//!
//! Batching only saves commits. If one answer cannot be applied, the worker rolls the batch back and applies each answer
//! alone, see [`settle_called`](LeaseRunner::settle_called).

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use diesel::connection::TransactionManager;

use super::answers::{Batch, InHand, LateBatch, Uncommitted};
use super::calls::EndedCall;
use super::leased_rows::{DecidedLease, LeasedRow, WatchedRow};
use super::runner::LeaseRunner;
use crate::attempt::{InDoubt, Tally, Turn, WorkerTurn};
use crate::backend::{QueueConnection, SessionHolder};
use crate::entity::Key;
use crate::row::{Settlement, failure_text};
use crate::sync::{Mutex, fail_point};

impl<K: Key, C: QueueConnection> LeaseRunner<'_, K, C> {
    /// Applies this answer, and those of other calls that have ended, up to `most` in all, in one transaction. If that
    /// is impossible, they are to be applied alone.
    pub(crate) fn settle_together(&self, worker: &mut WorkerTurn<'_, '_, C>, first: EndedCall<K>, most: u32) -> Turn {
        first.row.clock.answered();
        let batch = Arc::new(Mutex::new(Batch { applied: Vec::new(), locked: VecDeque::new(), given_up: None }));
        let mut hand = InHand { batch, decided: Vec::new(), taken: vec![first], current: None, aside: Vec::new() };
        fail_point("lease-called");
        let writing = self.turn_to_write();
        let tried = || self.try_together(worker, &mut hand, most);
        let end = catch_unwind(AssertUnwindSafe(tried)).unwrap_or_else(|panic| {
            // Handlers' panics are caught closer to them. This one comes from this library or from the driver, at any time.
            std::mem::forget(panic);
            worker.holder.close();
            Err(Uncommitted::InDoubt("a panic".to_owned()))
        });
        drop(writing);
        let is_given_up = worker.slot.leave();
        let mut back = std::mem::take(&mut hand.aside);
        back.append(&mut hand.taken);
        let (applied, given_up) = {
            let mut batch = hand.batch.lock();
            back.extend(std::mem::take(&mut batch.locked));
            (std::mem::take(&mut batch.applied), batch.given_up.take())
        };
        if is_given_up {
            worker.holder.close();
            let is_recorded = |row: &Arc<LeasedRow<K>>| given_up.as_ref().is_some_and(|it| Arc::ptr_eq(it, row));
            back.extend(applied.into_iter().chain(hand.current).filter(|ended| !is_recorded(&ended.row.held)));
            self.calls.put_back(back);
            return Turn::GivenUp;
        }
        let mut tally = Tally::default();
        back.extend(self.conclude_together(worker, end, applied, hand, &mut tally));
        for EndedCall { row, .. } in self.calls.put_back(back) {
            row.watch.interrupt("the poller shuts down");
            tally.count(Turn::Interrupted);
        }
        Turn::Group(tally)
    }

    /// Does what is left after the transaction with these answers, the last of which was being applied. Returns those that are
    /// to be applied alone.
    fn conclude_together(
        &self,
        worker: &mut WorkerTurn<'_, '_, C>,
        end: Result<(), Uncommitted<K>>,
        mut applied: Vec<EndedCall<K>>,
        InHand { decided, current, .. }: InHand<K>,
        tally: &mut Tally,
    ) -> Vec<EndedCall<K>> {
        let why = match end {
            Ok(()) => {
                self.calls.sizes.lock().note_success();
                for (EndedCall { row, .. }, DecidedLease { new, .. }) in applied.iter().zip(&decided) {
                    self.served.rules.teller.tell_settled(&row.key, new, &row.watch);
                    tally.count(self.note_settled(row, new.settled));
                }
                return Vec::new();
            }
            Err(why) => why,
        };
        self.calls.sizes.lock().note_hindered();
        match why {
            Uncommitted::Undone(why) => {
                let (answers, why) = (decided.len(), self.served.redacted(&why));
                tracing::debug!(entity = self.served.queue.sql.entity, answers, %why, "answers were not applied together");
                applied.extend(current);
                applied
            }
            Uncommitted::InDoubt(cause) => {
                let mut back = self.find_out_each(worker.holder, applied, decided, &cause, tally);
                back.extend(current);
                back
            }
            Uncommitted::EndedByHandler(cause, failed) => {
                let back = self.find_out_each(worker.holder, applied, decided, &cause, tally);
                if let Some(EndedCall { row, .. }) = &current {
                    tally.count(self.to_its_end(worker, row, |worker| {
                        self.record_again_and_again(worker.holder, row, &failed.new)
                    }));
                }
                back
            }
        }
    }

    /// Notes that a row's new state is committed.
    fn note_settled(&self, row: &WatchedRow<K>, settled: Settlement) -> Turn {
        let _span = row.watch.enter_span();
        self.served.due_rows.record_written(&row.key);
        self.leased_rows.remove(&row.held);
        tracing::debug!(outcome = ?settled, "settled");
        Turn::Settled(settled)
    }

    /// Records that the last of several handlers is late, and has the answers before it applied anew.
    pub(crate) fn settle_late_batch(&self, holder: &mut SessionHolder<C>, late: &LateBatch<K>) -> Turn {
        let applied = {
            let mut batch = late.batch.lock();
            batch.given_up = Some(late.late.row.held.clone());
            batch.take_answers()
        };
        // The transaction was taken away, and cannot commit any more.
        let is_another = |ended: &EndedCall<K>| !Arc::ptr_eq(&ended.row.held, &late.late.row.held);
        self.calls.put_back(applied.into_iter().filter(is_another).collect());
        self.settle_late(holder, &late.late)
    }

    /// Has other workers apply the answers of a transaction whose worker was left behind.
    pub(crate) fn put_back_applied(&self, late: &LateBatch<K>) {
        let answers = late.batch.lock().take_answers();
        self.calls.put_back(answers);
    }

    /// Runs the transaction. After an error it is over.
    fn try_together(
        &self,
        worker: &mut WorkerTurn<'_, '_, C>,
        hand: &mut InHand<K>,
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
            .apply_each(session, slot, hand, most)
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

    /// Finds out which rows were settled by a transaction that may have been committed, and counts them. Returns the
    /// calls of the others.
    fn find_out_each(
        &self,
        holder: &mut SessionHolder<C>,
        applied: Vec<EndedCall<K>>,
        decided: Vec<DecidedLease<K>>,
        cause: &str,
        tally: &mut Tally,
    ) -> Vec<EndedCall<K>> {
        let (mut others, since) = (Vec::new(), Instant::now());
        for (ended, DecidedLease { new, .. }) in applied.into_iter().zip(decided) {
            let row = &ended.row;
            let (reached, cause) = (new.change.reached(row.fence, self.served.queue.sql.options), cause.to_owned());
            let in_doubt = InDoubt { new, reached, cause, since, is_told_by_caller: false };
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
