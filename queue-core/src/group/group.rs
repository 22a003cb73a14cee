//! Several messages, one transaction: claim the due rows, handle each in a savepoint, settle the successes with one
//! statement, and commit once.
//!
//! [`batch`](crate::batch) says how they are handled. Rows that were only rolled back are as they were, and run one
//! by one. [`recover`](super::recover) finds out what a handler that has ended the transaction has left behind.

use std::sync::Arc;
use std::time::Duration;

use diesel::connection::TransactionManager;
use diesel::result::{Error as DieselError, QueryResult};

use super::work::{Entities, GroupBody, GroupHandler, OpenGroup, Rereading, reserve};
use crate::attempt::{Plan, WorkerCalls};
use crate::backend::{Dialect, QueueConnection, Session};
use crate::batch::{BatchEnd, BatchRow, DecidedRow, OpenBatch, Reservation, Undone, expect_rows};
use crate::claim::{ClaimTerms, ClaimedAs, claim};
use crate::entity::Key;
use crate::handler::drop_safely;
use crate::row::OnFinish;
use crate::statement::Claimed;
use crate::sync::fail_point;

/// How a group ended.
pub(crate) enum GroupEnd<K> {
    /// No row was due, or others hold the due rows.
    Idle,
    /// Nothing was claimed, because the database returned an error.
    NotClaimed(DieselError),
    /// Rows were claimed.
    Worked(BatchEnd<K>),
}

/// A group that was worked.
pub(crate) struct WorkedGroup<K> {
    pub(crate) end: GroupEnd<K>,
    pub(crate) reservation: Option<Reservation>,
    /// The rows that were not begun.
    pub(crate) after: Vec<BatchRow<K>>,
    /// How many rows were claimed.
    pub(crate) claimed: usize,
    /// How many of them were handled, or begun.
    pub(crate) begun: usize,
    /// How long one of them took on average, if that is known.
    pub(crate) turn: Option<Duration>,
    pub(crate) session_is_sound: bool,
    /// Whether the handler did not return in time, and another thread has done the rest.
    pub(crate) given_up: bool,
    /// A remark about the handler for the log.
    pub(crate) remark: Option<String>,
}

impl<K> WorkedGroup<K> {
    /// Returns the end of a group none of whose rows was handled.
    pub(crate) fn without_rows(end: GroupEnd<K>, session_is_sound: bool) -> Self {
        let (reservation, after, claimed, begun, turn, given_up, remark) = Default::default();
        WorkedGroup { end, reservation, after, claimed, begun, turn, session_is_sound, given_up, remark }
    }
}

/// The rows of a group, for the thread that gives it up because a handler does not return.
pub(crate) struct HeldGroup {
    /// How many rows there are.
    pub(crate) claimed: usize,
}

/// Processes up to `size` messages in one transaction. Asks the `worker` whether to go on when they are locked, and
/// between two messages. `rereading` says whether the rows are read again.
pub(crate) fn work_group<K: Key, C: QueueConnection>(
    session: &mut Session<C>,
    plan: &Plan<'_, K, C>,
    handler: &dyn GroupBody<C>,
    size: u32,
    worker: &dyn WorkerCalls,
    rereading: &Rereading,
) -> WorkedGroup<K> {
    let rows = match begin_and_claim(session, size, plan) {
        Ok(rows) if rows.is_empty() => return WorkedGroup::without_rows(GroupEnd::Idle, true),
        Ok(rows) => rows,
        Err(error) => return WorkedGroup::without_rows(GroupEnd::NotClaimed(error), false),
    };
    let claimed = rows.len();
    let _span = tracing::debug_span!("group", entity = plan.served.queue.sql.entity, messages = claimed).entered();
    tracing::debug!("claimed");
    fail_point("claimed");
    plan.slot.enter(session.id, plan.served.info.timeout);
    // After the slot was entered, for the same reason as in the attempt of one message.
    worker.note_claim();
    if !worker.goes_on() {
        plan.slot.leave();
        rows.into_iter().for_each(drop_safely);
        return WorkedGroup::without_rows(GroupEnd::Idle, false);
    }
    let stays = plan.served.rules.options.of_attempts().on_success == OnFinish::Keep;
    // A row that leaves its table does so together with the others, if a handler might commit.
    let rereading = ((stays || C::Backend::REFUSES_COMMITS) && rereading.take_one()).then_some(rereading);
    let body = GroupHandler { served: plan.served, handler, worker, rereading };
    OpenBatch::new(session, plan.served, plan.slot, &body).work(rows)
}

fn begin_and_claim<K: Key, C: QueueConnection>(
    session: &mut Session<C>,
    size: u32,
    plan: &Plan<'_, K, C>,
) -> QueryResult<Vec<Claimed<K>>> {
    session.begin_group()?;
    let (served, queue, plan) = (plan.served, plan.served.queue, &plan.claim);
    let some = ClaimTerms { limit: size, locks: true, begins_again: false };
    let rows = claim(queue, session, plan.places, plan.prefetched_keys, some, plan.scope)?;
    served.expect_decoded(session, &rows)?;
    if rows.is_empty() {
        C::TransactionManager::rollback_transaction(&mut **session)?;
    }
    Ok(rows)
}

