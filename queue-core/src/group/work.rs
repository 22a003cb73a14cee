//! A group in its transaction, and the handler of its messages.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{cmp, thread, vec};

use diesel::result::QueryResult;

use super::end::{DecidedRow, GroupEnd, GroupRow, Offender, Reservation, Undone};
use crate::attempt::{
    AttemptError, Interruption, NewState, Plan, Rest, Revocation, ServedQueue, WorkerCalls, is_interruption,
    tries_before,
};
use crate::backend::{QueueConnection, Session};
use crate::entity::{Entity, Key};
use crate::handler::{Failure, Group, Handler, HandlerResult, Message, Outcome, Panicked, drop_safely};
use crate::row::{Details, Settlement, idempotency_key};
use crate::statement::{Claimed, ErasedQueue};
use crate::sync::{ErasedEntity, opened, unboxed};

/// How many groups read their rows again after one was undone, or had a row that a neighbour has changed. A handler that
/// changes its own row in a forbidden way looks like one that changes a neighbour's, so this has an end.
const GROUPS: u32 = 100;

/// A group in its transaction.
pub(crate) struct OpenGroup<'a, 'c, K: Key, C: QueueConnection> {
    pub(crate) session: &'a mut Session<'c, C>,
    pub(crate) plan: &'a Plan<'a, K, C>,
    pub(crate) handler: &'a dyn GroupBody<C>,
    pub(crate) worker: &'a dyn WorkerCalls,
    pub(crate) started: Instant,
    /// How long one of its messages took on average, once they are handled.
    pub(crate) turn: Option<Duration>,
    pub(crate) reservation: Option<Reservation>,
    /// Whether each success is settled before the next handler runs.
    pub(crate) settles_in_turn: bool,
    /// Set if each row is read again before its handler runs.
    pub(crate) rereading: Option<&'a Rereading>,
    pub(crate) begun: usize,
    pub(crate) decided: Vec<DecidedRow<K>>,
    pub(crate) session_is_sound: bool,
    pub(crate) remark: Option<String>,
}

impl<K: Key, C: QueueConnection> OpenGroup<'_, '_, K, C> {
    /// Puts the messages in the order in which they are handled, and separates those that cannot be decoded or are not
    /// to be handled.
    pub(super) fn take_apart(&mut self, claimed: Vec<Claimed<K>>) -> (Entities, Vec<GroupRow<K>>, Vec<DecidedRow<K>>) {
        let (mut messages, mut unhandled) = (Vec::new(), Vec::new());
        let ServedQueue { rules, info, .. } = self.plan.served;
        for Claimed { key, fence, message, details } in claimed {
            let tries = tries_before(fence) + 1;
            let due = message.as_ref().ok().and_then(|(_, state)| state.next_attempt_time);
            let watch = rules.teller.watch(&key, tries, due.map(Into::into), &details);
            let new = match message {
                Ok((entity, state)) => match rules.instead_of_handling(fence, tries, due, &details) {
                    Some(new) => {
                        drop_safely(entity);
                        new
                    }
                    None => {
                        let idempotency_key = idempotency_key(&info.key_prefix, &key, &details);
                        messages.push((entity, GroupRow { key, fence, tries, state, details, idempotency_key, watch }));
                        continue;
                    }
                },
                Err(error) => {
                    let judged = self.judge(tries, Failure::retry(AttemptError::Undecodable(error)), &details);
                    judged.unwrap_or_else(|by| rules.after_failure(tries, &Failure::retry(by.cause), &details))
                }
            };
            unhandled.push(DecidedRow { key, fence, new, written: false, watch });
        }
        // The comparison is the user's code. A sort that panics leaves everything in some order.
        let handler = self.handler;
        let sort = || messages.sort_by(|(one, _), (other, _)| handler.compare(one, other));
        if let Err(panic) = catch_unwind(AssertUnwindSafe(sort)) {
            std::mem::forget(panic);
            self.remark = Some("the comparison of two entities panicked: a group is handled in no order".to_owned());
        }
        let (entities, rows): (Vec<_>, _) = messages.into_iter().unzip();
        (Entities(entities.into_iter()), rows, unhandled)
    }

    /// Tells whether to begin the next message: not after half the timeout, so that the message has the other half, and
    /// not when the poller stops.
    pub(crate) fn has_time(&self) -> bool {
        let served = &self.plan.served;
        let most = served.rules.settings.most_together().1.min(served.info.timeout / 2);
        self.started.elapsed() < most && self.worker.goes_on()
    }

    pub(crate) fn decide(&mut self, row: &GroupRow<K>, outcome: Outcome) {
        let mut new = self.plan.served.rules.after_outcome(row.fence, row.tries, outcome, &row.details);
        if new.settled == Settlement::Again && self.reservation.is_some() {
            // The text stays as it was at the claim; the reservation has replaced it on the row.
            new.change.error = row.text();
        }
        self.decided.push(row.decided(new, false));
    }

    pub(crate) fn revoked(&self, why: Revocation) -> Undone {
        match why {
            // The handler that was running may have had only a part of the timeout.
            Revocation::TimedOut => Undone::Alone(AttemptError::TimedOut(self.plan.served.info.timeout).to_string()),
            Revocation::Shutdown => Undone::Shutdown,
        }
    }

    /// Returns the end of a group whose transaction the handler of this row may have ended.
    pub(crate) fn ended_by(&mut self, row: &GroupRow<K>, rest: Rest) -> GroupEnd<K> {
        GroupEnd::EndedByHandler {
            reservation: self.reservation.take(),
            before: std::mem::take(&mut self.decided),
            offender: Box::new(Offender { row: row.clone(), rest }),
            after: Vec::new(),
        }
    }

