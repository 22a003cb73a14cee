//! The row that holds others back. In a strictly serial lane it has failed and waits for its retry, or its lease has ended.
//! In an exclusive queue it is the first pending row, due or not.

use std::slice;
use std::time::Duration;

use diesel::result::QueryResult;
use diesel::sql_types::BigInt;

use super::condition::{StateCondition, push_claimable};
use super::key_text::push_select_key;
use super::lane::push_lane;
use super::queue::ErasedQueue;
use super::walk::{Claimable, Walk};
use super::writer::{Writer, statement};
use crate::backend::{Named, QueueBackend, QueueConnection, Statement, column_names, load_first};
use crate::entity::{Key, QueueSql};
use crate::row::{Lane, RowKey, Status};

/// Reads when the row of a lane that holds the others back is due, in microseconds from now: 0 or less if it is due
/// already.
pub fn ahead_due<DB: QueueBackend>(queue: &'static QueueSql<DB>, lane: Lane) -> impl Statement<DB> {
    statement(queue, lane, |lane, sql| {
        sql.push_microseconds_until("{next_attempt_time}")?;
        push_ahead(sql, lane)
    })
}

/// Reads the key of that row, and the key's text.
pub fn ahead_key<DB: QueueBackend>(queue: &'static QueueSql<DB>, lane: Lane) -> impl Statement<DB> {
    statement(queue, lane, |lane, sql| {
        push_select_key(sql)?;
        push_ahead(sql, lane)
    })
}

/// Reads the primary key, and its text, of the first pending row by its order, then by its key. It passes over a
/// row whose condition is false, because that row is not work now.
pub fn head<DB: QueueBackend>(due: Claimable<DB>) -> impl Statement<DB> {
    statement(due.queue, due, |due, sql| {
        push_select_key(sql)?;
        push_head(due, sql)
    })
}

/// Writes ` FROM table WHERE status IN (..) AND column = value ORDER BY next_attempt_time LIMIT 1`.
pub(crate) fn push_ahead<'b, DB: QueueBackend>(sql: &mut Writer<'_, 'b, DB>, lane: &'b Lane) -> QueryResult<()> {
    sql.push(" FROM {table}")?;
    sql.push_hint(DB::ORDERED_INDEX_HINT, Named::Strict)?;
    // For the index: the exact comparison beside it may use none.
    sql.push(" WHERE {.next_attempt_time} IS NOT NULL AND {.status} IN ('ERROR', 'IN_PROGRESS') AND ")?;
    // The statuses of rows that have been attempted and are not settled for good.
    StateCondition::In(&[Status::Error, Status::InProgress]).push(sql)?;
    push_lane(sql, lane)?;
    Walk::OLDEST.push_order(sql, &1)
}

/// Writes ` FROM .. ORDER BY .. LIMIT 1`: the first pending row, or the first of the first rows of several stages.
fn push_head<'b, DB: QueueBackend>(due: &'b Claimable<DB>, sql: &mut Writer<'_, 'b, DB>) -> QueryResult<()> {
    let stages = due.stages.as_deref().unwrap_or_default();
    if stages.len() < 2 {
        return push_head_in(due, stages.first(), sql);
    }
    sql.push(" FROM {table} JOIN (")?;
    // In a union, SQLite takes the limit of one part only within a subquery.
    sql.each(stages, " UNION ALL ", |sql, stage| {
        sql.push("SELECT * FROM (SELECT {key}")?;
        push_head_in(due, Some(stage), sql)?;
        sql.push(") AS queueable_first")
    })?;
    sql.push(") AS queueable_heads ON ")?;
    let keys = column_names(sql.queue.key_columns, sql.out.backend())?;
    sql.each(&keys, " AND ", |sql, key| sql.push_with("{.} = queueable_heads.{}", &[key]))?;
    sql.push(" ORDER BY ")?;
    sql.push_order_columns(sql.queue.options.order)?;
    sql.push("{key} LIMIT 1")
}

/// Writes ` FROM table WHERE next_attempt_time IS NOT NULL AND status IN (..) ORDER BY .. LIMIT 1`. The rows of one stage are found
/// along the index of stages, so that the statement passes over no rows of others.
fn push_head_in<'b, DB: QueueBackend>(
    due: &'b Claimable<DB>,
    stage: Option<&'b &'static str>,
    sql: &mut Writer<'_, 'b, DB>,
) -> QueryResult<()> {
    sql.push(" FROM {table}")?;
    let index = stage.map_or(Named::Order, |_| Named::Stages(sql.stage_column()));
    sql.push_hint(DB::ORDERED_INDEX_HINT, index)?;
    sql.push(" WHERE ")?;
    sql.push_pending_flag()?;
    sql.push("{.next_attempt_time} IS NOT NULL AND ")?;
    push_claimable(sql)?;
    // With an equation, PostgreSQL might walk along another index if it believes that most rows are in this stage.
    let is_range = DB::LANE_IS_RANGE && stage.is_some();
    if !is_range {
        sql.push_stages(stage.map(slice::from_ref))?;
    }
    stage.map_or(Ok(()), |stage| sql.push_stage_range(stage, None))?;
    due.push_condition(sql)?;
    sql.push_with(if is_range { " ORDER BY {.}, " } else { " ORDER BY " }, &[sql.stage_column()])?;
    sql.push_order_columns(sql.queue.options.order)?;
    sql.push("{key} LIMIT 1")
}

/// Writes ` FROM (SELECT next_attempt_time ..) AS queueable_head WHERE next_attempt_time <= until`.
pub(crate) fn push_due_head<'b, DB: QueueBackend>(
    due: &'b Claimable<DB>,
    sql: &mut Writer<'_, 'b, DB>,
    until: &str,
) -> QueryResult<()> {
    sql.push(" FROM (SELECT {.next_attempt_time}")?;
    push_head(due, sql)?;
    sql.push(") AS queueable_head WHERE {next_attempt_time} <= ")?;
    sql.out.push_sql(until);
    Ok(())
}

/// Returns a time that was read in microseconds.
pub(crate) fn time_until(microseconds: i64) -> Duration {
    Duration::from_micros(microseconds.max(0).unsigned_abs())
}

impl<K: Key, C: QueueConnection> ErasedQueue<K, C> {
    /// Reads in how long the row that holds a strictly serial lane back is due; zero if it is due already. `None`: there
    /// is none.
    pub fn ahead_due(&self, connection: &mut C, lane: &Lane) -> QueryResult<Option<Duration>> {
        let due = load_first::<BigInt, i64, _>(connection, &ahead_due(self.sql, lane.clone()))?;
        Ok(due.map(time_until))
    }

    /// Reads the key of that row.
    pub fn ahead(&self, connection: &mut C, lane: &Lane) -> QueryResult<Option<RowKey<K>>> {
        Ok(self.read_keys(connection, &ahead_key(self.sql, lane.clone()))?.pop())
    }

    /// Reads, without a lock, the key of the first pending row of an exclusive entity, in its order.
    pub fn head(&self, connection: &mut C, stages: Option<&[&'static str]>) -> QueryResult<Option<RowKey<K>>> {
        Ok(self.read_keys(connection, &head(Claimable::new(self.sql, stages)))?.pop())
    }

    /// Tells whether a row other than the one with this key is under a lease.
    pub fn another_is_leased(&self, connection: &mut C, key: Option<&RowKey<K>>) -> QueryResult<bool> {
        // However far away the end of the lease is: another version of the application may have longer leases.
        Ok(self.leased_in(connection, &Lane::Queue, key, 1, None)? > 0)
    }
}
