//! Several messages, one transaction: claim the due rows, handle each in a savepoint, settle the successes with one
//! statement, and commit once.
//!
//! [`handle`](super::handle) says how they are handled. Rows that were only rolled back are as they were, and run one
//! by one. [`recover`](super::recover) finds out what a handler that has ended the transaction has left behind.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use diesel::connection::{TransactionManager, TransactionManagerStatus};
use diesel::result::QueryResult;

use super::body::{Entities, GroupBody};
use super::end::{DecidedRow, GroupEnd, GroupRow, HeldGroup, Reservation, Undone, WorkedGroup};
use super::reread::Rereading;
use super::reserve::reserve;
use super::work::{OpenGroup, SETTLED_AT_ONCE, expect_rows, undone, write};
use crate::attempt::{AttemptError, Plan, WorkerCalls, tries_before};
use crate::backend::{QueueConnection, RoundTrips, Session};
use crate::claim::{ClaimedAs, LaneClaim, claim_some};
use crate::entity::Key;
use crate::fault::fail_point;
use crate::handler::{Failure, drop_safely};
use crate::row::{OnFinish, idempotency_key};
use crate::statement::{Change, Claimed};

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
    let ended = |end, session_is_sound| WorkedGroup {
        end,
        claimed: 0,
        begun: 0,
        session_is_sound,
        given_up: false,
        remark: None,
    };
    let rows = match begin_and_claim(session, size, plan) {
        Ok(rows) if rows.is_empty() => return ended(GroupEnd::Idle, true),
        Ok(rows) => rows,
        Err(error) => return ended(GroupEnd::NotClaimed(error), false),
    };
    let claimed = rows.len();
    let _span = tracing::debug_span!("group", entity = plan.served.queue.sql.entity, messages = claimed).entered();
    tracing::debug!("claimed");
    fail_point("claimed");
    plan.slot.enter(session.id, plan.served.info.timeout);
    // After the slot was entered, for the same reason as in the attempt of one message.
    worker.has_claimed();
    if !worker.goes_on() {
        plan.slot.leave();
        return ended(GroupEnd::Idle, false);
    }
    let claimed_as = claimed_as(plan, &rows);
    let kept_rows = &plan.served.due_rows.kept_rows;
    let returned = claimed_as.iter().any(|(_, row)| kept_rows.has_returned(*row));
    let suspects = rows.iter().any(|row| !may_share(plan, row));
    if !suspects && !returned {
        plan.slot.recorder().begin(&plan.served.info.key_prefix, rows.iter().map(|row| (&row.key, row.fence)));
    }
    plan.slot.hold(Box::new(HeldGroup { claimed }), &[]);
    let stays = plan.served.rules.options.on_success == OnFinish::Keep;
    let mut work = OpenGroup {
        session,
        plan,
        handler,
        worker,
        started: Instant::now(),
        reservation: None,
        settles_in_turn: false,
        // A row that leaves its table does so together with the others, if a handler might commit.
        rereading: ((stays || C::Backend::REFUSES_COMMITS) && rereading.next()).then_some(rereading),
        begun: 0,
        decided: Vec::new(),
        session_is_sound: true,
        remark: None,
    };
    let end = if suspects {
        GroupEnd::Undone(Undone::Alone("one of its messages is suspected of ending its process".to_owned()))
    } else if returned {
        GroupEnd::Undone(Undone::Alone("one of its messages has come back as it was".to_owned()))
    } else {
        work.run(rows)
    };
    if let GroupEnd::Settled(settled) = &end {
        // A group that was closed early has given some of its rows back.
        let is_settled = |text| settled.len() == claimed || settled.iter().any(|row| row.key.text() == text);
        claimed_as.iter().filter(|(text, _)| is_settled(text)).for_each(|(_, row)| {
            kept_rows.is_written(*row);
        });
    }
    let OpenGroup { begun, session_is_sound, remark, .. } = work;
    let transaction_is_over = match &end {
        GroupEnd::Settled(_) => true,
        GroupEnd::Undone(_) => roll_back(&mut **session),
        _ => false,
    };
    let given_up = plan.slot.leave();
    let session_is_sound = session_is_sound && !given_up && transaction_is_over;
    WorkedGroup { end, claimed, begun, session_is_sound, given_up, remark }
}

/// Returns the rows as they were claimed, with the texts of their keys.
fn claimed_as<K: Key, C: QueueConnection>(plan: &Plan<'_, K, C>, rows: &[Claimed<K>]) -> Vec<(Arc<str>, ClaimedAs)> {
    let kept = &plan.served.due_rows.kept_rows;
    let messages = rows.iter().filter_map(|row| Some((&row.key, row.message.as_ref().ok()?)));
    messages.map(|(key, message)| (key.text().clone(), kept.claimed_as(key, &message.1))).collect()
}

