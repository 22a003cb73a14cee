//! Writes what an attempt could not write in its own transaction: in another one, and under the same fence.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use diesel::result::QueryResult;

use super::conclusion::Conclusion;
use super::in_transaction::in_transaction;
use super::plan::{InDoubt, Remainder, UnsettledRow};
use super::refusal::is_refusal;
use super::served_queue::ServedQueue;
use super::settle_rules::tries_before;
use crate::backend::{ErrorClass, QueueConnection};
use crate::entity::Key;
use crate::fault::fail_point;
use crate::row::{ErrorText, Fence, Options, Settlement, Status, ascii_only};
use crate::statement::{Change, Next};

/// The text that replaces one that the database accepts in no form.
const UNWRITABLE: &str = "the failure's text cannot be stored";

/// How long the text of a lost session may still be on its way to the server.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

impl<K: Key, C: QueueConnection> ServedQueue<K, C> {
    /// Writes the remainder for a row. `delay` is the pause of a row that was interrupted, or that the database refuses to
    /// settle.
    pub(super) fn write_remainder(
        &self,
        connection: &mut C,
        row: &UnsettledRow<K>,
        remainder: &Remainder,
        delay: Duration,
    ) -> QueryResult<Conclusion> {
        let UnsettledRow { key, fence, .. } = row;
        let fence = *fence;
        let done = match remainder {
            Remainder::Leave => return Ok(Conclusion::Interrupted),
            Remainder::Postpone(_) => {
                let change = postponed(self.queue.sql.options, row, delay);
                self.settle_alone(connection, key, fence, &change).map(|changed| (changed, Conclusion::Interrupted))
            }
            Remainder::Record(settled, change) => {
                record(connection, change, &|connection, change| self.queue.settle_anew(connection, key, fence, change))
                    .map(|changed| (changed, Conclusion::Settled(*settled)))
            }
            Remainder::RecordReserved(settled, change) => {
                let changed = record(connection, change, &|connection, change| {
                    self.queue.settle(connection, key, fence, change)
                })?;
                return Ok(if changed == 1 { Conclusion::Settled(*settled) } else { Conclusion::Overtaken });
            }
            Remainder::FindOut(in_doubt) => return self.find_out(connection, key, fence, in_doubt),
        };
        match done {
            Ok((1, conclusion)) => Ok(conclusion),
            Ok(_) => self.kept_or_overtaken(connection, row),
            Err(error) if is_refusal::<C>(&error) => {
                let text = match remainder {
                    Remainder::Record(_, change) => &change.error,
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
        key: &K,
        fence: Fence,
        in_doubt: &InDoubt,
    ) -> QueryResult<Conclusion> {
        fail_point("finding-out");
        let InDoubt { settled, reached, since, .. } = *in_doubt;
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
            _ => Conclusion::Overtaken,
        })
    }

    /// Tells whether a row that is in the state that an attempt was to give it is in this state for another reason: it was
    /// there when it was claimed, as a finished row that own SQL has made due, or a later attempt of somebody else has
    /// brought it there.
    ///
    /// An attempt that was committed ended before its answer was lost, `lost_for` before this look began, or its text was
    /// still on its way: then it ended while the look waited for the lock, which the lost session held. A later attempt of
    /// somebody else ended between the two. The spans are durations by one clock each, so it does not matter whether the
    /// clocks agree. Only an end that is nearer to the look than to the loss is certainly a later one: after a failover
    /// another server's clock measures, and it may differ a little. If the look begins within [`ON_ITS_WAY`] of the loss, a
    /// text that arrived late explains the end as well.
    fn is_of_another(
        &self,
        connection: &mut C,
        key: &K,
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
fn postponed<K>(options: &Options, row: &UnsettledRow<K>, delay: Duration) -> Change {
    let waits = Change { next: Some(Next::In(delay)), ..Change::default() };
    if !options.keeps_order_in(row.details.lane.as_ref()) {
        return waits;
    }
    let tries = i32::try_from(tries_before(row.fence)).unwrap_or(i32::MAX);
    Change { status: Some(Status::Error), try_count: Some(tries), ..waits }
}

/// Records a failure. If the database cannot store the text, it is written as plain ASCII, then as a fixed text, and
/// then left out. `settle` writes it.
pub(crate) fn record<C: QueueConnection>(
    connection: &mut C,
    change: &Change,
    settle: &dyn Fn(&mut C, &Change) -> QueryResult<usize>,
) -> QueryResult<usize> {
    fail_point("recording");
    let mut texts = vec![change.error.clone()];
    if let ErrorText::Set(text) = &change.error {
        texts.push(ErrorText::Set(ascii_only(text)));
        texts.push(ErrorText::Set(UNWRITABLE.to_owned()));
        texts.push(ErrorText::Clear);
    }
    let mut result = Ok(0);
    for error in texts {
        let change = Change { error, ..change.clone() };
        result = in_transaction(connection, |connection| settle(connection, &change));
        match &result {
            Err(error) if C::classify(error) == ErrorClass::Other => {
                tracing::debug!(%error, "a failure cannot be recorded with this text");
            }
            _ => break,
        }
    }
    if matches!(result, Ok(1)) {
        fail_point("recorded");
    }
    result
}
