//! What the messages of a group are handled by, what becomes of those that are not handled, and how rows are reserved.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{cmp, thread, vec};

use chrono::{SubsecRound, TimeDelta};
use diesel::result::QueryResult;

use crate::attempt::{AttemptError, ServedQueue, Slot, WorkerCalls, tries_before};
use crate::backend::{QueueConnection, Session};
use crate::batch::{
    AsItIsNow, BatchBody, BatchEnd, BatchRow, DecidedRow, OpenBatch, Reservation, SETTLED_AT_ONCE, expect_rows, undone,
};
use crate::entity::{Entity, Key};
use crate::handler::{Failure, Group, Handler, HandlerResult, Message, drop_safely};
use crate::row::{ErrorText, Instant, MAX_DELAY, RESERVING, idempotency_key};
use crate::statement::{Change, Claimed, ErasedQueue, Next};
use crate::sync::{ErasedEntity, opened, unboxed};

/// How many groups read their rows again after one was undone, or had a row that a neighbour has changed. A handler that
/// changes its own row in a forbidden way looks like one that changes a neighbour's, so this has an end.
const GROUPS: u32 = 100;

/// How long reserved rows are not due after their group's timeout. In this time the worker writes what is left after a
/// handler's COMMIT, even if the database is away for a moment.
const RESERVED: Duration = Duration::from_secs(60);

/// A group in its transaction.
pub(super) type OpenGroup<'a, 'c, 'g, K, C> = OpenBatch<'a, 'c, K, C, GroupHandler<'g, K, C>>;

/// What the messages of one group are handled by.
pub(super) struct GroupHandler<'a, K: Key, C: QueueConnection> {
    pub(super) served: &'a ServedQueue<K, C>,
    pub(super) handler: &'a dyn GroupBody<C>,
    pub(super) worker: &'a dyn WorkerCalls,
    /// Set if each row is read again before its handler runs.
    pub(super) rereading: Option<&'a Rereading>,
}

impl<K: Key, C: QueueConnection> BatchBody<K, C> for GroupHandler<'_, K, C> {
    type Entity = ErasedEntity;
    type Entities = Entities;

    const BEGINS_NEXT: bool = true;

    fn begin(&self, slot: &Slot, _entity: &ErasedEntity, row: &BatchRow<K>) {
        slot.watch([&row.watch]);
        row.watch.begin();
    }

    fn call(&self, entity: &ErasedEntity, message: &mut Message<'_, C>) -> HandlerResult {
        self.handler.handle(entity, message)
    }

    fn take_back(&self, entity: ErasedEntity) {
        drop(entity);
    }

    /// Not after half the timeout, so that the message has the other half, and not when the poller stops.
    fn has_time(&self, open_for: Duration) -> bool {
        let most = self.served.rules.settings.most_together().1.min(self.served.info.timeout / 2);
        open_for < most && self.worker.goes_on()
    }

    /// Reads a row again if a neighbour's handler may have changed it. If the row is no longer as it was claimed, it is left
    /// as it is.
    fn as_it_is_now(
        &self,
        session: &mut Session<C>,
        is_first: bool,
        entity: ErasedEntity,
        row: &BatchRow<K>,
    ) -> QueryResult<AsItIsNow<ErasedEntity, K>> {
        let Some(rereading) = self.rereading.filter(|_| !is_first) else { return Ok(Some((entity, None))) };
        drop_safely(entity);
        let reread = reread(self.served.queue, session, &self.served.info.key_prefix, row)?;
        if reread.is_none() {
            rereading.begin();
        }
        Ok(reread.map(|(entity, row)| (entity, Some(row))))
    }

    fn offer(
        group: &mut OpenBatch<'_, '_, K, C, Self>,
        entities: &mut Entities,
        rows: &[BatchRow<K>],
    ) -> Result<bool, BatchEnd<K>> {
        if group.body.rereading.is_some() { Ok(false) } else { group.handle_at_once(entities, rows) }
    }
}

impl<K: Key, C: QueueConnection> OpenGroup<'_, '_, '_, K, C> {
    /// Puts the messages in the order in which they are handled, and separates those that cannot be decoded or are not
    /// to be handled.
    pub(super) fn take_apart(&mut self, claimed: Vec<Claimed<K>>) -> (Entities, Vec<BatchRow<K>>, Vec<DecidedRow<K>>) {
        let (mut messages, mut unhandled) = (Vec::new(), Vec::new());
        let ServedQueue { rules, info, .. } = self.served;
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
                        messages.push((
                            entity,
                            BatchRow { key, fence, before: fence, tries, state, details, idempotency_key, watch },
                        ));
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
        let handler = self.body.handler;
        let sort = || messages.sort_by(|(one, _), (other, _)| handler.compare(one, other));
        if let Err(panic) = catch_unwind(AssertUnwindSafe(sort)) {
            std::mem::forget(panic);
            self.remark = Some("the comparison of two entities panicked: a group is handled in no order".to_owned());
        }
        let (entities, rows): (Vec<_>, _) = messages.into_iter().unzip();
        (Entities(entities.into_iter()), rows, unhandled)
    }
}

/// Makes the rows due long after their group's timeout, and reserves them.
///
/// A reservation writes every row once more, so a group makes it only if nothing else helps: before an optimistic
/// group, before a handler for the whole group uses the connection, and if a success leaves its table. Otherwise each
/// success is settled before the next handler runs. If the server [refuses such a
/// COMMIT](crate::backend::QueueBackend::REFUSES_COMMITS), no group is reserved.
pub(super) fn reserve<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    rows: &[BatchRow<K>],
    timeout: Duration,
) -> Result<Reservation, BatchEnd<K>> {
    let text = format!("{RESERVING}{:032x}", fastrand::u128(..));
    // One known time for all rows: a handler may make a row of its group due at another time, and the fence has to show
    // it.
    let present = queue.present(connection).map_err(undone::<K, C>)?;
    let delay = TimeDelta::from_std(timeout.saturating_add(RESERVED).min(MAX_DELAY)).ok();
    let until = delay.and_then(|delay| present.checked_add_signed(delay));
    // In the milliseconds that every database keeps.
    let until = until.map_or(present, |until| Instant::from(until.trunc_subsecs(3)));
    let change = Change { next: Some(Next::At(until)), error: ErrorText::Set(text.clone()), ..Change::default() };
    let fenced: Vec<_> = rows.iter().map(|row| (&row.key, row.fence)).collect();
    for fenced in fenced.chunks(SETTLED_AT_ONCE) {
        expect_rows::<K, C>(queue.settle_many(connection, fenced, &change), fenced.len())?;
    }
    Ok(Reservation { text, until })
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

impl Iterator for Entities {
    type Item = ErasedEntity;

    fn next(&mut self) -> Option<ErasedEntity> {
        self.0.next()
    }
}

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
    row: &BatchRow<K>,
) -> QueryResult<Option<(ErasedEntity, BatchRow<K>)>> {
    let Some(Claimed { key, fence, message: Ok((entity, state)), mut details }) =
        queue.retake_if_claimable(connection, &row.key, row.fence)?
    else {
        return Ok(None);
    };
    details.lane = row.details.lane.clone();
    let idempotency_key = idempotency_key(key_prefix, &key, &details);
    let (tries, watch) = (row.tries, row.watch.clone());
    Ok(Some((entity, BatchRow { key, fence, before: fence, tries, state, details, idempotency_key, watch })))
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