    /// Returns the end of a group after an interruption of this row that has cost it the savepoint.
    pub(crate) fn interrupted(&mut self, row: &GroupRow<K>, by: Interruption) -> GroupEnd<K> {
        // The group was the victim of a deadlock. Its rows are as they were, and prove nothing: others may have
        // processed them since.
        if self.reservation.is_none() && by.rolls_back {
            return GroupEnd::Undone(Undone::Conflict(by.cause));
        }
        self.ended_by(row, Rest::Postpone(by))
    }

    /// Returns the end of a group whose transaction was ended by one of the handlers that have run.
    pub(crate) fn ended_by_unknown(&mut self, rows: &[GroupRow<K>], why: Option<Undone>) -> GroupEnd<K> {
        let rows = rows[..self.begun].iter().map(|row| row.in_doubt(&self.plan.served.rules)).collect();
        GroupEnd::EndedByUnknown { reservation: self.reservation.take(), rows, after: Vec::new(), why }
    }

    /// Decides what a failure makes of its row. An error is an interruption. The failure's `source` and `Drop` are user
    /// code.
    pub(crate) fn judge(&mut self, tries: u32, failure: Failure, details: &Details) -> Result<NewState, Interruption> {
        let rules = &self.plan.served.rules;
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

    pub(crate) fn after(&self, row: &GroupRow<K>, error: AttemptError) -> NewState {
        self.plan.served.rules.after_failure(row.tries, &Failure::retry(error), &row.details)
    }
}

/// The code that handles the messages of a group.
pub(crate) trait GroupBody<C>: Send + Sync {
    /// Handles one of them.
    fn handle(&self, entity: &ErasedEntity, message: &mut Message<'_, C>) -> HandlerResult;

    /// Offers all of them to the handler. An error is its panic.
    fn handle_group(
        &self,
        entities: &mut Entities,
        group: &mut Group<'_, C>,
    ) -> thread::Result<Option<Vec<HandlerResult>>>;

    /// Compares two entities in the order in which the group handles them.
    fn compare(&self, one: &ErasedEntity, other: &ErasedEntity) -> cmp::Ordering;
}

impl<Q: Entity + Send + 'static, C> GroupBody<C> for Arc<dyn Handler<Q, C> + '_> {
    fn handle(&self, entity: &ErasedEntity, message: &mut Message<'_, C>) -> HandlerResult {
        (**self).handle(opened(entity), message)
    }

    fn handle_group(
        &self,
        entities: &mut Entities,
        group: &mut Group<'_, C>,
    ) -> thread::Result<Option<Vec<HandlerResult>>> {
        let opened: Vec<Q> = entities.0.by_ref().map(unboxed).collect();
        let answer = catch_unwind(AssertUnwindSafe(|| (**self).handle_group(&opened, group)));
        // Whatever it has answered, they may have to be handled one by one.
        entities.0 = opened.into_iter().map(|entity| Box::new(entity) as _).collect::<Vec<_>>().into_iter();
        answer
    }

    fn compare(&self, one: &ErasedEntity, other: &ErasedEntity) -> cmp::Ordering {
        opened::<Q>(one).compare_in_group(opened(other))
    }
}

/// The entities of a group, which the user's code drops one by one: each of them may panic.
pub(crate) struct Entities(pub(super) vec::IntoIter<ErasedEntity>);

impl Drop for Entities {
    fn drop(&mut self) {
        self.0.by_ref().for_each(drop_safely);
    }
}

/// Whether an entity's groups read each row again before its handler runs, because a neighbour's handler may have changed it
/// since the group claimed it.
///
/// A group finds out at the end of a message that somebody has changed its row: then the handler has run already, and
/// perhaps those of later rows too, so the group is undone and all of its calls are repeated. To look before each
/// handler would cost every group a statement for each row, although hardly any handler writes on its neighbours. So
/// only the next groups look, after a group was undone for this reason.
#[derive(Default)]
pub(crate) struct Rereading(AtomicU32);

impl Rereading {
    /// Has the next groups reread their rows, because handlers change their neighbours' rows.
    pub(crate) fn begin(&self) {
        self.0.store(GROUPS, Ordering::Relaxed);
    }

    /// Takes one of the groups that are still to reread their rows. Returns whether there was one.
    pub(crate) fn take_one(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |groups| groups.checked_sub(1)).is_ok()
    }
}

/// Reads a row of the group again. `None`: it is no longer as it was claimed, or its claim's condition no longer holds.
/// It stays as it is, as if the group had not claimed it.
pub(crate) fn reread<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    key_prefix: &str,
    row: &GroupRow<K>,
) -> QueryResult<Option<(ErasedEntity, GroupRow<K>)>> {
    let Some(Claimed { key, fence, message: Ok((entity, state)), mut details }) =
        queue.retake_if_claimable(connection, &row.key, row.fence)?
    else {
        return Ok(None);
    };
    details.lane = row.details.lane.clone();
    let idempotency_key = idempotency_key(key_prefix, &key, &details);
    let (tries, watch) = (row.tries, row.watch.clone());
    Ok(Some((entity, GroupRow { key, fence, tries, state, details, idempotency_key, watch })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_groups_read_their_rows_again_after_it_was_needed() {
        let rereading = Rereading::default();
        assert!(!rereading.take_one());
        rereading.begin();
        assert!((0..GROUPS).all(|_| rereading.take_one()));
        assert!(!rereading.take_one());
    }
}