impl<K: Key, C: QueueConnection> OpenGroup<'_, '_, '_, K, C> {
    /// Processes the claimed rows to the end of the transaction.
    fn work(mut self, rows: Vec<Claimed<K>>) -> WorkedGroup<K> {
        let (slot, claimed, passed_rows) = (self.slot, rows.len(), &self.served.due_rows.passed_rows);
        let claimed_as = self.claimed_as(&rows);
        let alone = self.reason_to_run_alone(&rows, &claimed_as);
        slot.hold(Box::new(HeldGroup { claimed }), &[]);
        let (end, after) = match alone {
            Some(why) => (BatchEnd::Undone(Undone::Alone(why.to_owned())), Vec::new()),
            None => self.run(rows),
        };
        if let BatchEnd::Settled(settled) = &end {
            // None of these rows has come back before, because such a row runs alone. A group that was closed early has
            // given some of its rows back.
            let is_settled = |text| settled.len() == claimed || settled.iter().any(|row| row.key.text() == text);
            claimed_as.iter().filter(|(text, _)| is_settled(text)).for_each(|(_, row)| {
                passed_rows.record_written(*row);
            });
        }
        let transaction_is_over =
            matches!(end, BatchEnd::Settled(_)) || matches!(end, BatchEnd::Undone(_)) && self.roll_back();
        let given_up = slot.leave();
        let session_is_sound = self.session_is_sound && !given_up && transaction_is_over;
        let (end, OpenBatch { reservation, begun, turn, remark, .. }) = (GroupEnd::Worked(end), self);
        WorkedGroup { end, reservation, after, claimed, begun, turn, session_is_sound, given_up, remark }
    }

    /// Returns the rows as they were claimed, with the texts of their keys.
    fn claimed_as(&self, rows: &[Claimed<K>]) -> Vec<(Arc<str>, ClaimedAs)> {
        let passed_rows = &self.served.due_rows.passed_rows;
        let messages = rows.iter().filter_map(|row| Some((&row.key, row.message.as_ref().ok()?)));
        messages.map(|(key, message)| (key.text().clone(), passed_rows.claimed_as(key, &message.1))).collect()
    }

    /// Returns why the rows must not share a transaction, and therefore a crash.
    fn reason_to_run_alone(&self, rows: &[Claimed<K>], claimed_as: &[(Arc<str>, ClaimedAs)]) -> Option<&'static str> {
        let (recorder, served) = (self.slot.recorder(), self.served);
        let may_share = |row: &Claimed<K>| {
            let message = row.message.as_ref().ok();
            message.is_none_or(|(_, state)| recorder.crashes.may_share(&served.info.key_prefix, state))
        };
        if !rows.iter().all(may_share) {
            return Some("one of its messages may end its process");
        }
        let has_returned = claimed_as.iter().any(|(_, row)| served.due_rows.passed_rows.has_returned(*row));
        has_returned.then_some("one of its messages has come back as it was")
    }

    /// Handles the messages, settles and commits. Returns also the rows that were not begun.
    fn run(&mut self, claimed: Vec<Claimed<K>>) -> (BatchEnd<K>, Vec<BatchRow<K>>) {
        let (entities, rows, unhandled) = self.take_apart(claimed);
        let end = match self.handle_settle_commit(entities, &rows, unhandled) {
            Ok(()) => {
                tracing::debug!(messages = self.decided.len(), "settled");
                BatchEnd::Settled(std::mem::take(&mut self.decided))
            }
            Err(end) => end,
        };
        if let BatchEnd::Undone(why) = &end {
            rows.iter().for_each(|row| row.watch.interrupt(why.text()));
        }
        (end, rows[self.begun..].to_vec())
    }

    /// Handles the messages, settles and commits. An error means that the transaction is gone.
    fn handle_settle_commit(
        &mut self,
        mut entities: Entities,
        rows: &[BatchRow<K>],
        unhandled: Vec<DecidedRow<K>>,
    ) -> Result<(), BatchEnd<K>> {
        match rows {
            [] => {}
            [_] => self.handle_in_turn(&mut entities, rows)?,
            _ => {
                let rereads = self.body.rereading.is_some();
                let optimistic = self.served.rules.settings.optimistic && !rereads;
                // A row that leaves its table does so together with the others.
                let stays = self.served.rules.options.of_attempts().on_success == OnFinish::Keep;
                self.settles_in_turn = rereads || !C::Backend::REFUSES_COMMITS && !optimistic && stays;
                if !C::Backend::REFUSES_COMMITS && !self.settles_in_turn {
                    self.reservation = Some(reserve(self.served.queue, self.session, rows, self.served.info.timeout)?);
                }
                match optimistic {
                    true => self.handle_under_one_savepoint(&mut entities, rows)?,
                    false => self.handle_in_turn(&mut entities, rows)?,
                }
            }
        }
        drop(entities);
        self.note_handled();
        if let Some(reservation) = &self.reservation {
            self.decided.iter_mut().for_each(|row| row.fence = reservation.fence(row.fence));
        }
        // Only now: until here, the decided rows are those whose handlers have run. The unhandled rows are not
        // reserved.
        self.decided.extend(unhandled);
        self.settle()?;
        fail_point("settled");
        if let Some(reservation) = self.reservation.clone() {
            self.leave(&rows[self.begun..], &reservation)?;
        }
        self.commit()
    }

    /// Restores the rows that the group did not come to.
    fn leave(&mut self, rows: &[BatchRow<K>], reservation: &Reservation) -> Result<(), BatchEnd<K>> {
        for row in rows {
            let (fence, change) = (reservation.fence(row.fence), row.restored());
            expect_rows::<K, C>(self.served.queue.settle(self.session, &row.key, fence, &change), 1)?;
        }
        Ok(())
    }
}
