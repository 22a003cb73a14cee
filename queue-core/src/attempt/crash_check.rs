//! What a worker does with a claimed row that has ended its process, or may have.
//!
//! The worker marks a row that may end the process, and commits the mark before the handler runs. It removes the mark if the
//! attempt ends without writing on the row.

use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::connection::TransactionManager;
use diesel::result::{Error as DieselError, QueryResult};

use super::begin::{DecodedMessage, Plan};
use super::conclude::postponed;
use super::ended::{AttemptError, Attempted, End, Interruption, NewState, Rest, Turn, UnsettledRow};
use super::served_queue::{ServedQueue, in_transaction};
use super::settle_rules::{stored, tries_before};
use super::slot::Slot;
use crate::backend::{ErrorClass, QueueConnection, SessionHolder};
use crate::crash::{CrashAction, CrashMark, as_it_was};
use crate::entity::Key;
use crate::handler::{Failure, drop_safely};
use crate::row::{Details, ErrorText, Fence, QueueState, RowKey, STOPPED, Settlement, Status};
use crate::statement::{Change, Claimed, Next};
use crate::sync::{ErasedEntity, fail_point};

/// How long a marked row is not due at least and at most, so that nobody claims it between the two transactions. Then the row's lock
/// keeps it. After a crash the row waits for this long: for its timeout within these. A guess: a busy machine may take a second.
const MARK_HOLDS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// A row to handle in the open transaction, and the error text to write if the outcome leaves it as it is.
type Checked = (DecodedMessage, ErrorText);

/// Does this with the row before its handler runs. A mark may make the row due later, and the row's fence follows it.
/// The error is the end of an attempt whose handler does not run.
pub(crate) fn act_on_crashes<K: Key, C: QueueConnection>(
    connection: &mut C,
    plan: &Plan<'_, K, C>,
    row: &mut UnsettledRow<K>,
    (entity, state): (ErasedEntity, QueueState),
    action: CrashAction,
) -> Result<Checked, Attempted<K>> {
    match action {
        CrashAction::Handle(kept) => Ok((Ok((entity, state)), kept)),
        CrashAction::ComeBackAlone => {
            drop_safely(entity);
            Err(match C::TransactionManager::rollback_transaction(connection) {
                Ok(()) => come_back_alone(plan, row),
                Err(error) => Attempted::lost(End::NotClaimed(error)),
            })
        }
        CrashAction::SetAside(text) => {
            drop_safely(entity);
            let new = NewState { settled: Settlement::Failed, change: failed_by_crashes(row.fence, text) };
            Err(match plan.served.write_and_commit(connection, row, &new.change) {
                Ok(()) => {
                    plan.served.rules.teller.tell_settled(&row.key, &new, &row.watch);
                    Attempted::sound(plan.end_settled(row, Settlement::Failed))
                }
                Err(error) if C::classify(&error) != ErrorClass::Other => Attempted::lost(End::NotClaimed(error)),
                // The failure is recorded again, in a plainer text, or the row is passed over.
                Err(_) => unsettled(row, Rest::record(new)),
            })
        }
        CrashAction::MarkAndHandle(mark) => {
            drop_safely(entity);
            mark_and_commit(connection, plan, row, mark, state)
        }
    }
}

/// Returns the end of an attempt whose row waits for a worker that is alone in the process.
fn come_back_alone<K: Key, C: QueueConnection>(plan: &Plan<'_, K, C>, row: &UnsettledRow<K>) -> Attempted<K> {
    if let (Some(places), Some(lane)) = (plan.claim.places, &row.details.lane) {
        // The worker claims again, alone, and finds the row only in this lane.
        places.put_next(lane);
    }
    Attempted::sound(End::Known(Turn::Suspect))
}

/// Returns the new state of a row whose handler has ended the process too often.
fn failed_by_crashes(fence: Fence, text: String) -> Change {
    Change {
        status: Some(Status::Failed),
        next: Some(Next::Never),
        // The text counts the crashed attempts, none of which was recorded as a try.
        try_count: Some(stored(tries_before(fence))),
        attempted: true,
        error: ErrorText::Set(text),
        ..Change::default()
    }
}

/// Returns the end of an attempt that has something left to do.
fn unsettled<K: Key>(row: &UnsettledRow<K>, rest: Rest) -> Attempted<K> {
    Attempted::lost(End::Unsettled(Box::new(row.clone()), rest))
}

