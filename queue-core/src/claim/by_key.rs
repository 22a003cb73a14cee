//! Claims rows by their keys, for entities that claim by the due time alone. A claim reads the keys of the rows that
//! have been due longest without a lock, and then locks one row after the other by its key.
//!
//! A claim that walks InnoDB's index locks an entry before it sees that another session holds the row, and keeps that
//! lock. The other session has to change the entry to settle the row, and would wait until the handler of the passing
//! claim has ended. So no claim locks along the index while a handler runs.

use std::collections::{HashMap, HashSet};

use diesel::result::QueryResult;

use super::in_turn::claim_in_turn;
use crate::backend::{LockSql, QueueConnection};
use crate::entity::{Entity, QueueTable};
use crate::row::RowKey;
use crate::statement::{Claim, Claimed, QueueOn, Scope, claimed_within, is_plain};

/// The smallest number of keys in the first read: others may hold some of the rows.
const CANDIDATES: u32 = 16;

/// The factor by which the next read is larger if others hold all of them.
const MORE: u32 = 8;

/// Locks and reads the free row that has been due longest. Run it in a transaction.
pub fn claim_one<Q, C>(connection: &mut C, scope: Scope<'_, Q::Key>) -> QueryResult<Option<Claimed<Q>>>
where
    C: QueueConnection,
    Q: QueueOn<C>,
{
    if scope.only.is_none()
        && !Q::is_claimed_by_key(scope)
        && scope.except.is_empty()
        && is_plain::<C::Backend, _>(&Q::Queue::OPTIONS, scope)
    {
        return Q::claim(connection, scope);
    }
    Ok(claim_some::<Q, C>(connection, 1, scope)?.pop())
}

/// Locks and reads up to `limit` rows in the same way.
pub fn claim_some<Q, C>(connection: &mut C, limit: u32, scope: Scope<'_, Q::Key>) -> QueryResult<Vec<Claimed<Q>>>
where
    C: QueueConnection,
    Q: QueueOn<C>,
{
    if let Some(keys) = scope.only {
        return claim_only::<Q, C>(connection, true, limit, keys, scope);
    }
    if Q::is_claimed_by_key(scope) {
        return claim_by_key::<Q, C>(connection, limit, scope, |_| Ok(()));
    }
    let rows = claim_in_turn::<Q, C>(connection, true, limit, scope)?;
    claimed_within(connection, scope, rows)
}

/// Locks and reads up to `limit` of the rows with these keys.
fn claim_only<Q, C>(
    connection: &mut C,
    locks: bool,
    limit: u32,
    keys: &[RowKey<Q::Key>],
    scope: Scope<'_, Q::Key>,
) -> QueryResult<Vec<Claimed<Q>>>
where
    C: QueueConnection,
    Q: QueueOn<C>,
{
    let claim = Claim::new::<Q>().in_stages(scope.stages).some(limit, Vec::new()).only(Q::rows(RowKey::values(keys)));
    let rows = Q::load_claimed(connection, &if locks { claim } else { claim.without_lock() })?;
    claimed_within(connection, scope, rows)
}

/// Reads up to `limit` rows in the same way, without a lock.
pub(crate) fn peek<Q, C>(connection: &mut C, limit: u32, scope: Scope<'_, Q::Key>) -> QueryResult<Vec<Claimed<Q>>>
where
    C: QueueConnection,
    Q: QueueOn<C>,
{
    if let Some(keys) = scope.only {
        return claim_only::<Q, C>(connection, false, limit, keys, scope);
    }
    let rows = claim_in_turn::<Q, C>(connection, false, limit, scope)?;
    claimed_within(connection, scope, rows)
}

/// Locks and reads up to `limit` of the free rows that have been due longest. If there are none, the first read shows
/// it. A row that turns out not to be due stays locked, unless `free` releases it.
pub(crate) fn claim_by_key<Q, C>(
    connection: &mut C,
    limit: u32,
    scope: Scope<'_, Q::Key>,
    free: impl Fn(&mut C) -> QueryResult<()>,
) -> QueryResult<Vec<Claimed<Q>>>
where
    C: QueueConnection,
    Q: QueueOn<C>,
{
    let left_alone = u32::try_from(scope.except.len()).unwrap_or(u32::MAX);
    let mut number = limit.saturating_mul(2).max(CANDIDATES).saturating_add(left_alone);
    let mut passed = HashSet::new();
    for key in scope.except {
        passed.insert(key.text().clone());
    }
    loop {
        let due = Q::due_keys(connection, number, scope.floor())?;
        let are_all = due.len() < number as usize;
        let mut keys = Vec::with_capacity(due.len());
        for key in due {
            if passed.insert(key.text().clone()) {
                keys.push(key);
            }
        }
        // First the rows that have been due longest; if others hold them, any of the rest by one statement. But the
        // low-water mark follows the claimed rows, so a claim that uses the mark keeps the order in the rest too.
        let (mut rest, mut many) = (&keys[..], limit);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(many.max(1) as usize));
            let claimed = Q::claim_keys(connection, now, limit, scope)?;
            if !claimed.is_empty() {
                return Ok(in_order(claimed, now));
            }
            free(connection)?;
            (rest, many) = (later, if limit > 1 || scope.keeps_to_mark() { limit } else { CANDIDATES });
        }
        if are_all {
            scope.claim_floor.inspect(|claim_floor| claim_floor.is_answered());
            return Ok(Vec::new());
        }
        number = number.saturating_mul(MORE);
    }
}

/// Returns rows in the order in which their keys were read.
pub(crate) fn in_order<Q: Entity>(rows: Vec<Claimed<Q>>, keys: &[RowKey<Q::Key>]) -> Vec<Claimed<Q>> {
    if rows.len() < 2 {
        return rows;
    }
    // By the texts, and with loops: all of it is compiled anew for each entity.
    let mut read = HashMap::new();
    let mut rest = Vec::with_capacity(rows.len());
    for row in rows {
        read.insert(row.key.text().clone(), rest.len());
        rest.push(Some(row));
    }
    let mut ordered = Vec::with_capacity(rest.len());
    for key in keys {
        if let Some(place) = read.remove(key.text())
            && let Some(row) = rest[place].take()
        {
            ordered.push(row);
        }
    }
    for row in rest {
        let Some(row) = row else { continue };
        ordered.push(row);
    }
    ordered
}

/// Releases a row that was found by its key and not claimed: InnoDB keeps its lock although the condition is false.
/// Otherwise nobody could change it as long as the handler of another row runs.
pub(crate) fn free_what_was_passed<C: QueueConnection>(connection: &mut C) -> QueryResult<()> {
    if C::Backend::LOCKS_WHAT_IT_PASSES {
        return connection.commit_and_begin();
    }
    Ok(())
}
