//! Claims rows: locks them and reads them, in one of the ways of [`ClaimWay`].

use std::time::Duration;

use chrono::TimeDelta;
use diesel::result::QueryResult;

use super::candidates::{check_passed, claim_by_key, claim_free};
use super::places::HeldPlaces;
use super::prefetch_keys::PrefetchedKeys;
use super::way::ClaimWay;
use crate::backend::{QueueConnection, execute};
use crate::entity::Key;
use crate::row::{Instant, Options};
use crate::statement::{Claimed, ClaimedRow, ErasedQueue, Scope, take};

/// One claim in this many looks for aged rows first, if the entity sets an age.
const AGED_ONE_IN: u8 = 8;

/// How a claim takes rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClaimTerms {
    /// How many rows it takes at most.
    pub(crate) limit: u32,
    /// Whether it can lock rows.
    pub(crate) locks: bool,
    /// Whether it may begin its transaction again, to free what it has locked in vain. A group cannot: its transaction
    /// refuses every commit but its own.
    pub(crate) begins_again: bool,
}

/// Claims rows, whatever the mode: lane by lane if the worker holds `places` in lanes, by prefetched keys if the rows are
/// claimed by keys, and else in the way that the queue's options allow. Run it in a transaction.
pub(crate) fn claim<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    places: Option<&HeldPlaces<'_, K, C>>,
    prefetched_keys: Option<&PrefetchedKeys<K>>,
    terms: ClaimTerms,
    scope: Scope<'_, K>,
) -> QueryResult<Vec<Claimed<K>>> {
    if let Some(places) = places {
        return places.claim(connection, terms, scope);
    }
    if let (true, Some(stages), None) = (scope.stages_apart, scope.stages, scope.only) {
        let (mut claimed, scope) = (Vec::new(), Scope { stages_apart: false, ..scope });
        for stage in stages.chunks(1) {
            let limit = terms.limit.saturating_sub(u32::try_from(claimed.len()).unwrap_or(u32::MAX));
            if limit > 0 {
                let (terms, scope) = (ClaimTerms { limit, ..terms }, Scope { stages: Some(stage), ..scope });
                claimed.extend(claim(queue, connection, places, prefetched_keys, terms, scope)?);
            }
        }
        return Ok(claimed);
    }
    match prefetched_keys {
        Some(keys) if ClaimWay::of::<C::Backend, K>(queue.sql.options, &scope) == ClaimWay::Keys => {
            keys.claim_some(queue, connection, terms.limit, scope)
        }
        _ if terms.locks && terms.limit == 1 => Ok(claim_one(queue, connection, scope)?.into_iter().collect()),
        _ => claim_some(queue, connection, terms.locks, terms.limit, scope),
    }
}

/// Locks and reads the free row that is next. Run it in a transaction.
pub fn claim_one<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    scope: Scope<'_, K>,
) -> QueryResult<Option<Claimed<K>>> {
    let options = queue.sql.options;
    let has_age = options.order.is_some_and(|order| order.age.is_some());
    // Then the one statement that is prepared once and for all always finds it.
    if ClaimWay::of::<C::Backend, K>(options, &scope) == ClaimWay::Index
        && !has_age
        && !scope.sorts
        && !options.is_scheduled()
        && scope.except.is_empty()
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
    let claim = |limit| queue.claim_of(scope, limit).locked(locks);
    let rows = match ClaimWay::of::<C::Backend, K>(queue.sql.options, &scope) {
        ClaimWay::Given => {
            let claim = queue.claim_all().in_stages(scope.stages).some(limit, Vec::new());
            let keys = queue.rows(scope.only.unwrap_or_default());
            (queue.load_claimed)(connection, &claim.only(keys).locked(locks))?
        }
        ClaimWay::Head => claim_head(queue, connection, locks, scope)?,
        ClaimWay::Keys if locks => return claim_by_key(queue, connection, limit, scope, |_| Ok(())),
        way => {
            let passes = locks && way == ClaimWay::Candidates;
            let aged = match aged_first(queue.sql.options) {
                Some(age) => claim_free(queue, connection, passes, limit, |limit| claim(limit).aged(age))?,
                None => Vec::new(),
            };
            if aged.is_empty() { claim_free(queue, connection, passes, limit, claim)? } else { aged }
        }
    };
    queue.claimed_within(connection, scope, rows)
}

/// Claims the row at the head of an exclusive queue, under the queue's lock.
fn claim_head<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    locks: bool,
    scope: Scope<'_, K>,
) -> QueryResult<Vec<ClaimedRow<K>>> {
    // Each in a statement of its own after the lock, so that it sees what the last holder of the lock has committed.
    if !queue.exclude(connection)? || (queue.is_leased() && queue.another_is_leased(connection, None)?) {
        return Ok(Vec::new());
    }
    let Some(head) = queue.head(connection, scope.stages)? else { return Ok(Vec::new()) };
    // By its key, so that no claim passes it. It may be locked, not due, or left alone by this process.
    let claim = queue.claim_of(scope, 1).only(queue.rows([&head]));
    let claimed = (queue.load_claimed)(connection, &claim.locked(locks))?;
    check_passed(queue, connection, &claimed, (claimed.is_empty()).then_some(&head))?;
    Ok(claimed)
}

/// Returns the age whose rows come first in this claim, if any do.
fn aged_first(options: &Options) -> Option<Duration> {
    let age = options.order.and_then(|order| order.age);
    age.filter(|_| fastrand::u8(..AGED_ONE_IN) == 0)
}

/// Takes due rows under a lease where a claim cannot pass over rows that others hold: an update first, then a select of the
/// rows that it has changed, which reads them as they are now. It returns none if another claim has drawn the same times.
pub(crate) fn update_then_select<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    lease: Duration,
    limit: u32,
    scope: Scope<'_, K>,
) -> QueryResult<(Instant, Vec<Claimed<K>>)> {
    let began = queue.present(connection)?;
    // SQLite's times differ by a millisecond at least, so the spread is at least that. A longer lease needs no more
    // than a second.
    let spread = u64::try_from((lease / 4).min(Duration::from_secs(1)).as_millis().max(1)).unwrap_or(1);
    let random = TimeDelta::microseconds(fastrand::i64(0..1000))
        + TimeDelta::milliseconds(fastrand::u64(..spread).cast_signed());
    let lease = TimeDelta::from_std(lease).unwrap_or(TimeDelta::MAX);
    let token = began.checked_add_signed(lease + random).map(Instant::from).unwrap_or(began);
    let excepted = queue.rows(scope.except);
    let due = || {
        let due = queue.claim_all().in_stages(scope.stages).some(limit, excepted.clone()).of_few(scope.sorts);
        // The low-water mark does not follow these claims, because they overwrite the rows' due times. So they begin behind
        // refused rows, and never at the mark.
        due.not_below(scope.claim_floor.and_then(|claim_floor| claim_floor.behind_refused()))
    };
    let mut update = |claim| execute(connection, &take(claim, began, token));
    let aged = aged_first(queue.sql.options).map_or(Ok(0), |age| update(due().aged(age)))?;
    let taken = if aged > 0 { aged } else { update(due())? };
    let mut rows = if taken == 0 { Vec::new() } else { queue.taken(connection, began, token)? };
    rows.truncate(if rows.len() == taken { taken } else { 0 });
    Ok((began, queue.with_details(connection, rows)?))
}
