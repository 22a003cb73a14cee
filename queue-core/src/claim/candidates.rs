//! Claims rows of which it reads candidates first, without a lock: a page of keys or rows, and a larger one if others hold
//! all of them. Each candidate is then locked by its key, and checked again under the lock.
//!
//! A claim that walks InnoDB's index locks an entry before it sees that another session holds the row, and keeps that
//! lock. The other session has to change the entry to settle the row, and would wait until the handler of the passing
//! claim has ended. So no claim locks along the index while a handler runs.

use std::collections::{HashMap, HashSet};

use diesel::result::QueryResult;

use crate::backend::{Dialect, QueueConnection};
use crate::entity::Key;
use crate::row::RowKey;
use crate::statement::{ClaimSome, Claimed, ClaimedRow, ErasedQueue, Scope};
use crate::sync::in_test::is_in_turn;

/// The smallest number of candidates on the first page: others may hold some of the rows.
const FIRST_PAGE: u32 = 16;

/// How many claims that have taken other rows look up those that they have passed over once.
const PASSED_LOOKED_UP_ONE_IN: u8 = 64;

/// The factor by which the next page is larger if others hold all of them.
const PAGE_GROWTH: u32 = 8;

/// Reads pages of candidates, of which the first has at least `first`, until a claim takes rows of one or the last is read.
fn claim_from_pages<C, Candidate, Row>(
    connection: &mut C,
    first: u32,
    read: impl Fn(&mut C, u32) -> QueryResult<Vec<Candidate>>,
    mut claim: impl FnMut(&mut C, Vec<Candidate>) -> QueryResult<Vec<Row>>,
) -> QueryResult<Vec<Row>> {
    let mut number = first;
    loop {
        let page = read(connection, number)?;
        let is_last = page.len() < number as usize;
        let claimed = claim(connection, page)?;
        if is_last || !claimed.is_empty() {
            return Ok(claimed);
        }
        number = number.saturating_mul(PAGE_GROWTH);
    }
}

/// Returns the smallest number of candidates on the first page of a claim of so many rows.
fn first_page(limit: u32) -> u32 {
    limit.saturating_mul(2).max(FIRST_PAGE)
}

/// Locks and reads up to `limit` of the free rows that have been due longest, for entities that claim by the due time alone.
/// If there are none, the first page shows it. A row that turns out not to be due stays locked, unless `free` releases it.
pub(super) fn claim_by_key<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    limit: u32,
    scope: Scope<'_, K>,
    free: impl Fn(&mut C) -> QueryResult<()>,
) -> QueryResult<Vec<Claimed<K>>> {
    let left_alone = u32::try_from(scope.except.len()).unwrap_or(u32::MAX);
    let mut passed: HashSet<_> = scope.except.iter().map(|key| key.text().clone()).collect();
    let mut not_locked = Vec::new();
    let read = |connection: &mut C, number| queue.due_keys(connection, number, scope.floor());
    let claimed =
        claim_from_pages(connection, first_page(limit).saturating_add(left_alone), read, |connection, due| {
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
                not_locked.extend_from_slice(now);
                free(connection)?;
                (rest, many) = (later, if limit > 1 || scope.keeps_to_mark() { limit } else { FIRST_PAGE });
            }
            Ok(Vec::new())
        })?;
    if claimed.is_empty() {
        scope.claim_floor.inspect(|claim_floor| claim_floor.note_answer());
    }
    check_passed(queue, connection, &claimed, &not_locked)?;
    Ok(claimed)
}

/// Returns an error if a claim has passed over rows because their keys do not find them. Mostly others hold the rows, so it
/// looks always only if the claim has taken nothing else.
pub(super) fn check_passed<'k, K: Key, C: QueueConnection, Row>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    claimed: &[Row],
    passed: impl IntoIterator<Item = &'k RowKey<K>>,
) -> QueryResult<()> {
    if claimed.is_empty() || fastrand::u8(..PASSED_LOOKED_UP_ONE_IN) == 0 {
        queue.expect_found(connection, passed)?;
    }
    Ok(())
}

/// Claims up to `limit` rows. If the claim `passes` rows and would keep their locks, it reads candidates first. A lock by
/// the key locks one row alone.
pub(super) fn claim_free<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    passes: bool,
    limit: u32,
    claim: impl Fn(u32) -> ClaimSome<C::Backend>,
) -> QueryResult<Vec<ClaimedRow<K>>> {
    if !passes {
        return (queue.load_claimed)(connection, &claim(limit));
    }
    let read = |connection: &mut C, number| (queue.load_claimed)(connection, &claim(number).locked(false));
    let mut not_locked = Vec::new();
    let claimed = claim_from_pages(connection, first_page(limit), read, |connection, candidates| {
        let keys: Vec<_> = candidates.into_iter().map(|row| queue.claimed_key(row)).collect();
        for keys in keys.chunks(limit.max(1) as usize) {
            let claim = claim(limit).only(queue.rows(keys));
            let claimed = (queue.load_claimed)(connection, &claim)?;
            if !claimed.is_empty() {
                return Ok(claimed);
            }
            not_locked.extend_from_slice(keys);
        }
        Ok(Vec::new())
    })?;
    check_passed(queue, connection, &claimed, &not_locked)?;
    Ok(claimed)
}

/// Returns rows in the order in which their keys were read.
pub(super) fn in_order<K>(mut rows: Vec<Claimed<K>>, keys: &[RowKey<K>]) -> Vec<Claimed<K>> {
    if rows.len() > 1 {
        let places: HashMap<_, _> = keys.iter().enumerate().map(|(place, key)| (key.text(), place)).collect();
        rows.sort_by_key(|row| places.get(row.key.text()).copied().unwrap_or(usize::MAX));
    }
    rows
}

/// Releases a row that was found by its key and not claimed: InnoDB keeps its lock although the condition is false.
/// Otherwise no session could change it as long as the handler of another row runs.
pub(super) fn free_what_was_passed<C: QueueConnection>(connection: &mut C) -> QueryResult<()> {
    // Not in a test, whose transaction it may be.
    if C::Backend::LOCKS_WHAT_IT_PASSES && !is_in_turn() {
        return connection.commit_and_begin();
    }
    Ok(())
}
