//! Ends an attempt whose transaction is gone: the worker writes the rest in another transaction, under the same fence, and on
//! a new session if the old one is in doubt.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use diesel::result::QueryResult;

use super::ended::{AttemptError, Conclusion, InDoubt, NewState, Rest, Turn, UnsettledRow};
use super::refusal::{KEPT, is_refusal};
use super::served_queue::{ServedQueue, in_transaction, record};
use super::settle_rules::tries_before;
use crate::backend::{QueueConnection, SessionHolder};
use crate::entity::Key;
use crate::event::{Event, Watch};
use crate::handler::Failure;
use crate::row::{ErrorText, Fence, Options, RowKey, Settlement, Status};
use crate::statement::{Change, Next};
use crate::sync::fail_point;

/// The number of interruptions in a row, none of which uses a try, at which one counts as a failure.
const INTERRUPTIONS: u32 = 20;

/// The same for a full disk, which seldom concerns one row alone: a day of the longest pauses.
const INTERRUPTIONS_BY_FULL_DISK: u32 = 1440;

/// How long the text of a lost session may still be on its way to the server.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

impl<K: Key, C: QueueConnection> ServedQueue<K, C> {
    /// Writes the rest of an attempt.
    pub(crate) fn conclude(&self, holder: &mut SessionHolder<C>, row: UnsettledRow<K>, rest: Rest) -> Turn {
        let _span = row.watch.enter_span();
        let (rest, delay) = self.count_interruption(&row, rest);
        let _passed_over = self.due_rows.passed_rows.while_concluded(&row.key);
        let what = "the end of an attempt cannot be recorded";
        let concluded = self.insist(holder, what, |session| self.write_rest(session, &row, &rest, delay));
        let Some(conclusion) = concluded else {
            // The row is as it was before the attempt, and due.
            row.watch.interrupt("the end of the attempt cannot be recorded");
            self.due_rows.passed_rows.skip_for_a_while(&row.key);
            return Turn::Trouble;
        };
        match self.unless_of_another(conclusion, &row, &rest) {
            Conclusion::Settled(settled) => {
                self.note_settled(&row);
                self.tell_settled(&row, settled, &rest);
                Turn::Settled(settled)
            }
            Conclusion::Interrupted => {
                let why = match &rest {
                    Rest::Leave => "the poller has taken the transaction away",
                    _ => rest.cause().unwrap_or("its end was not recorded"),
                };
                row.watch.interrupt(why);
                Turn::Interrupted
            }
            Conclusion::Overtaken { is_due } => {
                if is_due && !self.queue.sql.options.keeps_order_in(row.details.lane.as_ref()) {
                    self.due_rows.passed_rows.note_overtaken(&row.key);
                }
                // The row cannot show what happened. If its handler has committed, the effects may stay.
                let untold = rest.failure().map(|text| format!(": {text}")).unwrap_or_default();
                let text = format!("another session changed row {}{untold}", row.key);
                self.warn(&text);
                row.watch.interrupt(&text);
                Turn::Interrupted
            }
            Conclusion::SetAside => {
                row.watch.interrupt("no statement finds the row by its primary key");
                Turn::Settled(Settlement::Failed)
            }
            Conclusion::Refused { is_noted } => {
                let cause = rest.failure().or(rest.cause()).unwrap_or(KEPT);
                row.watch.end(Event::Refused, Some(&self.redacted(cause)), None);
                self.leave_alone(&row, cause, is_noted)
            }
            Conclusion::Kept => {
                row.watch.end(Event::Refused, Some(KEPT), None);
                self.leave_alone(&row, KEPT, false)
            }
        }
    }

