//! A group in its transaction, and how its writes are checked.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use diesel::result::{Error as DieselError, QueryResult};

use super::body::GroupBody;
use super::end::{DecidedRow, GroupEnd, GroupRow, Offender, Reservation, Undone};
use super::reread::Rereading;
use crate::attempt::{AttemptError, Interruption, Plan, Rest, Revocation, WorkerCalls, is_interruption};
use crate::backend::{QueueConnection, Session};
use crate::entity::Key;
use crate::handler::{Failure, Outcome, Panicked};
use crate::row::{Details, Settlement};
use crate::statement::{Change, ErasedQueue};

/// How many rows one statement settles: SQLite accepts expressions of up to 1000 levels, and every `OR` is one.
pub(crate) const SETTLED_AT_ONCE: usize = 400;

/// A group in its transaction.
pub(crate) struct OpenGroup<'a, K: Key, C: QueueConnection> {
    pub(crate) session: &'a mut Session<C>,
    pub(crate) plan: &'a Plan<'a, K, C>,
    pub(crate) handler: &'a dyn GroupBody<C>,
    pub(crate) worker: &'a dyn WorkerCalls,
    pub(crate) started: Instant,
    pub(crate) reservation: Option<Reservation>,
    /// Whether each success is settled before the next handler runs.
    pub(crate) settles_in_turn: bool,
    /// Set if each row is read again before its handler runs.
    pub(crate) rereading: Option<&'a Rereading>,
    pub(crate) begun: usize,
    pub(crate) decided: Vec<DecidedRow<K>>,
    pub(crate) session_is_sound: bool,
    pub(crate) remark: Option<String>,
}

impl<K: Key, C: QueueConnection> OpenGroup<'_, K, C> {
    /// Tells whether to begin the next message: not after half the timeout, so that the message has the other half, and
    /// not when the poller stops.
    pub(crate) fn has_time(&self) -> bool {
        self.started.elapsed() < self.plan.info.timeout / 2 && self.worker.goes_on()
    }

    pub(crate) fn decide(&mut self, row: &GroupRow<K>, outcome: Outcome) {
        let (settled, mut change) = self.plan.rules.after_outcome(row.fence, row.tries, outcome, &row.details);
        if settled == Settlement::Again && self.reservation.is_some() {
            // The text stays as it was at the claim; the reservation has replaced it on the row.
            change.error = row.text();
        }
        self.decided.push(row.decided(settled, change, false));
    }

    pub(crate) fn revoked(&self, why: Revocation) -> Undone {
        match why {
            // The handler that was running may have had only a part of the timeout.
            Revocation::TimedOut => Undone::Alone(AttemptError::TimedOut(self.plan.info.timeout).to_string()),
            Revocation::Shutdown => Undone::Shutdown,
        }
    }

    /// Returns the end of a group whose transaction the handler of this row may have ended.
    pub(crate) fn ended_by(&mut self, row: &GroupRow<K>, rest: Rest) -> GroupEnd<K> {
        GroupEnd::EndedByHandler {
            reservation: self.reservation.take(),
            before: std::mem::take(&mut self.decided),
            offender: Box::new(Offender { row: row.clone(), rest }),
            after: Vec::new(),
        }
    }

    /// Returns the end of a group after an interruption of this row that has cost it the savepoint.
    pub(crate) fn interrupted(&mut self, row: &GroupRow<K>, by: Interruption) -> GroupEnd<K> {
        // The group was the victim of a deadlock. Its rows are as they were, and prove nothing: others may have
        // processed them since.
        if self.reservation.is_none() && by.rolls_back {
            return GroupEnd::Undone(Undone::Conflict(by.cause));
        }
        self.ended_by(row, Rest::Postpone(by))
    }

    /// Returns the end of a group whose transaction was ended by one of the handlers that have run.
    pub(crate) fn ended_by_unknown(&mut self, rows: &[GroupRow<K>], why: Option<Undone>) -> GroupEnd<K> {
        let rows = rows[..self.begun].iter().map(|row| row.in_doubt(&self.plan.rules)).collect();
        GroupEnd::EndedByUnknown { reservation: self.reservation.take(), rows, after: Vec::new(), why }
    }

    /// Decides what a failure makes of its row. An error is an interruption. The failure's `source` and `Drop` are user
    /// code.
    pub(crate) fn judge(
        &mut self,
        tries: u32,
        failure: Failure,
        details: &Details,
    ) -> Result<(Settlement, Change), Interruption> {
        let rules = &self.plan.rules;
        let judged = catch_unwind(AssertUnwindSafe(|| {
            let judged = match failure.database_error() {
                Some(error) if is_interruption::<C>(error) => {
                    Err(Interruption::with_text::<C>(error, rules.texts.of(&*failure.error)))
                }
                _ => Ok(rules.after_failure(tries, &failure, details)),
            };
            drop(failure);
            judged
        }));
        judged.unwrap_or_else(|panic| {
            self.session_is_sound = false;
            Ok(rules.after_failure(tries, &Failure::retry(Panicked::new(panic)), details))
        })
    }

    pub(crate) fn after(&self, row: &GroupRow<K>, error: AttemptError) -> (Settlement, Change) {
        self.plan.rules.after_failure(row.tries, &Failure::retry(error), &row.details)
    }
}

/// Returns the end of a group after an error of a statement that was not a handler's.
pub(crate) fn undone<K, C: QueueConnection>(error: DieselError) -> GroupEnd<K> {
    let cause = error.to_string();
    GroupEnd::Undone(if is_interruption::<C>(&error) { Undone::Conflict(cause) } else { Undone::Alone(cause) })
}

/// Writes the new state of one row, under the fence and on exactly one row.
pub(crate) fn write<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    row: &DecidedRow<K>,
) -> Result<(), GroupEnd<K>> {
    expect_rows::<K, C>(queue.settle(connection, &row.key, row.fence, &row.change), 1)
}

/// Checks how many rows were written. A row that cannot be written, or that its handler has changed, is identified when
/// it runs alone.
pub(crate) fn expect_rows<K, C: QueueConnection>(
    written: QueryResult<usize>,
    expected: usize,
) -> Result<(), GroupEnd<K>> {
    match written {
        Ok(rows) if rows == expected => Ok(()),
        Ok(rows) => {
            let what = format!("{rows} rows were settled instead of {expected}");
            Err(GroupEnd::Undone(Undone::RowsChanged(what)))
        }
        Err(error) => Err(undone::<K, C>(error)),
    }
}

pub(crate) type Handled<K> = Result<(), GroupEnd<K>>;

pub(crate) fn conflict<C: QueueConnection>(error: &DieselError) -> Option<Undone> {
    is_interruption::<C>(error).then(|| Undone::Conflict(error.to_string()))
}
