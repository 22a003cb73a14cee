//! Counts the pending rows, by the queue's index, and the rows that have failed for good.

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Nullable, Text};

use super::condition::{Condition, StateCondition};
use super::due::Claimable;
use super::split::Split;
use super::walk::push_index_hint;
use super::writer::Writer;
use crate::backend::{QueueBackend, Statement};

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
        CountPending { condition, split, claimable: Claimable::new(condition.queue, None), limit }
    }

    /// Writes the condition that the row's time has come, its own condition holds, and its stage is one of the
    /// entity's.
    fn push_is_due<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>) -> QueryResult<()> {
        StateCondition::Due.push(sql)?;
        self.claimable.push_condition(sql)?;
        self.claimable.push_stages(sql)
    }
}

impl<DB: QueueBackend> Statement<DB> for CountPending<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.condition.queue, out);
        sql.within(("SELECT MIN(", ")"), |sql| sql.push_split(self.split))?;
        sql.push(", COUNT(*), COUNT(CASE WHEN {.next_attempt_time} <= {statement_time} THEN 1 END)")?;
        sql.within((", COUNT(CASE WHEN ", " THEN 1 END)"), |sql| self.push_is_due(sql))?;
        sql.push(
            ", COUNT(CASE WHEN {.next_attempt_time} > {statement_time} AND {.status} = 'IN_PROGRESS' THEN 1 END), ",
        )?;
        sql.push_microseconds("{statement_time}")?;
        // The difference is taken of the microseconds and not of the times, because `-infinity` gives no duration.
        sql.within((" - MIN(CASE WHEN ", " THEN "), |sql| self.push_is_due(sql))?;
        sql.push_microseconds("{.next_attempt_time}")?;
        sql.push(" END)")?;
        push_count_of_values(self.split, &mut sql)?;
        push_index_hint(&mut sql, DB::INDEX_HINT)?;
        self.condition.push(&mut sql)?;
        push_by_value(self.split, self.limit, &mut sql)
    }
}

/// Counts the rows that a condition picks, by value.
pub struct CountByValue<'a, DB: QueueBackend> {
    /// The condition.
    pub condition: Condition<'a, DB>,
    /// The column of the values.
    pub split: Option<&'a dyn QueryFragment<DB>>,
    /// If there are more values, it counts those with most rows.
    pub limit: u32,
}

/// One value's number as it is loaded, and the number of values.
pub type CountRow = (Option<String>, i64, i64);

/// The SQL type of a [`CountRow`].
pub type CountRowType = (Nullable<Text>, BigInt, BigInt);

impl<DB: QueueBackend> Statement<DB> for CountByValue<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.condition.queue, out);
        sql.within(("SELECT MIN(", "), COUNT(*)"), |sql| sql.push_split(self.split))?;
        push_count_of_values(self.split, &mut sql)?;
        self.condition.push(&mut sql)?;
        push_by_value(self.split, self.limit, &mut sql)
    }
}

/// Writes the number of values, and `FROM table`. Only a split count needs a window function.
fn push_count_of_values<DB: QueueBackend>(split: Split<'_, DB>, sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    sql.push(if split.is_some() { ", COUNT(*) OVER () FROM {table}" } else { ", COUNT(*) FROM {table}" })
}

fn push_by_value<'b, DB: QueueBackend>(
    split: Split<'b, DB>,
    limit: u32,
    sql: &mut Writer<'_, 'b, DB>,
) -> QueryResult<()> {
    if split.is_none() {
        return Ok(());
    }
    sql.push_group(" GROUP BY ", split)?;
    sql.push_group(" ORDER BY COUNT(*) DESC, ", split)?;
    sql.push(&format!(" LIMIT {limit}"))
}