    /// Logs an interruption. If there were too many, it becomes a failure, so that a cause that concerns this row alone
    /// comes to an end. Also returns how long the row waits, if nothing else can be written on it.
    fn count_interruption(&self, row: &UnsettledRow<K>, rest: Rest) -> (Rest, Duration) {
        if let Some(cause) = rest.cause() {
            self.warn(&format!("an attempt was interrupted: {cause}"));
        }
        let Rest::Postpone(interruption) = rest else {
            return (rest, self.due_rows.passed_rows.refusal_pause(&row.key));
        };
        let (delay, times) = self.due_rows.passed_rows.pause(&row.key, interruption.disk_is_full);
        let most = if interruption.disk_is_full { INTERRUPTIONS_BY_FULL_DISK } else { INTERRUPTIONS };
        if times < most {
            return (Rest::Postpone(interruption), delay);
        }
        let failure = Failure::retry(AttemptError::Interrupted(times, interruption.cause));
        (Rest::record(self.rules.after_failure(tries_before(row.fence) + 1, &failure, &row.details)), delay)
    }

    /// If the row has reached its new state after the answer to a COMMIT was lost: tells an attempt of this process that
    /// has claimed the row in the same state since, and brought it there, from the one whose answer was lost.
    fn unless_of_another(&self, conclusion: Conclusion, row: &UnsettledRow<K>, rest: &Rest) -> Conclusion {
        let is_found_out = matches!((conclusion, rest), (Conclusion::Settled(_), Rest::FindOut(_)));
        let is_of_another = row.claimed_as.is_some_and(|claimed| self.due_rows.passed_rows.has_returned(claimed));
        if is_found_out && is_of_another { Conclusion::Overtaken { is_due: false } } else { conclusion }
    }

    /// Tells the log and the listeners of a new state that was written as the rest of an attempt.
    fn tell_settled(&self, row: &UnsettledRow<K>, settled: Settlement, rest: &Rest) {
        match rest {
            Rest::Record(new) | Rest::RecordReserved(new) => self.rules.teller.tell_settled(&row.key, new, &row.watch),
            Rest::FindOut(in_doubt) => self.tell_found_out(&row.key, in_doubt, &row.watch),
            Rest::Postpone(_) | Rest::Leave => {}
        }
        tracing::debug!(entity = self.queue.sql.entity, key = ?row.key, outcome = ?settled, "settled in a transaction of its own");
    }

    /// Tells the log and the listeners of a new state that was found to be committed, unless the caller does.
    pub(crate) fn tell_found_out(&self, key: &RowKey<K>, in_doubt: &InDoubt, watch: &Watch) {
        if !in_doubt.is_told_by_caller {
            self.rules.teller.tell_settled(key, &in_doubt.new, watch);
        }
    }

    /// Writes the rest in a transaction. `delay` is the pause of a row that was interrupted, or that the database refuses to
    /// settle.
    fn write_rest(
        &self,
        connection: &mut C,
        row: &UnsettledRow<K>,
        rest: &Rest,
        delay: Duration,
    ) -> QueryResult<Conclusion> {
        let UnsettledRow { key, fence, .. } = row;
        let fence = *fence;
        let done = match rest {
            Rest::Leave => return Ok(Conclusion::Interrupted),
            Rest::Postpone(_) => {
                let change = postponed(self.queue.sql.options, row, delay);
                self.settle_alone(connection, key, fence, &change).map(|changed| (changed, Conclusion::Interrupted))
            }
            Rest::Record(new) => record(connection, &new.change, &|connection, change| {
                self.queue.settle_anew(connection, key, fence, change)
            })
            .map(|changed| (changed, Conclusion::Settled(new.settled))),
            Rest::RecordReserved(new) => {
                let changed = record(connection, &new.change, &|connection, change| {
                    self.queue.settle(connection, key, fence, change)
                })?;
                return Ok(match changed {
                    1 => Conclusion::Settled(new.settled),
                    _ => Conclusion::Overtaken { is_due: false },
                });
            }
            Rest::FindOut(in_doubt) => return self.find_out(connection, key, fence, in_doubt),
        };
        match done {
            Ok((1, conclusion)) => Ok(conclusion),
            Ok(_) => self.kept_or_overtaken(connection, row),
            Err(error) if is_refusal::<C>(&error) => {
                let text = match rest {
                    Rest::Record(new) => &new.change.error,
                    _ => &ErrorText::Keep,
                };
                tracing::debug!(%error, "the database refuses to write on a row");
                self.note_refusal(connection, row, text, delay)
            }
            Err(error) => Err(error),
        }
    }

