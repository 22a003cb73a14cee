//! A row on which the database refuses to write, for a constraint or a trigger: whether it is the row's own matter, and what
//! can be noted on it all the same.

use std::time::Duration;

use diesel::result::{Error as DieselError, QueryResult};

use super::conclusion::Conclusion;
use super::in_transaction::in_transaction;
use super::plan::UnsettledRow;
use super::turn::Turn;
use crate::backend::{ErrorClass, QueueConnection};
use crate::claim::RefusedRows;
use crate::entity::Entity;
use crate::log::RateLimitedLog;
use crate::row::{ErrorText, Fence};
use crate::statement::{Change, Next, QueueOn, Scope};

/// What is said of a row that stays as it is although no error comes of writing on it.
pub(crate) const KEPT: &str = "a trigger keeps it from changing";

/// Whether the database has refused what was to be written, and may refuse it for this row alone.
pub(crate) fn is_refusal<C: QueueConnection>(error: &DieselError) -> bool {
    matches!(error, DieselError::DatabaseError(..)) && C::classify(error) == ErrorClass::Other
}

/// Notes on the row what the database allows of this: that it waits, and why. An error: the database refuses that of any row,
/// so it is no matter of this one.
pub(crate) fn note_refusal<Q, C>(
    connection: &mut C,
    row: &UnsettledRow<Q::Key>,
    text: &ErrorText,
    pause: Duration,
) -> QueryResult<Conclusion>
where
    C: QueueConnection,
    Q: QueueOn<C>,
{
    let mut texts = vec![ErrorText::Keep];
    if *text != ErrorText::Keep {
        texts.insert(0, text.clone());
    }
    for error in texts {
        let change = Change { next: Some(Next::In(pause)), error, ..Change::default() };
        match in_transaction(connection, |connection| Q::settle_anew(connection, &row.key, row.fence, &change)) {
            Ok(1) => return Ok(Conclusion::Refused { is_noted: true }),
            Ok(_) => return kept_or_overtaken::<Q, C>(connection, row),
            Err(error) if is_refusal::<C>(&error) => {}
            Err(error) => return Err(error),
        }
    }
    try_writing::<Q, C>(connection, &row.key, row.fence)?;
    Ok(Conclusion::Refused { is_noted: false })
}

/// Writes on no row at all: an error says that the right to write is missing, or a column.
pub(crate) fn try_writing<Q, C>(connection: &mut C, key: &Q::Key, fence: Fence) -> QueryResult<()>
where
    C: QueueConnection,
    Q: QueueOn<C>,
{
    let change = Change { next: Some(Next::In(Duration::ZERO)), ..Change::default() };
    in_transaction(connection, |connection| Q::settle_anew(connection, key, nowhere(fence), &change)).map(drop)
}

/// A state in which no row is.
pub(crate) fn nowhere(fence: Fence) -> Fence {
    Fence { try_count: i32::MIN, ..fence }
}

/// Leaves a row alone for a while on which the database refuses to write, and says so once. `is_noted`: the row says it too.
pub(crate) fn leave_alone<Q: Entity>(
    refused_rows: &RefusedRows<Q::Key>,
    log: &RateLimitedLog,
    row: &UnsettledRow<Q::Key>,
    cause: &str,
    is_noted: bool,
) -> Turn {
    let UnsettledRow { key, due, .. } = row;
    let refusal = refused_rows.refuse::<Q>(key, *due, 0);
    if refusal.is_first && !is_noted {
        let cause = log.redacted(cause);
        tracing::warn!(
            entity = Q::ENTITY,
            ?key,
            "the database refuses to write on a row, which is tried again after pauses of up to an hour: {cause}"
        );
    }
    if refusal.is_left_alone { Turn::Refused } else { Turn::Trouble }
}

/// Leaves a row alone that came back as it was although its state was written, and came back so many times before.
pub(crate) fn leave_kept_alone<Q: Entity>(
    refused_rows: &RefusedRows<Q::Key>,
    row: &UnsettledRow<Q::Key>,
    times: u32,
) -> Turn {
    let UnsettledRow { key, due, .. } = row;
    let refusal = refused_rows.refuse::<Q>(key, *due, times);
    if times == 0 {
        tracing::warn!(
            entity = Q::ENTITY,
            ?key,
            "a row has come back as it was when its attempt began, which was committed, so that its effects may come twice: a \
             trigger puts the old values back; the row is tried again after pauses of up to an hour"
        );
    }
    if refusal.is_left_alone { Turn::Refused } else { Turn::Trouble }
}

/// What it means that a write has found no row: the row is still due as it was claimed, so that a trigger keeps it, or somebody
/// else was faster.
pub(crate) fn kept_or_overtaken<Q, C>(connection: &mut C, row: &UnsettledRow<Q::Key>) -> QueryResult<Conclusion>
where
    C: QueueConnection,
    Q: QueueOn<C>,
{
    let key = std::slice::from_ref(&row.key);
    let found = in_transaction(connection, |connection| Q::claim_keys(connection, key, 1, Scope::ALL))?;
    let is_as_claimed =
        |found: Fence| found.reads_as(row.fence) && (row.fence.due.is_none() || found.due == row.fence.due);
    let is_kept = found.first().is_some_and(|found| is_as_claimed(found.fence));
    Ok(if is_kept { Conclusion::Kept } else { Conclusion::Overtaken })
}
