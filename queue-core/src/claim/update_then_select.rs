//! Takes due rows under a lease where a claim cannot pass over rows that others hold: an update first, then a select of
//! the rows that it has changed.

use std::time::Duration;

use chrono::TimeDelta;
use diesel::result::QueryResult;

use super::in_turn::aged_first;
use crate::backend::{QueueConnection, execute};
use crate::entity::Key;
use crate::row::{Instant, RowKey};
use crate::statement::{Claimed, ErasedQueue, Scope, Take};

/// Takes rows, and reads them as they are now. `None`: another claim has drawn the same token.
pub(crate) fn update_then_select<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    lease: Duration,
    limit: u32,
    scope: Scope<'_, K>,
) -> QueryResult<Option<(Instant, Vec<Claimed<K>>)>> {
    let began = queue.present(connection)?;
    // SQLite's times differ by a millisecond at least, so the spread is at least that. A longer lease needs no more
    // than a second.
    let spread = u64::try_from((lease / 4).min(Duration::from_secs(1)).as_millis().max(1)).unwrap_or(1);
    let random = TimeDelta::microseconds(fastrand::i64(0..1000))
        + TimeDelta::milliseconds(fastrand::u64(..spread).cast_signed());
    let lease = TimeDelta::from_std(lease).unwrap_or(TimeDelta::MAX);
    let token = began.checked_add_signed(lease + random).map(Instant::from).unwrap_or(began);
    let excepted = queue.rows(RowKey::values(scope.except));
    let take = || Take::new(queue.sql, scope.stages, (began, token), limit, excepted.clone());
    let mut taken = 0;
    if let Some(age) = aged_first(queue.sql.options) {
        taken = execute(connection, &take().aged(age))?;
    }
    if taken == 0 {
        taken = execute(connection, &take())?;
    }
    if taken == 0 {
        return Ok(Some((began, Vec::new())));
    }
    let rows = queue.taken(connection, token)?;
    if rows.len() != taken {
        return Ok(None);
    }
    Ok(Some((began, queue.with_details(connection, rows)?)))
}