    /// Finds out the result of a COMMIT whose answer was lost: whether the row is in the state that it was to reach.
    pub(crate) fn find_out(
        &self,
        connection: &mut C,
        key: &RowKey<K>,
        fence: Fence,
        in_doubt: &InDoubt,
    ) -> QueryResult<Conclusion> {
        fail_point("finding-out");
        let InDoubt { new: NewState { settled, .. }, reached, since, .. } = *in_doubt;
        let (lost_for, looked) = (since.elapsed(), Instant::now());
        // Under the lock: the lost session may still be about to commit.
        let (now, is_another) = in_transaction(connection, |connection| {
            let now = self.queue.recall(connection, key)?;
            let is_reached = now.zip(reached).is_some_and(|(now, reached)| now.reads_as(reached));
            Ok((now, is_reached && self.is_of_another(connection, key, fence, lost_for, looked)?))
        })?;
        Ok(match now {
            None if reached.is_none() => Conclusion::Settled(settled),
            Some(now) if !is_another && reached.is_some_and(|reached| now.reads_as(reached)) => {
                Conclusion::Settled(settled)
            }
            Some(now) if now.reads_as(fence) => Conclusion::Interrupted,
            // The row was to leave the table, and could not: see `statement/settle.rs`.
            Some(now) if reached.is_none() && settled == Settlement::Failed && now.status == Status::Failed => {
                Conclusion::Settled(settled)
            }
            // The row has new content, and was made due for it.
            Some(now) if fence.change_count.is_some() && now.reads_as(Fence::new(Status::NotAttempted, 0)) => {
                Conclusion::Settled(settled)
            }
            _ => Conclusion::Overtaken { is_due: false },
        })
    }

    /// Tells whether a row that is in the state that an attempt was to give it is in this state for another reason: it
    /// was there when it was claimed, as a finished row that own SQL has made due, or a later attempt of another worker
    /// has brought it there.
    ///
    /// An attempt that was committed ended before its answer was lost, `lost_for` before this look began, or its text
    /// was still on its way: then it ended while the look waited for the lock, which the lost session held. A later
    /// attempt of another worker ended between the two. The spans are durations by one clock each, so it does not
    /// matter whether the clocks agree. Only an end that is nearer to the look than to the loss is certainly a later
    /// one: after a failover another server's clock measures, and it may differ a little. If the look begins within
    /// [`ON_ITS_WAY`] of the loss, a text that arrived late explains the end as well.
    fn is_of_another(
        &self,
        connection: &mut C,
        key: &RowKey<K>,
        fence: Fence,
        lost_for: Duration,
        looked: Instant,
    ) -> QueryResult<bool> {
        if fence.due.is_some() && self.queue.is_still(connection, key, fence)? {
            return Ok(true);
        }
        let Some(ended) = self.queue.last_attempt(connection, key)? else { return Ok(false) };
        let present = DateTime::<Utc>::from(self.queue.present(connection)?);
        let Ok(ended_for) = present.signed_duration_since(DateTime::from(ended)).to_std() else { return Ok(true) };
        let before_look = ended_for.checked_sub(looked.elapsed());
        Ok(lost_for > ON_ITS_WAY && before_look.is_some_and(|before_look| before_look < lost_for / 2))
    }
}

/// Makes an interrupted row wait a moment. Otherwise it would be claimed again at once, and keep the others from their
/// turn. In a strict lane it holds the others back like a row that has failed: with its later due time it would no longer
/// be the first one.
pub(super) fn postponed<K>(options: &Options, row: &UnsettledRow<K>, delay: Duration) -> Change {
    let waits = Change { next: Some(Next::In(delay)), ..Change::default() };
    if !options.keeps_order_in(row.details.lane.as_ref()) {
        return waits;
    }
    let tries = i32::try_from(tries_before(row.fence)).unwrap_or(i32::MAX);
    Change { status: Some(Status::Error), try_count: Some(tries), ..waits }
}
