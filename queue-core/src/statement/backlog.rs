//! Counts the pending rows, by the queue's index, and the rows that have failed for good.

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Nullable, Text};

use super::condition::{Condition, StateCondition};
use super::due::Claimable;
use super::names::{push_column, push_columns, push_table};
use super::odd_time::push_microseconds;
use super::split::Split;
use super::walk::push_index_hint;
use crate::backend::{QueueBackend, Statement};
use crate::row::Status;

/// Counts the rows that are pending, due, and under a lease, and reads how long the oldest has been due.
///
/// The condition must pick pending rows only, because the queue's index contains no others.
pub struct CountPending<'a, DB: QueueBackend> {
    condition: Condition<'a, DB>,
    split: Split<'a, DB>,
    claimable: Claimable<DB>,
    limit: u32,
}

/// One value's numbers as they are loaded: the value; the pending rows; those whose time has come; of these, those
/// whose condition holds; those that a worker holds under a lease; the microseconds for which the oldest has been due;
/// and the number of values.
pub type PendingRow = (Option<String>, i64, i64, i64, i64, Option<i64>, i64);

/// The SQL type of a [`PendingRow`].
pub type PendingRowType = (Nullable<Text>, BigInt, BigInt, BigInt, BigInt, Nullable<BigInt>, BigInt);

impl<'a, DB: QueueBackend> CountPending<'a, DB> {
    /// Counts the rows. If there are more than `limit` values, it counts those with most rows.
    pub fn new(condition: Condition<'a, DB>, split: Option<&'a dyn QueryFragment<DB>>, limit: u32) -> Self {
        CountPending { condition, split: Split(split), claimable: Claimable::new(condition.queue, None), limit }
    }

    /// Writes the condition that the row's time has come, its own condition holds, and its stage is one of the
    /// entity's.
    fn push_is_due<'b>(&'b self, out: &mut AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.condition.queue;
        StateCondition::Due.push(queue, out)?;
        self.claimable.push_condition(out)?;
        self.claimable.push_stages(out)
    }
}

impl<DB: QueueBackend> Statement<DB> for CountPending<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.condition.queue;
        out.push_sql("SELECT MIN(");
        self.split.push_value(&mut out)?;
        out.push_sql("), COUNT(*), COUNT(CASE WHEN ");
        StateCondition::Due.push(queue, &mut out)?;
        out.push_sql(" THEN 1 END), COUNT(CASE WHEN ");
        self.push_is_due(&mut out)?;
        out.push_sql(" THEN 1 END), COUNT(CASE WHEN ");
        StateCondition::Scheduled.push(queue, &mut out)?;
        push_columns(queue, &mut out, " AND {} = '", &[queue.names.status])?;
        out.push_sql(Status::InProgress.as_str());
        out.push_sql("' THEN 1 END), ");
        push_microseconds(&mut out, &|out| {
            out.push_sql(DB::STATEMENT_TIME);
            Ok(())
        })?;
        // The difference is taken of the microseconds and not of the times, because `-infinity` gives no duration.
        out.push_sql(" - MIN(CASE WHEN ");
        self.push_is_due(&mut out)?;
        out.push_sql(" THEN ");
        push_microseconds(&mut out, &|out| push_column(queue, out, queue.names.next_attempt_time))?;
        out.push_sql(" END)");
        push_count_of_values(&self.split, &mut out);
        push_table(queue, &mut out, " FROM ")?;
        push_index_hint(queue, &mut out, DB::INDEX_HINT)?;
        self.condition.walk_ast(out.reborrow())?;
        push_by_value(&self.split, self.limit, &mut out)
    }
}

/// Counts the rows that a condition picks, by value.
pub struct CountByValue<'a, DB: QueueBackend> {
    condition: Condition<'a, DB>,
    split: Split<'a, DB>,
    limit: u32,
}

/// One value's number as it is loaded, and the number of values.
pub type CountRow = (Option<String>, i64, i64);

/// The SQL type of a [`CountRow`].
pub type CountRowType = (Nullable<Text>, BigInt, BigInt);

impl<'a, DB: QueueBackend> CountByValue<'a, DB> {
    /// Counts the rows. If there are more than `limit` values, it counts those with most rows.
    pub fn new(condition: Condition<'a, DB>, split: Option<&'a dyn QueryFragment<DB>>, limit: u32) -> Self {
        CountByValue { condition, split: Split(split), limit }
    }
}

impl<DB: QueueBackend> Statement<DB> for CountByValue<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.condition.queue;
        out.push_sql("SELECT MIN(");
        self.split.push_value(&mut out)?;
        out.push_sql("), COUNT(*)");
        push_count_of_values(&self.split, &mut out);
        push_table(queue, &mut out, " FROM ")?;
        self.condition.walk_ast(out.reborrow())?;
        push_by_value(&self.split, self.limit, &mut out)
    }
}

/// Only a split count needs a window function.
fn push_count_of_values<DB: QueueBackend>(split: &Split<'_, DB>, out: &mut AstPass<'_, '_, DB>) {
    out.push_sql(if split.0.is_some() { ", COUNT(*) OVER ()" } else { ", COUNT(*)" });
}

fn push_by_value<'b, DB: QueueBackend>(
    split: &'b Split<'_, DB>,
    limit: u32,
    out: &mut AstPass<'_, 'b, DB>,
) -> QueryResult<()> {
    split.push_group(" GROUP BY ", out)?;
    split.push_group(" ORDER BY COUNT(*) DESC, ", out)?;
    if split.0.is_some() {
        out.push_sql(" LIMIT ");
        out.push_sql(&limit.to_string());
    }
    Ok(())
}
