//! Enqueues a row for a version, unless it is already queued for that version or a newer one.

use diesel::Column;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::change::{push_begun_schedule, push_next_occasion};
use super::condition::StateCondition;
use super::names::{push_column, push_names, push_table, push_updated};
use crate::backend::{QueueBackend, Statement};
use crate::entity::{HasVersion, KeyedRow, QueueSql};
use crate::row::Status;

/// The state of a row that an operator has stopped, whatever it was before: a finished row has no text, unless it
/// failed or is skipped.
const STOPPED: [StateCondition; 3] = [
    StateCondition::NotPending,
    StateCondition::WithErrorText,
    StateCondition::In(&[Status::NotAttempted, Status::InProgress, Status::Error, Status::Success]),
];

/// The update. It sets the version and makes the row due if the stored version is older, or null. A stopped row stays
/// stopped.
pub struct EnqueueIfNewer<DB: QueueBackend, V> {
    column: &'static str,
    row: KeyedRow<DB>,
    version: V,
}

impl<DB: QueueBackend, V> EnqueueIfNewer<DB, V> {
    /// Enqueues this row of the queue `Q` for this version.
    pub fn new<Q: HasVersion>(row: KeyedRow<DB>, version: V) -> Self {
        EnqueueIfNewer { column: Q::Column::NAME, row, version }
    }
}

impl<V: QueryFragment<DB>, DB: QueueBackend> Statement<DB> for EnqueueIfNewer<DB, V> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.row.queue;
        push_table(queue, &mut out, "UPDATE ")?;
        push_names(&mut out, " SET {} = ", &[self.column])?;
        self.version.walk_ast(out.reborrow())?;
        out.push_sql(", ");
        // Assignments that read other columns come before those columns, because MySQL assigns from left to right and
        // reads what it has assigned.
        push_schedule(queue, &mut out)?;
        push_next_attempt_time(queue, &mut out)?;
        push_status(queue, &mut out)?;
        push_fresh_start(queue, &mut out)?;
        out.push_sql(" WHERE ");
        self.row.is_key.walk_ast(out.reborrow())?;
        out.push_sql(" AND (");
        push_column(queue, &mut out, self.column)?;
        out.push_sql(" IS NULL OR ");
        push_column(queue, &mut out, self.column)?;
        out.push_sql(" < ");
        self.version.walk_ast(out.reborrow())?;
        out.push_sql(") AND ");
        StateCondition::NotIn(&[Status::Skipped]).push(queue, &mut out)
    }
}

/// Writes the scheduled time, if rows have schedules.
fn push_schedule<DB: QueueBackend>(queue: &QueueSql<DB>, out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
    let Some(periodic) = queue.options.periodic else { return Ok(()) };
    push_names(out, "{} = ", &[periodic.scheduled_time])?;
    push_begun_schedule(periodic, queue.names, out)?;
    out.push_sql(", ");
    Ok(())
}

/// Makes the row due now, unless it is stopped or leased.
fn push_next_attempt_time<DB: QueueBackend>(queue: &QueueSql<DB>, out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
    push_names(out, "{} = CASE WHEN ", &[queue.names.next_attempt_time])?;
    for (number, state) in STOPPED.into_iter().enumerate() {
        out.push_sql(if number == 0 { "" } else { " AND " });
        state.push(queue, out)?;
    }
    out.push_sql(" THEN NULL");
    if queue.options.exclusive {
        push_when_leased(queue, out)?;
        out.push_identifier(queue.names.next_attempt_time)?;
    }
    out.push_sql(" ELSE ");
    out.push_sql(DB::NOW);
    out.push_sql(" END, ");
    Ok(())
}

/// Makes the row not attempted, unless it is leased.
fn push_status<DB: QueueBackend>(queue: &QueueSql<DB>, out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
    let exclusive = queue.options.exclusive;
    push_names(out, "{} = ", &[queue.names.status])?;
    if exclusive {
        out.push_sql("CASE");
        push_when_leased(queue, out)?;
        push_names(out, "{} ELSE ", &[queue.names.status])?;
    }
    out.push_sql("'");
    out.push_sql(Status::NotAttempted.as_str());
    out.push_sql(if exclusive { "' END, " } else { "', " });
    Ok(())
}

/// Writes the columns that begin anew: the stage, the tries and the occasion, and the time of this write.
fn push_fresh_start<DB: QueueBackend>(queue: &QueueSql<DB>, out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
    let options = queue.options;
    if let Some((stages, first)) = options.stages.and_then(|stages| Some((stages, stages.names.first()?))) {
        push_names(out, "{} = ", &[stages.column])?;
        DB::bind_text(out, first)?;
        out.push_sql(", ");
    }
    // The tries are part of the fence, so a worker that holds the row loses it.
    push_names(out, "{} = 0", &[queue.names.try_count])?;
    if let Some(occasion) = options.occasion {
        push_names(out, ", {} = ", &[occasion])?;
        push_next_occasion(occasion, out)?;
    }
    push_updated(queue, out, ", ", "")
}

/// Writes ` WHEN .. THEN `, for a row that a worker holds under a lease. In an exclusive queue such a row keeps the
/// others out until its lease ends, because its call is still running.
fn push_when_leased<DB: QueueBackend>(queue: &QueueSql<DB>, out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
    out.push_sql(" WHEN ");
    StateCondition::In(&[Status::InProgress]).push(queue, out)?;
    out.push_sql(" AND ");
    StateCondition::Scheduled.push(queue, out)?;
    out.push_sql(" THEN ");
    Ok(())
}
