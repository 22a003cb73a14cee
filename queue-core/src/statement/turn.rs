//! Claims the rows whose turn it is: by the entity's order, those that have waited long, or the one at the head.

use std::any::TypeId;
use std::time::Duration;

use diesel::RunQueryDsl;
use diesel::Selectable;
use diesel::query_dsl::methods::LoadQuery;
use diesel::result::QueryResult;

use super::QueueOn;
use super::claim::{Claim, ClaimSome, ClaimedRow};
use super::scope::Scope;
use crate::backend::{QueueBackend, QueueConnection};
use crate::entity::{QueueTable, Queueable};
use crate::mode::LeaseMode;
use crate::options::Options;

/// Claims the rows whose turn it is: mostly the first ones by the entity's order.
pub(super) fn claim_in_turn<Q, C>(
    connection: &mut C,
    locks: bool,
    limit: u32,
    scope: Scope<'_, Q::Key>,
) -> QueryResult<Vec<ClaimedRow<Q>>>
where
    C: QueueConnection,
    Q: QueueOn<C> + Selectable<C::Backend>,
    ClaimSome<Q, C::Backend>: for<'q> LoadQuery<'q, C, ClaimedRow<Q>>,
{
    let claim = |limit| {
        let claim =
            Claim::<Q, C::Backend>::new().in_stages(scope.stages).some(limit, scope.except).not_below(scope.floor());
        if locks { claim } else { claim.without_lock() }
    };
    if Q::Queue::OPTIONS.exclusive {
        let is_leased = TypeId::of::<Q::Mode>() == TypeId::of::<LeaseMode>();
        // Each in a statement of its own after the lock: it sees what the last holder has committed.
        if !Q::exclude(connection)? || (is_leased && Q::another_is_leased(connection, None)?) {
            return Ok(Vec::new());
        }
        // By its key, so that nobody passes it: it may be locked, or not due, or left alone by this process.
        return match Q::head(connection, scope.stages)? {
            Some(head) => claim(1).only([&head]).load(connection),
            None => Ok(Vec::new()),
        };
    }
    let mut load = |claim: &dyn Fn(u32) -> ClaimSome<Q, C::Backend>| match locks {
        true if locks_what_it_passes::<Q, C::Backend>(scope) => claim_candidates(connection, limit, claim),
        _ => claim(limit).load(connection),
    };
    if let Some(age) = aged_first::<Q>() {
        let aged: Vec<ClaimedRow<Q>> = load(&|limit| claim(limit).aged(age))?;
        if !aged.is_empty() {
            return Ok(aged);
        }
    }
    load(&claim)
}

/// In how many claims of an entity with an age one looks for aged rows first.
const AGED_ONE_IN: u8 = 8;

/// The age whose rows come first in this claim, if any do.
pub(super) fn aged_first<Q: Queueable>() -> Option<Duration> {
    let age = Q::Queue::OPTIONS.order.and_then(|order| order.age);
    age.filter(|_| fastrand::u8(..AGED_ONE_IN) == 0)
}

/// Whether the next row is always found by the one statement that is prepared once and for all.
pub(super) fn is_plain<Q: Queueable, DB: QueueBackend>(scope: Scope<'_, Q::Key>) -> bool {
    let Options { order, exclusive, .. } = Q::Queue::OPTIONS;
    !exclusive && order.is_none_or(|order| order.age.is_none()) && !locks_what_it_passes::<Q, DB>(scope)
}

/// Whether the due time alone decides whose turn it is.
pub(super) fn due_time_alone_decides<Q: Queueable>(scope: Scope<'_, Q::Key>) -> bool {
    let Options { order, guarded, exclusive, .. } = Q::Queue::OPTIONS;
    order.is_none() && !guarded && !exclusive && scope.stages.is_none()
}

/// Whether a claim may pass rows that it does not want, and would keep their locks.
fn locks_what_it_passes<Q: Queueable, DB: QueueBackend>(scope: Scope<'_, Q::Key>) -> bool {
    let Options { order, guarded, .. } = Q::Queue::OPTIONS;
    DB::LOCKS_WHAT_IT_PASSES && (guarded || order.is_some() || scope.stages.is_some())
}

/// How many keys are read at first, of which one is claimed: others may hold those of some.
const CANDIDATES: u32 = 16;

/// Claims rows whose keys are read first, without a lock: by its key a row is locked alone, and judged again.
fn claim_candidates<Q, C>(
    connection: &mut C,
    limit: u32,
    claim: impl Fn(u32) -> ClaimSome<Q, C::Backend>,
) -> QueryResult<Vec<ClaimedRow<Q>>>
where
    C: QueueConnection,
    Q: QueueOn<C> + Selectable<C::Backend>,
    ClaimSome<Q, C::Backend>: for<'q> LoadQuery<'q, C, ClaimedRow<Q>>,
{
    let mut read = limit.saturating_mul(2).max(CANDIDATES);
    loop {
        let candidates: Vec<ClaimedRow<Q>> = claim(read).without_lock().load(connection)?;
        let keys: Vec<_> = candidates.iter().map(|row| &row.0).collect();
        for keys in keys.chunks(limit.max(1) as usize) {
            let claimed: Vec<ClaimedRow<Q>> = claim(limit).only(keys.iter().copied()).load(connection)?;
            if !claimed.is_empty() {
                return Ok(claimed);
            }
        }
        if keys.len() < read as usize {
            return Ok(Vec::new());
        }
        // Others hold them all.
        read = read.saturating_mul(8);
    }
}

pub(super) fn first<T>(rows: Vec<T>) -> Option<T> {
    rows.into_iter().next()
}
