//! Claims the rows that come next: by the entity's order, those that have waited long, or the one at the head.

use std::time::Duration;

use diesel::result::QueryResult;

use crate::backend::QueueConnection;
use crate::entity::Key;
use crate::row::Options;
use crate::statement::{ClaimSome, ClaimedRow, ErasedQueue, Scope};

/// Claims the rows that come next, which are mostly the first ones by the entity's order.
pub(crate) fn claim_in_turn<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    locks: bool,
    limit: u32,
    scope: Scope<'_, K>,
) -> QueryResult<Vec<ClaimedRow<K>>> {
    let claim = |limit| queue.claim_of(scope, limit).locked(locks);
    if queue.sql.options.exclusive {
        // Each in a statement of its own after the lock, so that it sees what the last holder of the lock has
        // committed.
        if !queue.exclude(connection)? || (queue.is_leased() && queue.another_is_leased(connection, None)?) {
            return Ok(Vec::new());
        }
        // By its key, so that no claim passes it. It may be locked, not due, or left alone by this process.
        return match queue.head(connection, scope.stages)? {
            Some(head) => (queue.load_claimed)(connection, &claim(1).only(queue.rows([head.value()]))),
            None => Ok(Vec::new()),
        };
    }
    let passes = locks && scope.locks_what_it_passes::<C::Backend>(queue.sql.options);
    if let Some(age) = aged_first(queue.sql.options) {
        let aged = claim_free(queue, connection, passes, limit, |limit| claim(limit).aged(age))?;
        if !aged.is_empty() {
            return Ok(aged);
        }
    }
    claim_free(queue, connection, passes, limit, claim)
}

/// One claim in this many looks for aged rows first, if the entity sets an age.
const AGED_ONE_IN: u8 = 8;

/// Returns the age whose rows come first in this claim, if any do.
pub(crate) fn aged_first(options: &Options) -> Option<Duration> {
    let age = options.order.and_then(|order| order.age);
    age.filter(|_| fastrand::u8(..AGED_ONE_IN) == 0)
}

/// The smallest number of keys in the first read: others may hold some of the rows.
const CANDIDATES: u32 = 16;

/// Claims up to `limit` rows. If the claim `passes` rows and would keep their locks, it reads keys first, without a lock. A
/// lock by the key locks one row alone, and the statement checks the row again.
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
    let mut read = limit.saturating_mul(2).max(CANDIDATES);
    loop {
        let candidates = (queue.load_claimed)(connection, &claim(read).locked(false))?;
        for rows in candidates.chunks(limit.max(1) as usize) {
            let claim = claim(limit).only(queue.rows(rows.iter().map(|row| &row.0)));
            let claimed = (queue.load_claimed)(connection, &claim)?;
            if !claimed.is_empty() {
                return Ok(claimed);
            }
        }
        if candidates.len() < read as usize {
            return Ok(Vec::new());
        }
        // Others hold all of them.
        read = read.saturating_mul(8);
    }
}
