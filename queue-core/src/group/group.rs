//! Several messages, one transaction: claim the due rows, handle each in a savepoint, settle the successes with one
//! statement, and commit once.
//!
//! [`handle`](super::handle) says how they are handled. Rows that were only rolled back are as they were, and run one
//! by one. [`recover`](super::recover) finds out what a handler that has ended the transaction has left behind.

use std::sync::Arc;
use std::time::Instant;

use diesel::connection::TransactionManager;
use diesel::result::QueryResult;

use super::end::{
    DecidedRow, GroupEnd, GroupRow, HeldGroup, Reservation, SETTLED_AT_ONCE, Undone, WorkedGroup, expect_rows, reserve,
    undone, write,
};
use super::work::{Entities, GroupBody, OpenGroup, Rereading};
use crate::attempt::{Plan, WorkerCalls};
use crate::backend::{Dialect, QueueConnection, Session};
use crate::claim::{ClaimTerms, ClaimedAs, claim};
use crate::entity::Key;
use crate::row::OnFinish;
use crate::statement::{Change, Claimed};
use crate::sync::fail_point;

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
        return WorkedGroup::without_rows(GroupEnd::Idle, false);
    }
    let stays = plan.served.rules.options.of_attempts().on_success == OnFinish::Keep;
    let group = OpenGroup {
        session,
        plan,
        handler,
        worker,
        started: Instant::now(),
        turn: None,
        reservation: None,
        settles_in_turn: false,
        // A row that leaves its table does so together with the others, if a handler might commit.
        rereading: ((stays || C::Backend::REFUSES_COMMITS) && rereading.take_one()).then_some(rereading),
        begun: 0,
        decided: Vec::new(),
        session_is_sound: true,
        remark: None,
    };
    group.work(rows)
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

impl<K: Key, C: QueueConnection> OpenGroup<'_, '_, K, C> {
    /// Processes the claimed rows to the end of the transaction.
    fn work(mut self, rows: Vec<Claimed<K>>) -> WorkedGroup<K> {
        let (slot, claimed, kept_rows) = (self.plan.slot, rows.len(), &self.plan.served.due_rows.kept_rows);
        let claimed_as = self.claimed_as(&rows);
        let alone = self.reason_to_run_alone(&rows, &claimed_as);
        if alone.is_none() {
            let rows = rows.iter().map(|row| (&row.key, row.fence));
            slot.recorder().begin(&self.plan.served.info.key_prefix, rows);
        }
        slot.hold(Box::new(HeldGroup { claimed }), &[]);
        let end = match alone {
            Some(why) => GroupEnd::Undone(Undone::Alone(why.to_owned())),
            None => self.run(rows),
        };
        if let GroupEnd::Settled(settled) = &end {
            // None of these rows has come back before, because such a row runs alone. A group that was closed early has
            // given some of its rows back.
            let is_settled = |text| settled.len() == claimed || settled.iter().any(|row| row.key.text() == text);
            claimed_as.iter().filter(|(text, _)| is_settled(text)).for_each(|(_, row)| {
                kept_rows.record_written(*row);
            });
        }
        let transaction_is_over =
            matches!(end, GroupEnd::Settled(_)) || matches!(end, GroupEnd::Undone(_)) && self.roll_back();
        let given_up = slot.leave();
        let session_is_sound = self.session_is_sound && !given_up && transaction_is_over;
        let OpenGroup { begun, turn, remark, .. } = self;
        WorkedGroup { end, claimed, begun, turn, session_is_sound, given_up, remark }
    }

    /// Returns the rows as they were claimed, with the texts of their keys.
    fn claimed_as(&self, rows: &[Claimed<K>]) -> Vec<(Arc<str>, ClaimedAs)> {
        let kept = &self.plan.served.due_rows.kept_rows;
        let messages = rows.iter().filter_map(|row| Some((&row.key, row.message.as_ref().ok()?)));
        messages.map(|(key, message)| (key.text().clone(), kept.claimed_as(key, &message.1))).collect()
    }

