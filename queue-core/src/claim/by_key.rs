//! Claims rows by their keys, where the due time alone decides whose turn it is: the keys of those that are due longest are
//! read without a lock, and one row after the other is locked by its key.
//!
//! A claim that walks InnoDB's index locks an entry before it finds out that somebody holds its row, and keeps that lock. Whoever
//! holds the row has to change the entry to settle it, and would wait until the handler of the passing claim has ended. So
//! nobody locks along the index while a handler runs.

use std::collections::{HashMap, HashSet};

use diesel::result::QueryResult;

use super::in_turn::claim_in_turn;
use crate::backend::{LockSql, QueueConnection};
use crate::entity::Entity;
use crate::row::RowKey;
use crate::statement::{Claim, Claimed, QueueOn, Scope, claimed_within, is_plain};

/// How many keys are read at first, at least: others may hold the rows of some.
const CANDIDATES: u32 = 16;

/// How many times as many are read if others hold them all.
const MORE: u32 = 8;

/// Locks and reads the row whose turn it is and that nobody holds. It belongs into a transaction.
pub fn claim_one<Q, C>(connection: &mut C, scope: Scope<'_, Q::Key>) -> QueryResult<Option<Claimed<Q>>>
where
    C: QueueConnection,
    Q: QueueOn<C>,
{
    if scope.only.is_none()
        && !Q::is_claimed_by_key(scope)
        && scope.except.is_empty()
        && is_plain::<Q, C::Backend>(scope)
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
    let claim = Claim::<Q, C::Backend>::new().in_stages(scope.stages).some(limit, []).only(RowKey::values(keys));
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

/// Locks and reads up to `limit` rows that are due longest and that nobody holds. If there are none, that is told by the
/// first reading. Of a row that turned out not to be due the lock is kept, unless `free` lets it go.
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
    let mut passed: HashSet<_> = scope.except.iter().map(|key| key.text().clone()).collect();
    loop {
        let mut keys = Q::due_keys(connection, number, scope.floor())?;
        let are_all = keys.len() < number as usize;
        keys.retain(|key| passed.insert(key.text().clone()));
        // First those that are due longest; if others hold them, any of the rest by one statement. But the mark follows what is
        // claimed: where claims keep to it, their order is kept as well.
        let first = keys.len().min(limit.max(1) as usize);
        let (first, rest) = keys.split_at(first);
        let many = if limit > 1 || scope.keeps_to_mark() { limit } else { CANDIDATES };
        for keys in std::iter::once(first).chain(rest.chunks(many.max(1) as usize)).filter(|keys| !keys.is_empty()) {
            let mut claimed = Q::claim_keys(connection, keys, limit, scope)?;
            if !claimed.is_empty() {
                put_in_order(&mut claimed, keys);
                return Ok(claimed);
            }
            free(connection)?;
        }
        if are_all {
            scope.claim_floor.inspect(|claim_floor| claim_floor.is_answered());
            return Ok(Vec::new());
        }
        number = number.saturating_mul(MORE);
    }
}

/// Puts rows into the order of their keys as they were read.
pub(crate) fn put_in_order<Q: Entity>(rows: &mut [Claimed<Q>], keys: &[RowKey<Q::Key>]) {
    if rows.len() > 1 {
        let places: HashMap<_, _> = keys.iter().enumerate().map(|(place, key)| (key, place)).collect();
        rows.sort_by_cached_key(|row| places.get(&row.key).copied());
    }
}

/// Frees the row that was found by its key and is not claimed: InnoDB keeps its lock where the condition is false. Nobody
/// could change it as long as the handler of another one runs.
pub(crate) fn free_what_was_passed<C: QueueConnection>(connection: &mut C) -> QueryResult<()> {
    if C::Backend::LOCKS_WHAT_IT_PASSES {
        return connection.commit_and_begin();
    }
    Ok(())
}
