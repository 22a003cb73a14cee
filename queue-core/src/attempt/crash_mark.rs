//! Strict crash accounting: the worker marks the row and commits the mark before the handler runs. It removes the mark
//! if the attempt ends without writing on the row.

use std::time::Duration;

use diesel::connection::TransactionManager;
use diesel::result::{Error as DieselError, QueryResult};

use super::attempt_error::AttemptError;
use super::plan::{DecodedMessage, Interruption, Plan, Remainder};
use super::served_queue::ServedQueue;
use super::settle_rules::tries_before;
use crate::backend::{ErrorClass, QueueConnection};
use crate::crash::{CrashMark, earlier};
use crate::entity::Key;
use crate::fault::fail_point;
use crate::handler::Failure;
use crate::row::{Details, ErrorText, Fence, QueueState, RowKey};
use crate::statement::{Change, Claimed, Next};

/// Marks the row, commits, and claims the row again in a new transaction.
pub(crate) fn mark_and_commit<K: Key, C: QueueConnection>(
    connection: &mut C,
    plan: &Plan<'_, K, C>,
    key: &RowKey<K>,
    claimed: &mut Fence,
    text: String,
    (state, details): (QueueState, &Details),
) -> Result<Checked, NotHandled> {
    let queue = plan.queue;
    // The row is not due for as long as the handler may run, so that nobody claims it between the two transactions.
    // After a crash it waits for that long.
    let change =
        Change { next: Some(Next::In(plan.info.timeout)), error: ErrorText::Set(text.clone()), ..Change::default() };
    let fence = *claimed;
    let before = state.last_attempt_error_message.clone().map_or(ErrorText::Clear, ErrorText::Set);
    let mark = CrashMark { text: text.clone(), before };
    match plan.write_and_commit(connection, key, fence, &change) {
        Ok(()) => *claimed = fence.at_any_time(),
        // The mark may be there. It would count as a crash, so it is removed before the row is given up.
        Err(error) if C::leaves_commit_in_doubt(&error) => {
            plan.slot.recorder().set_mark(mark);
            return Err(NotHandled::Unsettled(Remainder::Postpone(Interruption::of::<C>(&error))));
        }
        Err(error) if C::classify(&error) != ErrorClass::Other => return Err(NotHandled::Lost(error)),
        Err(error) => {
            let (failure, tries) = (Failure::retry(AttemptError::NotMarked(error)), tries_before(fence) + 1);
            let (settled, change) = plan.rules.after_failure(tries, &failure, details);
            return Err(NotHandled::Unsettled(Remainder::Record(settled, Box::new(change))));
        }
    }
    plan.slot.recorder().set_mark(mark);
    let retaken = connection.begin().and_then(|()| match is_still_its_turn(connection, plan, key)? {
        true => Ok(marked_so(queue.retake_if_claimable(connection, key, fence.at_any_time())?, &text)),
        false => Ok(None),
    });
    match retaken {
        // The entity as it is now, because the application may have changed it. The state as it was without the mark.
        Ok(Some(Claimed { message, fence: marked, .. })) => {
            claimed.due = marked.due;
            let kept = as_it_was(state.last_attempt_error_message.as_deref());
            Ok((message.map(|(entity, _)| (entity, state)), kept))
        }
        // Another session has stopped, resent or removed the row, or its condition no longer holds: nothing is left to
        // do here.
        Ok(None) => Err(NotHandled::Unsettled(Remainder::Leave)),
        Err(error) => Err(NotHandled::Unsettled(Remainder::Postpone(Interruption::of::<C>(&error)))),
    }
}

impl<K: Key, C: QueueConnection> ServedQueue<K, C> {
    /// Removes the mark from a row whose attempt ended without writing on it. The row is due afterwards.
    pub(super) fn unmark(
        &self,
        connection: &mut C,
        key: &RowKey<K>,
        fence: Fence,
        mark: &CrashMark,
    ) -> QueryResult<()> {
        let change = Change { next: Some(Next::In(Duration::ZERO)), error: mark.before.clone(), ..Change::default() };
        let fence = fence.at_any_time();
        connection.begin()?;
        let result = self.queue.retake(connection, key, fence).and_then(|retaken| {
            if marked_so(retaken, &mark.text).is_some() {
                self.queue.settle(connection, key, fence, &change)?;
            }
            C::TransactionManager::commit_transaction(connection)
        });
        if result.is_err() {
            // The caller closes a connection that stays in doubt.
            let _ = C::TransactionManager::rollback_transaction(connection);
        }
        result
    }

    /// Writes on the claimed row and commits.
    pub(super) fn write_and_commit(
        &self,
        connection: &mut C,
        key: &RowKey<K>,
        fence: Fence,
        change: &Change,
    ) -> QueryResult<()> {
        if self.queue.settle(connection, key, fence, change)? != 1 {
            return Err(DieselError::NotFound);
        }
        fail_point("marking");
        C::TransactionManager::commit_transaction(connection)
    }
}

/// Tells whether the row is still the one to process, in a queue that processes one row at a time, or whether it still has
/// its places. The lock may have ended with the transaction that wrote the mark, and another row may be first by now.
fn is_still_its_turn<K: Key, C: QueueConnection>(
    connection: &mut C,
    plan: &Plan<'_, K, C>,
    key: &RowKey<K>,
) -> QueryResult<bool> {
    let (queue, claim) = (plan.queue, &plan.claim);
    if !queue.sql.options.exclusive {
        return claim.places.map_or(Ok(true), |places| places.retake(connection));
    }
    Ok(queue.exclude(connection)? && queue.head(connection, claim.scope.stages)?.is_some_and(|head| head == *key))
}

/// Returns the row that was claimed again, if it still bears this mark.
fn marked_so<K>(retaken: Option<Claimed<K>>, mark: &str) -> Option<Claimed<K>> {
    retaken.filter(|claimed| match &claimed.message {
        Ok((_, state)) => state.last_attempt_error_message.as_deref() == Some(mark),
        // It was decoded a moment ago, so the application has changed it since, and the queue has not.
        Err(_) => true,
    })
}

/// A row to handle in the open transaction, and the error text to write if the outcome leaves it as it is.
pub(crate) type Checked = (DecodedMessage, ErrorText);

/// Why a claimed row is not handled.
pub(crate) enum NotHandled {
    /// The claim is given up. The row is due, and a worker that is alone in the process claims it.
    Suspect,
    /// The row was set aside.
    SetAside,
    /// The claim was lost to a database error.
    Lost(DieselError),
    /// The claim is given up, and something is left to do, as after an attempt.
    Unsettled(Remainder),
}

/// Returns the error text as it was before the row was suspected.
pub(crate) fn as_it_was(text: Option<&str>) -> ErrorText {
    earlier(text).map_or(ErrorText::Clear, |text| ErrorText::Set(text.to_owned()))
}