/// Returns the mark of a row, and the change that writes it. `before`: the text that the row has without the mark.
fn crash_mark<K: Key, C: QueueConnection>(
    plan: &Plan<'_, K, C>,
    row: &UnsettledRow<K>,
    text: String,
    before: Option<String>,
) -> (Change, CrashMark) {
    let options = &plan.served.queue.sql.options;
    let is_serial = options.exclusive || row.details.lane.is_some() && options.lanes.is_some_and(|lanes| lanes.serial);
    // A row that has others behind it keeps its place, so that none of them passes it. Its lock is kept; on SQLite whoever
    // claims the row meanwhile takes it for a suspect.
    let hold = plan.served.info.timeout.clamp(MARK_HOLDS[0], MARK_HOLDS[1]);
    let hold = if is_serial { Change::default() } else { postponed(options, row, hold) };
    let change = Change { error: ErrorText::Set(text.clone()), ..hold };
    let fence = row.fence;
    let marked = Fence {
        status: change.status.unwrap_or(fence.status),
        try_count: change.try_count.unwrap_or(fence.try_count),
        ..fence.at_any_time()
    };
    let before = before.map_or(ErrorText::Clear, ErrorText::Set);
    let due = if is_serial { row.due.map(DateTime::from) } else { None };
    (change, CrashMark { text, fence: marked, due, before: (fence, row.due, before) })
}

/// Marks the row, commits, and claims the row again in a new transaction.
fn mark_and_commit<K: Key, C: QueueConnection>(
    connection: &mut C,
    plan: &Plan<'_, K, C>,
    row: &mut UnsettledRow<K>,
    text: String,
    state: QueueState,
) -> Result<Checked, Attempted<K>> {
    let (change, mark) = crash_mark(plan, row, text.clone(), state.last_attempt_error_message.clone());
    let (fence, marked) = (row.fence, mark.fence);
    // The locks by which one row is processed at a time stay, so that no other one begins between the two transactions.
    let kept = plan.served.queue.keep_exclusion(connection);
    let kept = kept.and_then(|()| plan.claim.places.map_or(Ok(()), |places| places.keep(connection)));
    kept.map_err(|error| Attempted::lost(End::NotClaimed(error)))?;
    match plan.served.write_and_commit(connection, row, &change) {
        Ok(()) => row.fence = marked,
        // The mark may be there. It would count as a crash, so it is removed before the row is given up.
        Err(error) if C::leaves_commit_in_doubt(&error) => {
            plan.slot.recorder().set_mark(mark);
            return Err(unsettled(row, Rest::Postpone(Interruption::of::<C>(&error))));
        }
        Err(error) if C::classify(&error) != ErrorClass::Other => return Err(Attempted::lost(End::NotClaimed(error))),
        Err(error) => {
            let failure = Failure::retry(AttemptError::NotMarked(error));
            let failed = plan.served.rules.after_failure(tries_before(fence) + 1, &failure, &row.details);
            return Err(unsettled(row, Rest::record(failed)));
        }
    }
    plan.slot.recorder().set_mark(mark);
    fail_point("marked");
    let retaken = connection.begin().and_then(|()| {
        if !is_still_its_turn(connection, plan, &row.key)? {
            return Ok(None);
        }
        let retaken = plan.served.queue.retake_if_claimable(connection, &row.key, marked)?;
        Ok(marked_so(retaken, &text).filter(|claimed| due_of(claimed) != Some(None)))
    });
    match retaken {
        // The entity as it is now, because the application may have changed it. The state as it was without the mark.
        Ok(Some(claimed)) => {
            plan.slot.recorder().note_due(due_of(&claimed).flatten());
            let Claimed { message, fence: retaken, details, .. } = claimed;
            (row.fence.due, row.fence.change_count) = (retaken.due, retaken.change_count);
            row.details = Details { lane: row.details.lane.take(), ..details };
            let kept = as_it_was(state.last_attempt_error_message.as_deref());
            Ok((message.map(|(entity, _)| (entity, state)), kept))
        }
        // Another session has stopped, resent or removed the row, it is no longer its turn, or its condition no longer
        // holds: nothing is left to do here. Or a trigger has put the old values back, which shows if the row is claimed again
        // as it was.
        Ok(None) => {
            row.claimed_as.inspect(|claimed| _ = plan.served.due_rows.passed_rows.record_written(*claimed));
            Err(unsettled(row, Rest::Leave))
        }
        Err(error) => Err(unsettled(row, Rest::Postpone(Interruption::of::<C>(&error)))),
    }
}

