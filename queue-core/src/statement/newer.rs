//! Enqueues a row for a version, unless it is already queued for that version or a newer one.

use diesel::query_builder::QueryFragment;
use diesel::result::QueryResult;

use super::change::push_schedule;
use super::condition::StateCondition;
use super::writer::{Writer, statement};
use crate::backend::{QueueBackend, Statement};
use crate::entity::KeyedRow;
use crate::error::refused;
use crate::row::Status;

/// The state of a row that an operator has stopped, whatever it was before: a finished row has no text, unless it
/// failed or is skipped.
const STOPPED: [StateCondition; 3] = [
    StateCondition::NotPending,
    StateCondition::WithErrorText,
    StateCondition::In(&[Status::NotAttempted, Status::InProgress, Status::Error, Status::Success]),
];

/// Sets the version, and makes the row due, if the stored version is older, or null. A stopped row stays stopped.
pub fn enqueue_if_newer<DB: QueueBackend>(row: KeyedRow<DB>, version: impl QueryFragment<DB>) -> impl Statement<DB> {
    statement(row.queue, (row, version), |(row, version), sql| {
        let column = sql.queue.options.version.ok_or_else(|| refused("the queue has no version".to_owned()))?;
        sql.push_with("UPDATE {table} SET {} = ", &[column])?;
        version.walk_ast(sql.out.reborrow())?;
        sql.push(", ")?;
        // Assignments that read other columns come before those columns, because MySQL assigns from left to right and
        // reads what it has assigned.
        push_schedule(sql)?;
        push_next_attempt_time(sql)?;
        push_status(sql)?;
        push_fresh_start(sql)?;
        sql.push_is_key(" WHERE ", &row.is_key)?;
        sql.push_with(" AND ({.} IS NULL OR {.} < ", &[column])?;
        version.walk_ast(sql.out.reborrow())?;
        sql.push(") AND ")?;
        StateCondition::NotIn(&[Status::Skipped]).push(sql)
    })
}

/// Makes the row due now, unless it is stopped or leased.
fn push_next_attempt_time<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    sql.push("{next_attempt_time} = CASE WHEN ")?;
    sql.each(STOPPED, " AND ", |sql, state| state.push(sql))?;
    sql.push(" THEN NULL")?;
    if sql.queue.options.exclusive {
        push_when_leased(sql)?;
        sql.push("{next_attempt_time}")?;
    }
    sql.push(" ELSE {now} END, ")
}

/// Makes the row not attempted, unless it is leased.
fn push_status<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    if !sql.queue.options.exclusive {
        return sql.push("{status} = 'NOT_ATTEMPTED', ");
    }
    sql.push("{status} = CASE")?;
    push_when_leased(sql)?;
    sql.push("{status} ELSE 'NOT_ATTEMPTED' END, ")
}

/// Writes the columns that begin anew: the stage, the tries and the occasion, and the time of this write.
fn push_fresh_start<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    let options = sql.queue.options;
    if let Some((stages, first)) = options.stages.and_then(|stages| Some((stages, stages.names.first()?))) {
        sql.push_with("{} = ", &[stages.column])?;
        DB::bind_text(&mut sql.out, first)?;
        sql.push(", ")?;
    }
    // The tries are part of the fence, so a worker that holds the row loses it.
    sql.push("{try_count} = 0")?;
    if let Some(occasion) = options.occasion {
        sql.push_with(", {} = {} + 1", &[occasion])?;
    }
    sql.push_updated()
}

/// Writes ` WHEN .. THEN `, for a row that a worker holds under a lease. In an exclusive queue such a row keeps the
/// others out until its lease ends, because its call is still running.
fn push_when_leased<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    sql.push(" WHEN ")?;
    StateCondition::In(&[Status::InProgress]).push(sql)?;
    sql.push(" AND {.next_attempt_time} > {statement_time} THEN ")
}
