//! The reservation of a group's rows, where a handler's COMMIT could leave effects behind on rows that nobody has settled.
//!
//! It writes every row once more, so it is made where nothing else helps: before an optimistic group, before a handler for the
//! whole group uses the connection, and where a success leaves its table. Elsewhere each success is settled before the next
//! handler runs, and where the server [refuses such a COMMIT](crate::backend::QueueBackend::REFUSES_COMMITS), never.

use std::time::Duration;

use chrono::{SubsecRound, TimeDelta};

use super::end::{GroupEnd, GroupRow, Reservation};
use super::work::{SETTLED_AT_ONCE, expect_rows, undone};
use crate::backend::QueueConnection;
use crate::row::{ErrorText, Instant, MAX_DELAY, RESERVING};
use crate::statement::{Change, Next, QueueOn};

/// For how long beyond their group's timeout reserved rows are not due: for what is left to be written after a COMMIT of a
/// handler's, also while the database is away for a moment.
const RESERVED: Duration = Duration::from_secs(60);

/// Makes the rows due when their group's timeout is long over, and reserves them.
pub(crate) fn reserve<Q, C>(
    connection: &mut C,
    rows: &[GroupRow<Q::Key>],
    timeout: Duration,
) -> Result<Reservation, GroupEnd<Q::Key>>
where
    C: QueueConnection,
    Q: QueueOn<C>,
{
    let text = format!("{RESERVING}{:032x}", fastrand::u128(..));
    // One time for all, that is known: a handler may make a row of its group due at another one, and the fence has to tell.
    let until = reserved_until(Q::present(connection).map_err(undone::<Q, C>)?, timeout);
    let change = Change { next: Some(Next::At(until)), error: ErrorText::Set(text.clone()), ..Change::default() };
    let fenced: Vec<_> = rows.iter().map(|row| (row.key.value(), row.fence)).collect();
    for fenced in fenced.chunks(SETTLED_AT_ONCE) {
        expect_rows::<Q, C>(Q::settle_many(connection, fenced, &change), fenced.len())?;
    }
    Ok(Reservation { text, until })
}

/// When reserved rows are due, in the milliseconds that every database keeps.
fn reserved_until(present: Instant, timeout: Duration) -> Instant {
    let delay = timeout.saturating_add(RESERVED).min(MAX_DELAY);
    let until = TimeDelta::from_std(delay).ok().and_then(|delay| present.checked_add_signed(delay));
    until.map_or(present, |until| Instant::from(until.trunc_subsecs(3)))
}