impl<K: Key, C: QueueConnection> ServedQueue<K, C> {
    /// Removes the row's mark, if it has one that was written before the handler ran, so that the rest of the attempt finds
    /// the row as it was. Returns the state in which the row is now.
    pub(super) fn unmarked(&self, holder: &mut SessionHolder<C>, slot: &Slot, key: &RowKey<K>, fence: Fence) -> Fence {
        let Some(mark) = slot.recorder().take_mark() else { return fence };
        fail_point("unmarking");
        let unmarked = self.insist(holder, "a row cannot be unmarked", |session| self.unmark(session, key, &mark));
        // The commit of the mark may have failed.
        if unmarked == Some(true) {
            Fence { change_count: fence.change_count, ..mark.before.0 }
        } else {
            fence.at_any_time()
        }
    }

    /// Removes the mark of a row whose handler a shutdown does not wait for. If that fails, the row waits, and runs alone.
    pub(super) fn unmark_left(&self, connection: &mut C, slot: &Slot, key: &RowKey<K>) {
        let Some(mark) = slot.recorder().take_mark() else { return };
        if let Err(error) = self.unmark(connection, key, &mark) {
            self.warn(&format!("the row {key} cannot be unmarked: {error}"));
        }
    }

    /// Removes the mark from a row whose attempt ended without writing on it. The row is as it was afterwards. `false`: it has
    /// no such mark.
    fn unmark(&self, connection: &mut C, key: &RowKey<K>, mark: &CrashMark) -> QueryResult<bool> {
        let (before, due_before, error) = mark.before.clone();
        let next = due_before.map_or(Next::In(Duration::ZERO), Next::At);
        let (status, try_count) = (Some(before.status), Some(before.try_count));
        let change = Change { status, try_count, next: Some(next), error, ..Change::default() };
        in_transaction(connection, |connection| {
            let Some(marked) = marked_so(self.queue.retake(connection, key, mark.fence)?, &mark.text) else {
                return Ok(false);
            };
            // Another session may have stopped or postponed the row.
            let (due, mut change) = (due_of(&marked), change);
            let is_stopped = due == Some(None);
            if is_stopped || mark.due.is_some_and(|left| due != Some(Some(left))) {
                change.next = None;
            }
            if is_stopped && change.error == ErrorText::Clear {
                change.error = ErrorText::Set(STOPPED.to_owned());
            }
            Ok(self.queue.settle(connection, key, mark.fence, &change)? == 1)
        })
    }

    /// Writes on the claimed row and commits.
    fn write_and_commit(&self, connection: &mut C, row: &UnsettledRow<K>, change: &Change) -> QueryResult<()> {
        if self.queue.settle(connection, &row.key, row.fence, change)? != 1 {
            return Err(DieselError::NotFound);
        }
        fail_point("marking");
        C::TransactionManager::commit_transaction(connection)
    }
}

/// Tells whether the row is still the one to process, in a queue that processes one row at a time, or whether it still has
/// its places. On SQLite the lock has ended with the transaction that wrote the mark, and another row may be first by now.
fn is_still_its_turn<K: Key, C: QueueConnection>(
    connection: &mut C,
    plan: &Plan<'_, K, C>,
    key: &RowKey<K>,
) -> QueryResult<bool> {
    let (queue, claim) = (plan.served.queue, &plan.claim);
    let still = if queue.sql.options.exclusive {
        queue.exclude(connection)? && queue.head(connection, claim.scope.stages)?.is_some_and(|head| head == *key)
    } else {
        let Some(places) = claim.places else { return Ok(true) };
        places.retake(connection)?
    };
    connection.end_kept_locks()?;
    Ok(still)
}

/// Returns when the row is due, if it is pending; `None` if that is not known.
fn due_of<K>(claimed: &Claimed<K>) -> Option<Option<DateTime<Utc>>> {
    claimed.message.as_ref().ok().map(|(_, state)| state.next_attempt_time)
}

/// Returns the row that was claimed again, if it still bears this mark.
fn marked_so<K>(retaken: Option<Claimed<K>>, mark: &str) -> Option<Claimed<K>> {
    retaken.filter(|claimed| match &claimed.message {
        Ok((_, state)) => state.last_attempt_error_message.as_deref() == Some(mark),
        // It was decoded a moment ago, so the application has changed it since, and the queue has not.
        Err(_) => true,
    })
}
