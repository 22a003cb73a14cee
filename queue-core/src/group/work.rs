//! A group in its transaction, and how its writes are checked.

use std::time::{Duration, Instant};

use diesel::result::{Error as DieselError, QueryResult};

use super::end::{Decided, GroupEnd, Mark, Why};
use crate::attempt::{Plan, is_interruption};
use crate::backend::{QueueConnection, Session};
use crate::entity::Entity;
use crate::row::Settled;
use crate::statement::QueueOn;

/// How long a statement of a group waits for a lock at most: shorter than it takes PostgreSQL to look for a deadlock. A
/// group holds many locks for long, so one that has to wait had better go one by one. MySQL makes a second of it.
const LOCK_WAIT: Duration = Duration::from_millis(250);

/// How many rows one statement settles: SQLite takes expressions of 1000 levels, and every `OR` is one.
pub(crate) const SETTLED_AT_ONCE: usize = 400;

pub(crate) fn lock_wait<C: QueueConnection>(session: &Session<C>) -> Duration {
    session.lock_wait().min(LOCK_WAIT)
}

/// A group in its transaction.
pub(crate) struct Work<'a, Q: Entity, C: QueueConnection> {
    pub(crate) session: &'a mut Session<C>,
    pub(crate) plan: &'a Plan<'a, Q, C>,
    pub(crate) goes_on: &'a dyn Fn() -> bool,
    pub(crate) started: Instant,
    pub(crate) mark: Option<Mark>,
    /// Whether each success is settled before the next handler runs.
    pub(crate) settles_in_turn: bool,
    pub(crate) begun: usize,
    pub(crate) decided: Vec<Decided<Q::Key>>,
    pub(crate) session_is_sound: bool,
    pub(crate) remark: Option<String>,
}

/// The end of a group after an error of a statement that was not the handlers'.
pub(crate) fn undone<Q: Entity, C: QueueConnection>(error: DieselError) -> GroupEnd<Q::Key> {
    let cause = error.to_string();
    GroupEnd::Undone(if is_interruption::<C>(&error) { Why::Conflict(cause) } else { Why::Alone(cause) })
}

/// Writes what became of one row: fenced, and exactly one row.
pub(crate) fn write<Q: QueueOn<C>, C: QueueConnection>(
    connection: &mut C,
    row: &Decided<Q::Key>,
) -> Result<(), GroupEnd<Q::Key>> {
    let written = match row.settled {
        Settled::Deleted => Q::remove(connection, &row.key, row.fence),
        _ => Q::settle(connection, &row.key, row.fence, &row.change),
    };
    expect_rows::<Q, C>(written, 1)
}

/// A row that cannot be written, or that its handler has changed, is found out when it runs alone.
pub(crate) fn expect_rows<Q: Entity, C: QueueConnection>(
    written: QueryResult<usize>,
    expected: usize,
) -> Result<(), GroupEnd<Q::Key>> {
    match written {
        Ok(rows) if rows == expected => Ok(()),
        Ok(rows) => Err(GroupEnd::Undone(Why::Alone(format!("{rows} rows were settled instead of {expected}")))),
        Err(error) => Err(undone::<Q, C>(error)),
    }
}

pub(crate) type Handled<Q> = Result<(), GroupEnd<<Q as Entity>::Key>>;

pub(crate) fn conflict<C: QueueConnection>(error: &DieselError) -> Option<Why> {
    is_interruption::<C>(error).then(|| Why::Conflict(error.to_string()))
}
