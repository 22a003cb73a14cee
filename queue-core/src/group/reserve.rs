//! Reserves a group's rows, if a handler's COMMIT could leave effects behind on rows that nobody has settled.
//!
//! A reservation writes every row once more, so a group makes it only if nothing else helps: before an optimistic
//! group, before a handler for the whole group uses the connection, and if a success leaves its table. Otherwise each
//! success is settled before the next handler runs. If the server [refuses such a
//! COMMIT](crate::backend::QueueBackend::REFUSES_COMMITS), no group is reserved.

use std::time::Duration;

use chrono::{SubsecRound, TimeDelta};

use super::end::{GroupEnd, GroupRow, Reservation};
use super::work::{SETTLED_AT_ONCE, expect_rows, undone};
use crate::backend::QueueConnection;
use crate::entity::Key;
use crate::row::{ErrorText, Instant, MAX_DELAY, RESERVING};
use crate::statement::{Change, ErasedQueue, Next};

/// How long reserved rows are not due after their group's timeout. In this time the worker writes what is left after a
/// handler's COMMIT, even if the database is away for a moment.
const RESERVED: Duration = Duration::from_secs(60);

/// Makes the rows due long after their group's timeout, and reserves them.
pub(crate) fn reserve<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    rows: &[GroupRow<K>],
    timeout: Duration,
) -> Result<Reservation, GroupEnd<K>> {
    let text = format!("{RESERVING}{:032x}", fastrand::u128(..));
    // One known time for all rows: a handler may make a row of its group due at another time, and the fence has to show
    // it.
    let until = reserved_until(queue.present(connection).map_err(undone::<K, C>)?, timeout);
    let change = Change { next: Some(Next::At(until)), error: ErrorText::Set(text.clone()), ..Change::default() };
    let fenced: Vec<_> = rows.iter().map(|row| (row.key.value(), row.fence)).collect();
    for fenced in fenced.chunks(SETTLED_AT_ONCE) {
        expect_rows::<K, C>(queue.settle_many(connection, fenced, &change), fenced.len())?;
    }
    Ok(Reservation { text, until })
}

/// Returns when reserved rows are due, in the milliseconds that every database keeps.
fn reserved_until(present: Instant, timeout: Duration) -> Instant {
    let delay = timeout.saturating_add(RESERVED).min(MAX_DELAY);
    let until = TimeDelta::from_std(delay).ok().and_then(|delay| present.checked_add_signed(delay));
    until.map_or(present, |until| Instant::from(until.trunc_subsecs(3)))
}
