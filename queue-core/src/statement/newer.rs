//! Enqueues a row for a version, unless it is already queued for that version or a newer one.

use diesel::Column;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::change::{push_begun_schedule, push_next_occasion};
use super::condition::StateCondition;
use super::names::{push_column, push_names, push_table, push_updated};
use crate::backend::{QueueBackend, Statement};
use crate::entity::{Entity, HasVersion, StoredIn, TableIn};
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
pub struct EnqueueIfNewer<Q: Entity, V> {
    is_key: Q::IsKey,
    version: V,
}

impl<Q: Entity, V> EnqueueIfNewer<Q, V> {
    /// Enqueues the row with this key for this version.
    pub fn new(key: &Q::Key, version: V) -> Self {
        EnqueueIfNewer { is_key: Q::is_key(key.clone()), version }
    }
}

impl<Q, V, DB> Statement<DB> for EnqueueIfNewer<Q, V>
where
    Q: StoredIn<DB>,
    Q::Queue: HasVersion,
    DB: QueueBackend,
    V: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_table::<Q::Queue, DB>(&mut out, "UPDATE ")?;
        push_names(&mut out, " SET {} = ", &[version_column::<Q>()])?;
        self.version.walk_ast(out.reborrow())?;
        out.push_sql(", ");
        // Assignments that read other columns come before those columns, because MySQL assigns from left to right and
        // reads what it has assigned.
        push_schedule::<Q::Queue, DB>(&mut out)?;
        push_next_attempt_time::<Q::Queue, DB>(&mut out)?;
        push_status::<Q::Queue, DB>(&mut out)?;
        push_fresh_start::<Q::Queue, DB>(&mut out)?;
        out.push_sql(" WHERE ");
        self.is_key.walk_ast(out.reborrow())?;
        out.push_sql(" AND (");
        push_version::<Q, DB>(&mut out)?;
        out.push_sql(" IS NULL OR ");
        push_version::<Q, DB>(&mut out)?;
        out.push_sql(" < ");
        self.version.walk_ast(out.reborrow())?;
        out.push_sql(") AND ");
        StateCondition::NotIn(&[Status::Skipped]).push::<Q::Queue, DB>(&mut out)
    }
}

fn version_column<Q: Entity<Queue: HasVersion>>() -> &'static str {
    <<Q::Queue as HasVersion>::Column as Column>::NAME
}

/// Writes the stored version, with its table's name.
fn push_version<Q, DB>(out: &mut AstPass<'_, '_, DB>) -> QueryResult<()>
where
    Q: StoredIn<DB>,
    Q::Queue: HasVersion,
    DB: QueueBackend,
{
    push_column::<Q::Queue, DB>(out, version_column::<Q>())
}

/// Writes the scheduled time, if rows have schedules.
fn push_schedule<T: TableIn<DB>, DB: QueueBackend>(out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
    let Some(periodic) = T::OPTIONS.periodic else { return Ok(()) };
    push_names(out, "{} = ", &[periodic.scheduled_time])?;
    push_begun_schedule(periodic, T::COLUMNS, out)?;
    out.push_sql(", ");
    Ok(())
}

/// Makes the row due now, unless it is stopped or leased.
fn push_next_attempt_time<T: TableIn<DB>, DB: QueueBackend>(out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
    push_names(out, "{} = CASE WHEN ", &[T::COLUMNS.next_attempt_time])?;
    for (number, state) in STOPPED.into_iter().enumerate() {
        out.push_sql(if number == 0 { "" } else { " AND " });
        state.push::<T, DB>(out)?;
    }
    out.push_sql(" THEN NULL");
    if T::OPTIONS.exclusive {
        push_when_leased::<T, DB>(out)?;
        out.push_identifier(T::COLUMNS.next_attempt_time)?;
    }
    out.push_sql(" ELSE ");
    out.push_sql(DB::NOW);
    out.push_sql(" END, ");
    Ok(())
}

/// Makes the row not attempted, unless it is leased.
fn push_status<T: TableIn<DB>, DB: QueueBackend>(out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
    let exclusive = T::OPTIONS.exclusive;
    push_names(out, "{} = ", &[T::COLUMNS.status])?;
    if exclusive {
        out.push_sql("CASE");
        push_when_leased::<T, DB>(out)?;
        push_names(out, "{} ELSE ", &[T::COLUMNS.status])?;
    }
    out.push_sql("'");
    out.push_sql(Status::NotAttempted.as_str());
    out.push_sql(if exclusive { "' END, " } else { "', " });
    Ok(())
}

/// Writes the columns that begin anew: the stage, the tries and the occasion, and the time of this write.
fn push_fresh_start<T: TableIn<DB>, DB: QueueBackend>(out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
    let options = T::OPTIONS;
    if let Some((stages, first)) = options.stages.and_then(|stages| Some((stages, stages.names.first()?))) {
        push_names(out, "{} = ", &[stages.column])?;
        DB::bind_text(out, first)?;
        out.push_sql(", ");
    }
    // The tries are part of the fence, so a worker that holds the row loses it.
    push_names(out, "{} = 0", &[T::COLUMNS.try_count])?;
    if let Some(occasion) = options.occasion {
        push_names(out, ", {} = ", &[occasion])?;
        push_next_occasion(occasion, out)?;
    }
    push_updated::<T, DB>(out, ", ", "")
}

/// Writes ` WHEN .. THEN `, for a row that a worker holds under a lease. In an exclusive queue such a row keeps the
/// others out until its lease ends, because its call is still running.
fn push_when_leased<T: TableIn<DB>, DB: QueueBackend>(out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
    out.push_sql(" WHEN ");
    StateCondition::In(&[Status::InProgress]).push::<T, DB>(out)?;
    out.push_sql(" AND ");
    StateCondition::Scheduled.push::<T, DB>(out)?;
    out.push_sql(" THEN ");
    Ok(())
}
