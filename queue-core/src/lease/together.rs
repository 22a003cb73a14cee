//! The answers of several calls, one transaction: lock each row and apply its answer, settle all rows, commit once.
//!
//! If one answer cannot be applied, the worker rolls the batch back and applies each answer alone, see
//! [`settle_called`](LeaseRunner::settle_called).

use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use super::answers::{Answers, Applying, LateBatch, NextAnswer, NextAnswers, SharedAnswers};
use super::calls::EndedCall;
use super::runner::LeaseRunner;
use super::settle::taken_away;
use crate::attempt::{InDoubt, Rest, Tally, Turn, WorkerTurn};
use crate::backend::{Dialect, QueueConnection, SessionHolder};
use crate::batch::{BatchEnd, DecidedRow, Handled, OpenBatch, Undone, witness};
use crate::entity::Key;
use crate::row::failure_text;
use crate::sync::{Mutex, fail_point};

impl<K: Key, C: QueueConnection> LeaseRunner<'_, K, C> {
    /// Applies this answer, and those of other calls that have ended, up to `most` in all, in one transaction. If that
    /// is impossible, they are to be applied alone.
    pub(crate) fn settle_together(&self, worker: &mut WorkerTurn<'_, '_, C>, first: EndedCall<K>, most: u32) -> Turn {
        let others = iter::from_fn(|| self.calls.take_answer()).take(most as usize - 1);
        let next = iter::once(first).chain(others).map(|ended| NextAnswer { ended, is_locked: None }).collect();
        let answers = Arc::new(Mutex::new(Answers { next, ..Answers::default() }));
        fail_point("lease-called");
        let writing = self.turn_to_write();
        let end = self.apply_together(worker, &answers);
        drop(writing);
        if worker.slot.leave() {
            worker.holder.close();
            let mut answers = answers.lock();
            let (given_up, mut back) = (answers.given_up.take(), answers.take());
            back.retain(|ended| !given_up.as_ref().is_some_and(|row| Arc::ptr_eq(row, &ended.row.held)));
            self.calls.put_back(back);
            return Turn::GivenUp;
        }
        let (mut tally, was_committed) = (Tally::default(), matches!(end, BatchEnd::Settled(_)));
        let Answers { applied, next, aside, .. } = std::mem::take(&mut *answers.lock());
        let next: Vec<_> = next.into_iter().map(|next| next.ended).collect();
        // If the first ones took long, the others are for other workers.
        let (left, alone) = if was_committed { (next, Vec::new()) } else { (Vec::new(), next) };
        let mut back = self.conclude_together(worker, end, applied, &mut tally);
        back.extend(aside.into_iter().chain(alone));
        let mut interrupted = self.calls.hand_on(left);
        interrupted.extend(self.calls.put_back(back));
        for EndedCall { row, .. } in interrupted {
            row.watch.interrupt("the poller shuts down");
            tally.count(Turn::Interrupted);
        }
        Turn::Group(tally)
    }

    /// Runs the transaction. Returns how it has ended.
    fn apply_together(&self, worker: &mut WorkerTurn<'_, '_, C>, answers: &SharedAnswers<K>) -> BatchEnd<K> {
        let not_begun = |why: String| BatchEnd::Undone(Undone::Alone(why));
        let session = match worker.holder.session() {
            Ok(session) => session,
            Err(error) => return not_begun(failure_text(&error, 500)),
        };
        if let Err(error) = session.begin_group() {
            worker.holder.close();
            return not_begun(error.to_string());
        }
        worker.slot.enter(session.id, self.served.info.timeout);
        let body = Applying::new(self, answers.clone());
        let mut batch = OpenBatch::new(session, &self.served, worker.slot, &body);
        batch.settles_in_turn = !C::Backend::REFUSES_COMMITS;
        let worked = catch_unwind(AssertUnwindSafe(|| self.work_together(&mut batch)));
        let end = match worked {
            Ok(Ok(())) => BatchEnd::Settled(std::mem::take(&mut batch.decided)),
            Ok(Err(end)) => end,
            Err(panic) => {
                // Handlers' panics are caught closer to them. This one comes from this library or from the driver, at any time.
                std::mem::forget(panic);
                batch.session_is_sound = false;
                BatchEnd::Unknown(std::mem::take(&mut batch.decided), "a panic".to_owned())
            }
        };
        let is_over = match &end {
            BatchEnd::Settled(_) => batch.session.roll_back_idle().is_ok(),
            BatchEnd::Undone(_) => batch.roll_back(),
            _ => false,
        };
        if let Some(remark) = &batch.remark {
            self.served.warn(remark);
        }
        if !(is_over && batch.session_is_sound) {
            worker.holder.close();
        }
        end
    }

    /// Applies the answers, settles their rows, and commits. If the server lets a handler commit, each row is settled before
    /// the next handler runs, so that the state of a row that a handler commits fits its effects.
    fn work_together(&self, batch: &mut OpenBatch<'_, '_, K, C, Applying<'_, '_, K, C>>) -> Handled<K> {
        let body = batch.body;
        let (rows, mut next) = (body.rows(), NextAnswers(body.answers.clone()));
        match batch.settles_in_turn {
            true => batch.handle_in_turn(&mut next, &rows)?,
            false => batch.handle_under_one_savepoint(&mut next, &rows)?,
        }
        fail_point("lease-applied");
        if body.answers.lock().applied.iter().any(|ended| taken_away(&ended.row.held).is_some()) {
            return Err(BatchEnd::Undone(Undone::Alone("a lease has ended".to_owned())));
        }
        batch.settle()?;
        batch.commit()
    }

    /// Does what is left to do after the transaction with these answers. Returns those that are to be applied alone.
    fn conclude_together(
        &self,
        worker: &mut WorkerTurn<'_, '_, C>,
        end: BatchEnd<K>,
        mut applied: Vec<EndedCall<K>>,
        tally: &mut Tally,
    ) -> Vec<EndedCall<K>> {
        if let BatchEnd::Settled(rows) = end {
            self.calls.sizes.lock().note_success();
            self.note_committed(applied, rows, tally);
            return Vec::new();
        }
        self.calls.sizes.lock().note_hindered();
        match end {
            // Where a handler might commit, its row is known.
            BatchEnd::Settled(_) | BatchEnd::EndedByUnknown { .. } => applied,
            BatchEnd::Undone(why) => {
                let (answers, why) = (applied.len(), self.served.redacted(why.text()));
                tracing::debug!(entity = self.served.queue.sql.entity, answers, %why, "answers were not applied together");
                applied
            }
            BatchEnd::Unknown(rows, cause) => self.find_out_together(worker.holder, applied, rows, &cause, tally),
            BatchEnd::EndedByHandler { mut before, offender, .. } => {
                let offended = applied.pop();
                // The others were to be written at the end.
                let unwritten = applied.split_off(before.iter().take_while(|row| row.written).count());
                before.truncate(applied.len());
                let what = "the handler of another answer has ended their transaction";
                let mut back = self.find_out_together(worker.holder, applied, before, what, tally);
                back.extend(unwritten);
                match (offended, offender.1) {
                    (Some(EndedCall { row, .. }), Rest::Record(new)) => {
                        tally.count(
                            self.to_its_end(worker, &row, |worker| {
                                self.record_again_and_again(worker.holder, &row, &new)
                            }),
                        );
                    }
                    (offended, _) => back.extend(offended),
                }
                back
            }
        }
    }

    /// Notes that the new states of these rows are committed.
    fn note_committed(&self, applied: Vec<EndedCall<K>>, rows: Vec<DecidedRow<K>>, tally: &mut Tally) {
        for (EndedCall { row, .. }, DecidedRow { new, .. }) in applied.iter().zip(&rows) {
            let _span = row.watch.enter_span();
            self.served.rules.teller.tell_settled(&row.key, new, &row.watch);
            self.served.due_rows.record_written(&row.key);
            self.leased_rows.remove(&row.held);
            tracing::debug!(outcome = ?new.settled, "settled");
            tally.count(Turn::Settled(new.settled));
        }
    }

    /// Records that the last of several handlers is late, and has the answers before it applied anew.
    pub(crate) fn settle_late_batch(&self, holder: &mut SessionHolder<C>, late: &LateBatch<K>) -> Turn {
        let answers = {
            let mut answers = late.answers.lock();
            answers.given_up = Some(late.late.row.held.clone());
            answers.take()
        };
        // The transaction was taken away, and cannot commit any more.
        let is_another = |ended: &EndedCall<K>| !Arc::ptr_eq(&ended.row.held, &late.late.row.held);
        self.calls.put_back(answers.into_iter().filter(is_another).collect());
        self.settle_late(holder, &late.late)
    }

    /// Has other workers apply the answers of a transaction whose worker was left behind.
    pub(crate) fn put_back_applied(&self, late: &LateBatch<K>) {
        let answers = late.answers.lock().take();
        self.calls.put_back(answers);
    }

    /// Finds out whether a transaction was committed in which these rows were written. If it was, they count. Returns the calls
    /// that are to be applied alone.
    fn find_out_together(
        &self,
        holder: &mut SessionHolder<C>,
        mut applied: Vec<EndedCall<K>>,
        rows: Vec<DecidedRow<K>>,
        cause: &str,
        tally: &mut Tally,
    ) -> Vec<EndedCall<K>> {
        // The last one may have ended without a decision.
        let undecided = applied.split_off(rows.len().min(applied.len()));
        let options = self.served.queue.sql.options;
        let Some(place) = witness(rows.iter(), options) else {
            applied.extend(undecided);
            return applied;
        };
        let (new, reached) = (rows[place].new.clone(), rows[place].reached(options));
        let in_doubt =
            InDoubt { new, reached, cause: cause.to_owned(), since: Instant::now(), is_told_by_caller: true };
        let find_out = || self.find_out(holder, &applied[place].row, &in_doubt);
        let found = catch_unwind(AssertUnwindSafe(find_out)).unwrap_or_else(|panic| {
            // The driver's. Alone, each row shows what has become of it.
            std::mem::forget(panic);
            holder.close();
            None
        });
        if found.is_none() {
            applied.extend(undecided);
            return applied;
        }
        self.note_committed(applied, rows, tally);
        undecided
    }
}