/// Tells whether the row may share a transaction, and therefore a crash, with others.
fn may_share<K: Key, C: QueueConnection>(plan: &Plan<'_, K, C>, row: &Claimed<K>) -> bool {
    let text = row.message.as_ref().ok().and_then(|message| message.1.last_attempt_error_message.as_deref());
    plan.slot.recorder().crashes.may_share(&plan.served.info.key_prefix, &row.key, row.fence, text)
}

fn begin_and_claim<K: Key, C: QueueConnection>(
    session: &mut Session<C>,
    size: u32,
    plan: &Plan<'_, K, C>,
) -> QueryResult<Vec<Claimed<K>>> {
    session.begin_group()?;
    let claim = &plan.claim;
    let rows = match (claim.places, claim.prefetched_keys) {
        (Some(places), _) => {
            let some = LaneClaim { limit: size, locks: true, begins_again: false };
            places.claim(session, some, claim.scope)?
        }
        (None, Some(prefetched_keys)) => prefetched_keys.claim_some(plan.served.queue, session, size, claim.scope)?,
        (None, None) => claim_some(plan.served.queue, session, true, size, claim.scope)?,
    };
    if rows.is_empty() {
        C::TransactionManager::rollback_transaction(&mut **session)?;
    }
    Ok(rows)
}

/// Rolls back, and tells whether no transaction is left open: a handler may have opened one inside ours.
fn roll_back<C: QueueConnection>(connection: &mut C) -> bool {
    let rolled_back = C::TransactionManager::rollback_transaction(connection).is_ok();
    let status: &TransactionManagerStatus = C::TransactionManager::transaction_manager_status_mut(connection);
    rolled_back && matches!(status.transaction_depth(), Ok(None))
}

impl<K: Key, C: QueueConnection> OpenGroup<'_, K, C> {
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
                    rows.iter().for_each(|row| row.watch.is_interrupted(why.text()));
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
                let stays = self.plan.served.rules.options.on_success == OnFinish::Keep;
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

    /// Puts the messages in the order in which they are handled, and separates those that cannot be decoded or are not
    /// to be handled.
    fn take_apart(&mut self, claimed: Vec<Claimed<K>>) -> (Entities, Vec<GroupRow<K>>, Vec<DecidedRow<K>>) {
        let (mut messages, mut unhandled) = (Vec::new(), Vec::new());
        for Claimed { key, fence, message, details } in claimed {
            let tries = tries_before(fence) + 1;
            match message {
                Ok((entity, state)) => {
                    let due = state.next_attempt_time;
                    let watch = self.plan.served.rules.teller.watch(&key, tries, due.map(Into::into));
                    if let Some((settled, change)) =
                        self.plan.served.rules.instead_of_handling(fence, tries, due, &details)
                    {
                        drop_safely(entity);
                        unhandled.push(DecidedRow { key, fence, settled, change, written: false, watch });
                        continue;
                    }
                    let idempotency_key = idempotency_key(&self.plan.served.info.key_prefix, &key, &details);
                    messages.push((entity, GroupRow { key, fence, tries, state, details, idempotency_key, watch }));
                }
                Err(error) => {
                    let failure = Failure::retry(AttemptError::Undecodable(error));
                    let watch = self.plan.served.rules.teller.watch(&key, tries, None);
                    let rules = &self.plan.served.rules;
                    let judged = self.judge(tries, failure, &details);
                    let (settled, change) =
                        judged.unwrap_or_else(|by| rules.after_failure(tries, &Failure::retry(by.cause), &details));
                    unhandled.push(DecidedRow { key, fence, settled, change, written: false, watch });
                }
            }
        }
        // The comparison is the user's code. A sort that panics leaves everything in some order.
        let handler = self.handler;
        let sort = || messages.sort_by(|(one, _), (other, _)| handler.compare(one, other));
        if let Err(panic) = catch_unwind(AssertUnwindSafe(sort)) {
            std::mem::forget(panic);
            self.remark = Some("the comparison of two entities panicked: a group is handled in no order".to_owned());
        }
        let (entities, rows) = messages.into_iter().unzip();
        (Entities::new(entities), rows, unhandled)
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
        let needs_details = self.plan.served.queue.sql.options.needs_details();
        let (alike, others): (Vec<_>, Vec<_>) =
            self.decided.iter().filter(|row| !row.written).partition(|row| row.is_plain_success() && !needs_details);
        if let Some(first) = alike.first() {
            let success = Change { try_count: None, another_try: true, ..first.change.clone() };
            let rows: Vec<_> = alike.iter().map(|row| (row.key.value(), row.fence)).collect();
            for rows in rows.chunks(SETTLED_AT_ONCE) {
                expect_rows::<K, C>(self.plan.served.queue.settle_many(self.session, rows, &success), rows.len())?;
            }
        }
        for row in others {
            let failed = row.settled.is_failure();
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
        self.plan.slot.commit().map_err(|why| GroupEnd::Undone(self.revoked(why)))?;
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
