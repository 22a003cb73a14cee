//! Claims the rows that come next: by the entity's order, those that have waited long, or the one at the head.

use std::any::TypeId;
use std::time::Duration;

use diesel::result::QueryResult;

use crate::backend::QueueConnection;
use crate::entity::{Entity, LeaseMode, QueueTable};
use crate::row::RowKey;
use crate::statement::{Claim, ClaimSome, ClaimedRow, QueueOn, Scope, locks_what_it_passes};

/// Claims the rows that come next, which are mostly the first ones by the entity's order.
pub(crate) fn claim_in_turn<Q, C>(
    connection: &mut C,
    locks: bool,
    limit: u32,
    scope: Scope<'_, Q::Key>,
) -> QueryResult<Vec<ClaimedRow<Q>>>
where
    C: QueueConnection,
    Q: QueueOn<C>,
{
    let claim = |limit| {
        let claim = Claim::new::<Q>()
            .in_stages(scope.stages)
            .some(limit, Q::rows(RowKey::values(scope.except)))
            .not_below(scope.floor());
        if locks { claim } else { claim.without_lock() }
    };
    if Q::Queue::OPTIONS.exclusive {
        let is_leased = TypeId::of::<Q::Mode>() == TypeId::of::<LeaseMode>();
        // Each in a statement of its own after the lock, so that it sees what the last holder of the lock has
        // committed.
        if !Q::exclude(connection)? || (is_leased && Q::another_is_leased(connection, None)?) {
            return Ok(Vec::new());
        }
        // By its key, so that no claim passes it. It may be locked, not due, or left alone by this process.
        return match Q::head(connection, scope.stages)? {
            Some(head) => Q::load_claimed(connection, &claim(1).only(Q::rows([head.value()]))),
            None => Ok(Vec::new()),
        };
    }
    let mut load = |claim: &dyn Fn(u32) -> ClaimSome<C::Backend>| match locks {
        true if locks_what_it_passes::<C::Backend, _>(&Q::Queue::OPTIONS, scope) => {
            claim_candidates::<Q, C>(connection, limit, claim)
        }
        _ => Q::load_claimed(connection, &claim(limit)),
    };
    if let Some(age) = aged_first::<Q>() {
        let aged: Vec<ClaimedRow<Q>> = load(&|limit| claim(limit).aged(age))?;
        if !aged.is_empty() {
            return Ok(aged);
        }
    }
    load(&claim)
}

/// One in so many claims of an entity with an age looks for aged rows first.
const AGED_ONE_IN: u8 = 8;

/// Returns the age whose rows come first in this claim, if any do.
pub(crate) fn aged_first<Q: Entity>() -> Option<Duration> {
    let age = Q::Queue::OPTIONS.order.and_then(|order| order.age);
    age.filter(|_| fastrand::u8(..AGED_ONE_IN) == 0)
}

/// The smallest number of keys in the first read: others may hold some of the rows.
const CANDIDATES: u32 = 16;

/// Claims rows whose keys it reads first, without a lock. A lock by the key locks one row alone, and the statement
/// checks the row again.
pub(super) fn claim_candidates<Q, C>(
    connection: &mut C,
    limit: u32,
    claim: impl Fn(u32) -> ClaimSome<C::Backend>,
) -> QueryResult<Vec<ClaimedRow<Q>>>
where
    C: QueueConnection,
    Q: QueueOn<C>,
{
    let mut read = limit.saturating_mul(2).max(CANDIDATES);
    loop {
        let candidates = Q::load_claimed(connection, &claim(read).without_lock())?;
        for rows in candidates.chunks(limit.max(1) as usize) {
            let mut keys = Vec::with_capacity(rows.len());
            for row in rows {
                keys.push(&row.0);
            }
            let claimed = Q::load_claimed(connection, &claim(limit).only(Q::rows(keys)))?;
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
