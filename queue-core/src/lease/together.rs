//! The answers of several calls, one transaction: lock each row and apply its answer, settle all rows, commit once.
//!
//! If one answer cannot be applied, the worker rolls the batch back and applies each answer alone, see
//! [`settle_called`](LeaseRunner::settle_called).

use std::collections::VecDeque;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use super::answers::{Answers, Applying, LateBatch, NextAnswer, NextAnswers, SharedAnswers};
use super::calls::EndedCall;
use super::leased_rows::WatchedRow;
use super::runner::LeaseRunner;
use super::settle::taken_away;
use crate::attempt::{InDoubt, NewState, Rest, Tally, Turn, WorkerTurn};
use crate::backend::{Dialect, QueueConnection, SessionHolder};
use crate::batch::{BatchEnd, DecidedRow, Handled, OpenBatch, Undone};
use crate::entity::Key;
use crate::row::failure_text;
use crate::sync::{Mutex, fail_point};

/// A worker takes no more answers in hand than it applies in this many times the time of a transaction: meanwhile they wait for
/// no other worker. A guess.
const IN_HAND: u32 = 4;

impl<K: Key, C: QueueConnection> LeaseRunner<'_, K, C> {
    /// Applies this answer, and those of other calls that have ended, up to `most` in all, in one transaction. If that
    /// is impossible, they are to be applied alone.
    pub(crate) fn settle_together(&self, worker: &mut WorkerTurn<'_, '_, C>, first: EndedCall<K>, most: u32) -> Turn {
        let others = iter::from_fn(|| self.calls.take_answer()).take(most as usize - 1);
        let next = iter::once(first).chain(others).map(|ended| NextAnswer { ended, is_locked: None }).collect();
        let answers = Arc::new(Mutex::new(Answers::of(next)));
        // If the database does not answer from here on, their leases end.
        for NextAnswer { ended, .. } in &answers.lock().next {
            ended.row.clock.answered();
        }
        fail_point("lease-called");
        let writing = self.turn_to_write();
        let end = self.apply_together(worker, &answers);
        drop(writing);
        let is_given_up = worker.slot.leave();
        let mut answers = std::mem::replace(&mut *answers.lock(), Answers::of(VecDeque::new()));
        if is_given_up {
            worker.holder.close();
            self.give_back_answers(&mut answers);
            return Turn::GivenUp;
        }
        let (mut tally, applied) = (Tally::default(), std::mem::take(&mut answers.applied));
        let has_begun = !applied.is_empty() || matches!(end, BatchEnd::Settled(_));
        answers.applied = self.conclude_together(worker, end, applied, &mut tally);
        if !has_begun {
            // The first one shows alone what is wrong, and waits for it.
            answers.applied.extend(answers.next.pop_front().map(|next| next.ended));
        }
        for EndedCall { row, .. } in self.give_back_answers(&mut answers) {
            row.watch.interrupt("the poller shuts down");
            tally.count(Turn::Interrupted);
        }
        Turn::Group(tally)
    }

    /// Has workers apply these answers anew: those that were begun alone, but for the one whose handler was given up. Returns
    /// them if the poller has shut down.
    fn give_back_answers(&self, answers: &mut Answers<K>) -> Vec<EndedCall<K>> {
        let mut alone = answers.take_begun();
        alone.retain(|ended| !answers.given_up.as_ref().is_some_and(|row| Arc::ptr_eq(row, &ended.row.held)));
        let mut left = self.calls.hand_on(answers.take_next());
        left.extend(self.calls.put_back(alone));
        left
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
        batch.note_handled();
        if let Some(turn) = batch.turn {
            self.calls.sizes.lock().note_turn(turn, body.takes_up_for.get() * IN_HAND);
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
            applied.iter().zip(&rows).for_each(|(ended, row)| self.note_committed(&ended.row, &row.new, tally));
            return Vec::new();
        }
        self.calls.sizes.lock().note_hindered();
        let (rows, cause, rest) = match end {
            // Where a handler might commit, its row is known.
            BatchEnd::Settled(_) | BatchEnd::EndedByUnknown { .. } => return applied,
            BatchEnd::Undone(why) => {
                let (answers, why) = (applied.len(), self.served.redacted(why.text()));
                tracing::debug!(entity = self.served.queue.sql.entity, answers, %why, "answers were not applied together");
                return applied;
            }
            BatchEnd::Unknown(rows, cause) => (rows, cause, None),
            BatchEnd::EndedByHandler { before, offender } => {
                (before, "the handler of another answer has ended their transaction".to_owned(), Some(offender.1))
            }
        };
        // The answer whose handler has ended the transaction was taken back last.
        let offended = rest.and_then(|rest| Some((applied.pop()?, rest)));
        let mut back = self.find_out_together(worker.holder, applied, &rows, &cause, tally);
        match offended {
            Some((EndedCall { row, .. }, Rest::Record(new))) => tally
                .count(self.to_its_end(worker, &row, |worker| self.record_again_and_again(worker.holder, &row, &new))),
            Some((ended, _)) => back.push(ended),
            None => {}
        }
        back
    }

    /// Notes that a row's new state is committed.
    fn note_committed(&self, row: &WatchedRow<K>, new: &NewState, tally: &mut Tally) {
        let _span = row.watch.enter_span();
        self.served.rules.teller.tell_settled(&row.key, new, &row.watch);
        self.served.due_rows.end(&row.key);
        self.leased_rows.remove(&row.held);
        tracing::debug!(outcome = ?new.settled, "settled");
        tally.count(Turn::Settled(new.settled));
    }

    /// Records that the last of several handlers is late, and has the answers before it applied anew.
    pub(crate) fn settle_late_batch(&self, holder: &mut SessionHolder<C>, late: &LateBatch<K>) -> Turn {
        // The transaction was taken away, and cannot commit any more.
        late.answers.lock().given_up = Some(late.late.row.held.clone());
        self.put_back_applied(late);
        self.settle_late(holder, &late.late)
    }

    /// Has other workers apply the answers of a transaction whose worker was left behind.
    pub(crate) fn put_back_applied(&self, late: &LateBatch<K>) {
        self.give_back_answers(&mut late.answers.lock());
    }

    /// Finds out of each row whether the transaction in which its answer was applied was committed. Those rows count. Returns the
    /// calls of the others, which are to be applied alone.
    fn find_out_together(
        &self,
        holder: &mut SessionHolder<C>,
        applied: Vec<EndedCall<K>>,
        rows: &[DecidedRow<K>],
        cause: &str,
        tally: &mut Tally,
    ) -> Vec<EndedCall<K>> {
        let (mut others, since) = (Vec::new(), Instant::now());
        for ended in applied {
            // By its key: another thread may have taken those before it, and the last one may have ended without a decision.
            let found = rows.iter().find(|row| row.key.text() == ended.row.key.text()).filter(|row| {
                let (new, reached) = (row.new.clone(), row.reached(self.served.queue.sql.options));
                let in_doubt = InDoubt { new, reached, cause: cause.to_owned(), since, is_told_by_caller: true };
                let find_out = || self.find_out(holder, &ended.row, &in_doubt).is_some();
                catch_unwind(AssertUnwindSafe(find_out)).unwrap_or_else(|panic| {
                    // The driver's. Alone, the row shows what has become of it.
                    std::mem::forget(panic);
                    holder.close();
                    false
                })
            });
            match found {
                Some(row) => self.note_committed(&ended.row, &row.new, tally),
                None => others.push(ended),
            }
        }
        others
    }
}
