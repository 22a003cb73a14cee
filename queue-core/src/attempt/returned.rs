//! Whether a claimed row has come back as it was when its last attempt began, although its new state was committed: a trigger
//! puts the old values back.

use std::borrow::Borrow;

use diesel::result::QueryResult;

use super::plan::{BoxedError, Plan};
use super::settle_rules::tries_before;
use crate::backend::QueueConnection;
use crate::claim::{ClaimedAs, KeptRows};
use crate::entity::Entity;
use crate::handler::{Failure, Outcome};
use crate::row::{Details, Fence, QueueState, RowKey, Settlement};
use crate::statement::QueueOn;

/// The row as it was claimed, where it is to be known again.
pub(super) fn claimed_as<'p, Q: Entity, C>(
    plan: &Plan<'p, Q, C>,
    key: &RowKey<Q::Key>,
    message: &Result<impl Borrow<(Q, QueueState)>, BoxedError>,
) -> Option<(&'p KeptRows, ClaimedAs)> {
    let (rows, message) = (plan.kept_rows?, message.as_ref().ok()?);
    Some((rows, rows.claimed_as(key, &message.borrow().1)))
}

/// How often the row came back before, if it has come back as it was when its last attempt began.
pub(super) fn has_returned<Q, C>(
    connection: &mut C,
    plan: &Plan<'_, Q, C>,
    key: &RowKey<Q::Key>,
    fence: Fence,
    details: &Details,
    claimed_as: Option<(&KeptRows, ClaimedAs)>,
) -> QueryResult<Option<u32>>
where
    C: QueueConnection,
    Q: QueueOn<C>,
{
    let Some((rows, claimed)) = claimed_as else { return Ok(None) };
    let Some(times) = rows.take_returned(claimed) else { return Ok(None) };
    if KeptRows::are_certain::<C>() || puts_old_values_back(connection, plan, key, fence, details)? {
        return Ok(Some(times));
    }
    rows.forget(claimed);
    Ok(None)
}

/// Whether a trigger puts the old values back of this row, which is locked, when it is settled. What is tried is undone.
fn puts_old_values_back<Q, C>(
    connection: &mut C,
    plan: &Plan<'_, Q, C>,
    key: &RowKey<Q::Key>,
    fence: Fence,
    details: &Details,
) -> QueryResult<bool>
where
    C: QueueConnection,
    Q: QueueOn<C>,
{
    let tries = tries_before(fence) + 1;
    let answers = [
        plan.rules.after_outcome(fence, tries, Outcome::Done, details),
        plan.rules.after_failure(tries, &Failure::retry("a trial"), details),
    ];
    for (settled, change) in answers {
        if settled == Settlement::Deleted {
            continue;
        }
        connection.batch_execute("SAVEPOINT queueable_trial")?;
        let written = Q::settle(connection, key, fence, &change);
        let is_kept = matches!(written, Ok(1)) && Q::is_still(connection, key, fence)?;
        connection.batch_execute("ROLLBACK TO SAVEPOINT queueable_trial; RELEASE SAVEPOINT queueable_trial")?;
        if is_kept {
            return Ok(true);
        }
    }
    Ok(false)
}
