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
use crate::entity::Key;
use crate::row::RowKey;
use crate::statement::{Claimed, ErasedQueue, Scope};

/// The smallest number of keys in the first read: others may hold some of the rows.
const CANDIDATES: u32 = 16;

/// The factor by which the next read is larger if others hold all of them.
const MORE: u32 = 8;

/// Locks and reads the free row that has been due longest. Run it in a transaction.
pub fn claim_one<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    scope: Scope<'_, K>,
) -> QueryResult<Option<Claimed<K>>> {
    if scope.only.is_none()
        && !queue.is_claimed_by_key(scope)
        && scope.except.is_empty()
        && scope.is_plain::<C::Backend>(queue.sql.options)
    {
        return queue.claim(connection, scope);
    }
    Ok(claim_some(queue, connection, true, 1, scope)?.pop())
}

/// Reads up to `limit` rows in the same way, and locks them, if it `locks`.
pub fn claim_some<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    locks: bool,
    limit: u32,
    scope: Scope<'_, K>,
) -> QueryResult<Vec<Claimed<K>>> {
    let rows = match scope.only {
        Some(keys) => {
            let claim = queue.claim_all().in_stages(scope.stages).some(limit, Vec::new());
            let claim = claim.only(queue.rows(RowKey::values(keys)));
            (queue.load_claimed)(connection, &claim.locked(locks))?
        }
        None if locks && queue.is_claimed_by_key(scope) => {
            return claim_by_key(queue, connection, limit, scope, |_| Ok(()));
        }
        None => claim_in_turn(queue, connection, locks, limit, scope)?,
    };
    queue.claimed_within(connection, scope, rows)
}

/// Locks and reads up to `limit` of the free rows that have been due longest. If there are none, the first read shows
/// it. A row that turns out not to be due stays locked, unless `free` releases it.
pub(crate) fn claim_by_key<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    limit: u32,
    scope: Scope<'_, K>,
    free: impl Fn(&mut C) -> QueryResult<()>,
) -> QueryResult<Vec<Claimed<K>>> {
    let left_alone = u32::try_from(scope.except.len()).unwrap_or(u32::MAX);
    let mut number = limit.saturating_mul(2).max(CANDIDATES).saturating_add(left_alone);
    let mut passed: HashSet<_> = scope.except.iter().map(|key| key.text().clone()).collect();
    loop {
        let due = queue.due_keys(connection, number, scope.floor())?;
        let are_all = due.len() < number as usize;
        let keys: Vec<_> = due.into_iter().filter(|key| passed.insert(key.text().clone())).collect();
        // First the rows that have been due longest; if others hold them, any of the rest by one statement. But the
        // low-water mark follows the claimed rows, so a claim that uses the mark keeps the order in the rest too.
        let (mut rest, mut many) = (&keys[..], limit);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(many.max(1) as usize));
            let claimed = queue.claim_keys(connection, now, limit, scope)?;
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
pub(crate) fn in_order<K>(mut rows: Vec<Claimed<K>>, keys: &[RowKey<K>]) -> Vec<Claimed<K>> {
    if rows.len() > 1 {
        let places: HashMap<_, _> = keys.iter().enumerate().map(|(place, key)| (key.text(), place)).collect();
        rows.sort_by_key(|row| places.get(row.key.text()).copied().unwrap_or(usize::MAX));
    }
    rows
}

/// Releases a row that was found by its key and not claimed: InnoDB keeps its lock although the condition is false.
/// Otherwise nobody could change it as long as the handler of another row runs.
pub(crate) fn free_what_was_passed<C: QueueConnection>(connection: &mut C) -> QueryResult<()> {
    if C::Backend::LOCKS_WHAT_IT_PASSES {
        return connection.commit_and_begin();
    }
    Ok(())
}