    /// Returns why the rows must not share a transaction, and therefore a crash.
    fn reason_to_run_alone(&self, rows: &[Claimed<K>], claimed_as: &[(Arc<str>, ClaimedAs)]) -> Option<&'static str> {
        let (recorder, served) = (self.plan.slot.recorder(), self.plan.served);
        let may_share = |row: &Claimed<K>| {
            let message = row.message.as_ref().ok();
            message.is_none_or(|(_, state)| {
                recorder.crashes.may_share(&served.info.key_prefix, &row.key, row.fence, state)
            })
        };
        if !rows.iter().all(may_share) {
            return Some("one of its messages may end its process");
        }
        let has_returned = claimed_as.iter().any(|(_, row)| served.due_rows.kept_rows.has_returned(*row));
        has_returned.then_some("one of its messages has come back as it was")
    }

    /// Rolls back, and tells whether no transaction is left open: a handler may have opened one inside ours.
    fn roll_back(&mut self) -> bool {
        C::TransactionManager::rollback_transaction(&mut **self.session).is_ok() && self.session.is_in_no_transaction()
    }

    /// Handles the messages, settles and commits.
    fn run(&mut self, claimed: Vec<Claimed<K>>) -> GroupEnd<K> {
        let (entities, rows, unhandled) = self.take_apart(claimed);
        match self.handle_settle_commit(entities, &rows, unhandled) {
            Ok(()) => {
                tracing::debug!(messages = self.decided.len(), "settled");
                GroupEnd::Settled(std::mem::take(&mut self.decided))
            }
            Err(mut end) => {
                if let GroupEnd::Undone(why) = &end {
                    rows.iter().for_each(|row| row.watch.interrupt(why.text()));
                }
                if let GroupEnd::EndedByHandler { after, .. } | GroupEnd::EndedByUnknown { after, .. } = &mut end {
                    *after = rows[self.begun..].to_vec();
                }
                end
            }
        }
    }

    /// Handles the messages, settles and commits. An error means that the transaction is gone.
    fn handle_settle_commit(
        &mut self,
        entities: Entities,
        rows: &[GroupRow<K>],
        unhandled: Vec<DecidedRow<K>>,
    ) -> Result<(), GroupEnd<K>> {
        match rows {
            [] => {}
            [_] => self.handle_in_turn(entities, rows)?,
            _ => {
                let rereads = self.rereading.is_some();
                let optimistic = self.plan.served.rules.settings.optimistic && !rereads;
                // A row that leaves its table does so together with the others.
                let stays = self.plan.served.rules.options.of_attempts().on_success == OnFinish::Keep;
                self.settles_in_turn = rereads || !C::Backend::REFUSES_COMMITS && !optimistic && stays;
                if !C::Backend::REFUSES_COMMITS && !self.settles_in_turn {
                    self.reservation =
                        Some(reserve(self.plan.served.queue, self.session, rows, self.plan.served.info.timeout)?);
                }
                match optimistic {
                    true => self.handle_under_one_savepoint(entities, rows)?,
                    false => self.handle_in_turn(entities, rows)?,
                }
            }
        }
        self.turn = u32::try_from(self.begun).ok().and_then(|begun| self.started.elapsed().checked_div(begun));
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
    fn leave(&mut self, rows: &[GroupRow<K>], reservation: &Reservation) -> Result<(), GroupEnd<K>> {
        for row in rows {
            let (fence, change) = (reservation.fence(row.fence), row.restored());
            expect_rows::<K, C>(self.plan.served.queue.settle(self.session, &row.key, fence, &change), 1)?;
        }
        Ok(())
    }

    /// Writes the new states: one statement for the successes whose tries just go up by one, and one for each other
    /// row. Each is fenced, and every row must be changed.
    fn settle(&mut self) -> Result<(), GroupEnd<K>> {
        // Then the written values differ from row to row.
        let decides_by_details = self.plan.served.queue.sql.options.decides_by_details();
        let (alike, others): (Vec<_>, Vec<_>) = self
            .decided
            .iter()
            .filter(|row| !row.written)
            .partition(|row| row.is_plain_success() && !decides_by_details);
        if let Some(first) = alike.first() {
            let success = Change { try_count: None, another_try: true, ..first.new.change.clone() };
            let rows: Vec<_> = alike.iter().map(|row| (&row.key, row.fence)).collect();
            for rows in rows.chunks(SETTLED_AT_ONCE) {
                expect_rows::<K, C>(self.plan.served.queue.settle_many(self.session, rows, &success), rows.len())?;
            }
        }
        for row in others {
            let failed = row.new.settled.is_failure();
            if failed {
                fail_point("recording");
            }
            write(self.plan.served.queue, self.session, row)?;
            if failed {
                fail_point("recorded");
            }
        }
        Ok(())
    }

    /// Commits, unless the transaction was taken away, and evaluates the result.
    fn commit(&mut self) -> Result<(), GroupEnd<K>> {
        self.plan.slot.begin_commit().map_err(|why| GroupEnd::Undone(self.revoked(why)))?;
        fail_point("committing");
        let Err(error) = self.session.commit_group(true) else {
            fail_point("committed");
            return Ok(());
        };
        if C::leaves_commit_in_doubt(&error) {
            return Err(GroupEnd::Unknown(std::mem::take(&mut self.decided), error.to_string()));
        }
        if C::lacks_group_cursor(&error) {
            let what = "a handler has closed a cursor that is not its own (by CLOSE ALL or DISCARD ALL), without which its group \
                        is not committed: its messages run one by one";
            self.remark = Some(what.to_owned());
        }
        Err(undone::<K, C>(error))
    }
}
