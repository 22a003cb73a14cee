//! Ends an attempt whose transaction is gone: the worker writes the remainder in another transaction, on a new session
//! if the old one is in doubt.

use std::time::Duration;

use super::attempt_error::AttemptError;
use super::conclusion::Conclusion;
use super::plan::{Remainder, UnsettledRow};
use super::refusal::KEPT;
use super::settle_rules::tries_before;
use super::slot::Slot;
use super::transaction_runner::TransactionRunner;
use super::turn::Turn;
use crate::backend::{QueueConnection, SessionHolder};
use crate::entity::Key;
use crate::event::{Ending, Watch};
use crate::handler::Failure;
use crate::row::{Fence, RowKey};

/// The number of interruptions in a row, none of which uses a try, at which one counts as a failure.
const INTERRUPTIONS: u32 = 20;

/// The same for a full disk, which seldom concerns one row alone: a day of the longest pauses.
const INTERRUPTIONS_BY_FULL_DISK: u32 = 1440;

impl<K: Key, C: QueueConnection> TransactionRunner<K, C> {
    /// Removes the row's mark, if it has one that was written before the handler ran, so that the remainder of the attempt
    /// finds the row due. Returns the state in which the row is now.
    pub(super) fn unmarked(&self, holder: &mut SessionHolder<C>, slot: &Slot, key: &RowKey<K>, fence: Fence) -> Fence {
        let Some(mark) = slot.recorder().take_mark() else { return fence };
        self.insist(holder, "a row cannot be unmarked", |session| self.unmark(session, key, fence, &mark));
        fence.at_any_time()
    }

    /// Writes the remainder of an attempt, on a new session if the old one is in doubt.
    pub(crate) fn conclude(
        &self,
        holder: &mut SessionHolder<C>,
        row: UnsettledRow<K>,
        remainder: Remainder,
        watch: &Watch,
    ) -> Turn {
        let (remainder, delay) = self.count_interruption(&row, remainder);
        let key = &row.key;
        let _passed_over = self.due_rows.row_backoff.while_concluded(key);
        let what = "the end of an attempt cannot be recorded";
        let concluded = self.insist(holder, what, |session| self.write_remainder(session, &row, &remainder, delay));
        let Some(conclusion) = concluded else {
            // The row is as it was before the attempt, and due.
            watch.is_interrupted("the end of the attempt cannot be recorded");
            self.due_rows.row_backoff.skip_for_a_while(key);
            return Turn::Trouble;
        };
        match self.unless_of_another(conclusion, &row, &remainder) {
            Conclusion::Settled(settled) => {
                match row.claimed_as.map_or(0, |claimed| self.due_rows.kept_rows.is_written(claimed)) {
                    0 => self.due_rows.is_written(key),
                    times => self.comes_back(&row, times),
                }
                match &remainder {
                    Remainder::Record(_, change) | Remainder::RecordReserved(_, change) => {
                        self.rules.teller.settled(key, settled, change, watch);
                    }
                    Remainder::FindOut(in_doubt) => {
                        let change = in_doubt.change.iter();
                        change.for_each(|change| self.rules.teller.settled(key, settled, change, watch));
                    }
                    Remainder::Postpone(_) | Remainder::Leave => {}
                }
                tracing::debug!(entity = self.queue.sql.entity, ?key, outcome = ?settled, "settled in a transaction of its own");
                Turn::Settled(settled)
            }
            Conclusion::Interrupted => {
                let why = match &remainder {
                    Remainder::Leave => "the poller has taken the transaction away",
                    _ => remainder.cause().unwrap_or("its end was not recorded"),
                };
                watch.is_interrupted(why);
                Turn::Interrupted
            }
            Conclusion::Overtaken => {
                // The row cannot show what happened. If its handler has committed, the effects may stay.
                let untold = remainder.failure().map(|text| format!(": {text}")).unwrap_or_default();
                let text = format!("another session changed row {key}{untold}");
                self.warn(&text);
                watch.is_interrupted(&text);
                Turn::Interrupted
            }
            Conclusion::Refused { is_noted } => {
                let cause = remainder.failure().or(remainder.cause()).unwrap_or(KEPT);
                watch.ends(Ending::Refused, Some(&self.redacted(cause)), None);
                self.leave_alone(&row, cause, is_noted)
            }
            Conclusion::Kept => {
                watch.ends(Ending::Refused, Some(KEPT), None);
                self.leave_alone(&row, KEPT, false)
            }
        }
    }

    /// If the row has reached its new state after the answer to a COMMIT was lost: tells an attempt of this process that
    /// has claimed the row in the same state since, and brought it there, from the one whose answer was lost.
    fn unless_of_another(&self, conclusion: Conclusion, row: &UnsettledRow<K>, remainder: &Remainder) -> Conclusion {
        let is_found_out = matches!((conclusion, remainder), (Conclusion::Settled(_), Remainder::FindOut(_)));
        let is_of_another = row.claimed_as.is_some_and(|claimed| self.due_rows.kept_rows.has_returned(claimed));
        if is_found_out && is_of_another { Conclusion::Overtaken } else { conclusion }
    }

    /// Leaves a row alone for a while because it has come back so many times, although its new state was committed.
    pub(super) fn comes_back(&self, row: &UnsettledRow<K>, times: u32) {
        self.due_rows.row_backoff.end(&row.key);
        // If the row does not come back this time, its next try finds that it is not due.
        self.refuse(row, times);
    }

    /// Logs an interruption. If there were too many, it becomes a failure, so that a cause that concerns this row alone
    /// comes to an end. Also returns how long the row waits, if nothing else can be written on it.
    fn count_interruption(&self, row: &UnsettledRow<K>, remainder: Remainder) -> (Remainder, Duration) {
        if let Some(cause) = remainder.cause() {
            self.warn(&format!("an attempt was interrupted: {cause}"));
        }
        let Remainder::Postpone(interruption) = remainder else {
            return (remainder, self.due_rows.refused_rows.pause_of(&row.key));
        };
        let (delay, times) = self.due_rows.row_backoff.pause(&row.key, interruption.disk_is_full);
        let most = if interruption.disk_is_full { INTERRUPTIONS_BY_FULL_DISK } else { INTERRUPTIONS };
        if times < most {
            return (Remainder::Postpone(interruption), delay);
        }
        let failure = Failure::retry(AttemptError::Interrupted(times, interruption.cause));
        let (settled, change) = self.rules.after_failure(tries_before(row.fence) + 1, &failure, &row.details);
        (Remainder::Record(settled, Box::new(change)), delay)
    }
}
