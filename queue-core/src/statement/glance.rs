//! Glances at a queue's rows for an examination: a bounded number of them, along an index, without a lock.

use diesel::result::QueryResult;

use super::key_text::push_key_text;
use super::walk::Walk;
use super::writer::{Writer, statement};
use crate::backend::{QueueBackend, Statement, column_names};
use crate::entity::QueueSql;
use crate::row::CRASHED;

/// Reads the pending rows whose next attempt is the soonest, or was the longest ago.
pub fn first_pending<DB: QueueBackend>(queue: &'static QueueSql<DB>, limit: i64) -> impl Statement<DB> {
    statement(queue, limit, |limit, sql| {
        sql.push("SELECT ")?;
        push_key_text(sql)?;
        sql.push(", ")?;
        sql.push_within(DB::AS_TEXT, "{.status}")?;
        sql.push(", {.try_count}, ")?;
        sql.push_microseconds("{statement_time}")?;
        sql.push(" - ")?;
        sql.push_microseconds("{.next_attempt_time}")?;
        sql.push(", ")?;
        match sql.queue.options.stages {
            Some(stages) => sql.within(DB::AS_TEXT, |sql| sql.push_with("{.}", &[stages.column]))?,
            None => sql.push_within(DB::AS_TEXT, "NULL")?,
        }
        push_first_pending(sql, limit)
    })
}

/// Reads how many characters the longest text of a column has among these rows.
pub fn longest_text<DB: QueueBackend>(
    queue: &'static QueueSql<DB>,
    column: &'static str,
    limit: i64,
) -> impl Statement<DB> {
    statement(queue, (column, limit), |(column, limit), sql| {
        sql.push("SELECT ")?;
        sql.within(DB::AS_INTEGER, |sql| {
            sql.within(("MAX(LENGTH(", "))"), |sql| sql.within(DB::AS_TEXT, |sql| sql.push_with("{}", &[column])))
        })?;
        sql.push_with(" FROM (SELECT {.}", &[column])?;
        push_first_pending(sql, limit)?;
        sql.push(") AS queueable_first")
    })
}

/// Counts the rows that have ended their process too often, among those with the highest keys.
pub fn poison_among_last<DB: QueueBackend>(queue: &'static QueueSql<DB>, limit: i64) -> impl Statement<DB> {
    statement(queue, limit, |limit, sql| {
        sql.push("SELECT COUNT(*) FROM (SELECT {status}, {last_attempt_error_message} FROM {table} ORDER BY ")?;
        let keys = column_names(sql.queue.key_columns, sql.out.backend())?;
        sql.each(&keys, ", ", |sql, key| sql.push_with("{} DESC", &[key]))?;
        sql.push_limit(limit)?;
        sql.push(") AS queueable_last WHERE {status} = 'FAILED' AND ")?;
        sql.push_within(DB::AS_TEXT, "{last_attempt_error_message}")?;
        sql.push_with(&format!(" LIKE '{CRASHED}%'"), &[])
    })
}

fn push_first_pending<'b, DB: QueueBackend>(sql: &mut Writer<'_, 'b, DB>, limit: &'b i64) -> QueryResult<()> {
    Walk::OLDEST.push_from(sql)?;
    sql.push("{.next_attempt_time} IS NOT NULL")?;
    Walk::OLDEST.push_order(sql, limit)
}
