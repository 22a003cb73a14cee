//! Counts the pending rows, by the queue's index, and the rows that have failed for good.

use diesel::backend::Backend;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Nullable, Text};

use super::condition::{Condition, StateCondition};
use super::due::push_claim_condition;
use super::names::{push_column, push_columns, push_table};
use super::odd_time::push_microseconds;
use super::scope::push_stages;
use super::split::Split;
use super::walk::push_index_hint;
use crate::backend::{QueueBackend, Statement};
use crate::entity::{ClaimCondition, Entity, QueueTable, StoredIn, TableIn};
use crate::row::Status;

/// Counts the rows that are pending, due, and under a lease, and reads how long the oldest has been due.
///
/// The condition must pick pending rows only, because the queue's index contains no others.
pub struct CountPending<'a, Q: Entity, F, S, DB: Backend> {
    condition: Condition<'a, Q::Queue, F>,
    split: Split<'a, S>,
    claim_if: Option<ClaimCondition<DB>>,
    limit: u32,
}

/// One value's numbers as they are loaded: the value; the pending rows; those whose time has come; of these, those
/// whose condition holds; those that a worker holds under a lease; the microseconds for which the oldest has been due;
/// and the number of values.
pub type PendingRow = (Option<String>, i64, i64, i64, i64, Option<i64>, i64);

/// The SQL type of a [`PendingRow`].
pub type PendingRowType = (Nullable<Text>, BigInt, BigInt, BigInt, BigInt, Nullable<BigInt>, BigInt);

impl<'a, Q: Entity, F, S, DB: QueueBackend> CountPending<'a, Q, F, S, DB> {
    /// Counts the rows. If there are more than `limit` values, it counts those with most rows.
    pub fn new(condition: Condition<'a, Q::Queue, F>, split: Option<&'a S>, limit: u32) -> Self {
        CountPending { condition, split: Split(split), claim_if: Q::Queue::claim_condition(), limit }
    }

    /// Writes the condition that the row's time has come, its own condition holds, and its stage is one of the
    /// entity's.
    fn push_is_due<'b>(&'b self, out: &mut AstPass<'_, 'b, DB>) -> QueryResult<()>
    where
        Q: StoredIn<DB>,
    {
        StateCondition::Due.push::<Q::Queue, DB>(out)?;
        push_claim_condition(out, self.claim_if.as_ref())?;
        push_stages::<Q::Queue, DB>(out, None)
    }
}

impl<Q, F, S, DB> Statement<DB> for CountPending<'_, Q, F, S, DB>
where
    Q: StoredIn<DB>,
    DB: QueueBackend,
    F: QueryFragment<DB>,
    S: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT MIN(");
        self.split.push_value(&mut out)?;
        out.push_sql("), COUNT(*), COUNT(CASE WHEN ");
        StateCondition::Due.push::<Q::Queue, DB>(&mut out)?;
        out.push_sql(" THEN 1 END), COUNT(CASE WHEN ");
        self.push_is_due(&mut out)?;
        out.push_sql(" THEN 1 END), COUNT(CASE WHEN ");
        StateCondition::Scheduled.push::<Q::Queue, DB>(&mut out)?;
        push_columns::<Q::Queue, DB>(&mut out, " AND {} = '", &[Q::Queue::COLUMNS.status])?;
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
        push_microseconds(&mut out, &|out| push_column::<Q::Queue, DB>(out, Q::Queue::COLUMNS.next_attempt_time))?;
        out.push_sql(" END)");
        push_count_of_values(&self.split, &mut out);
        push_table::<Q::Queue, DB>(&mut out, " FROM ")?;
        push_index_hint::<Q::Queue, DB>(&mut out, DB::INDEX_HINT)?;
        self.condition.walk_ast(out.reborrow())?;
        push_by_value(&self.split, self.limit, &mut out)
    }
}

/// Counts the rows that a condition picks, by value.
pub struct CountByValue<'a, T, F, S> {
    condition: Condition<'a, T, F>,
    split: Split<'a, S>,
    limit: u32,
}

/// One value's number as it is loaded, and the number of values.
pub type CountRow = (Option<String>, i64, i64);

/// The SQL type of a [`CountRow`].
pub type CountRowType = (Nullable<Text>, BigInt, BigInt);

impl<'a, T, F, S> CountByValue<'a, T, F, S> {
    /// Counts the rows. If there are more than `limit` values, it counts those with most rows.
    pub fn new(condition: Condition<'a, T, F>, split: Option<&'a S>, limit: u32) -> Self {
        CountByValue { condition, split: Split(split), limit }
    }
}

impl<T, F, S, DB> Statement<DB> for CountByValue<'_, T, F, S>
where
    T: TableIn<DB>,
    DB: QueueBackend,
    F: QueryFragment<DB>,
    S: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT MIN(");
        self.split.push_value(&mut out)?;
        out.push_sql("), COUNT(*)");
        push_count_of_values(&self.split, &mut out);
        push_table::<T, DB>(&mut out, " FROM ")?;
        self.condition.walk_ast(out.reborrow())?;
        push_by_value(&self.split, self.limit, &mut out)
    }
}

/// Only a split count needs a window function.
fn push_count_of_values<S, DB: QueueBackend>(split: &Split<'_, S>, out: &mut AstPass<'_, '_, DB>) {
    out.push_sql(if split.0.is_some() { ", COUNT(*) OVER ()" } else { ", COUNT(*)" });
}

fn push_by_value<'b, S, DB>(split: &'b Split<'_, S>, limit: u32, out: &mut AstPass<'_, 'b, DB>) -> QueryResult<()>
where
    DB: QueueBackend,
    S: QueryFragment<DB>,
{
    split.push_group(" GROUP BY ", out)?;
    split.push_group(" ORDER BY COUNT(*) DESC, ", out)?;
    if split.0.is_some() {
        out.push_sql(" LIMIT ");
        out.push_sql(&limit.to_string());
    }
    Ok(())
}
