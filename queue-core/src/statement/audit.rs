//! The statements about the audit: what operators have changed, in a table of the library's own.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::writer::{push_named, push_number, push_text, push_time, statement_on_no_queue};
use crate::backend::{QueueBackend, Statement};
use crate::row::Instant;

/// A row of the audit, without its number of rows.
#[derive(Debug)]
pub struct AuditEntry {
    /// When the operator asked, by the database's clock.
    pub at: Instant,
    /// A random number that tells it from other rows of the same time.
    pub id: i64,
    /// Who asked.
    pub by: String,
    /// Why.
    pub reason: String,
    /// The queue's name.
    pub queue: String,
    /// The call, and its argument.
    pub action: String,
    /// The conditions that picked the rows.
    pub filter: String,
}

/// Adds a row.
pub fn insert_audit<DB: QueueBackend>(entry: &AuditEntry, rows: i64) -> impl Statement<DB> {
    statement_on_no_queue((entry, rows), |(entry, rows), mut out| {
        let out = &mut out;
        push_named(out, "INSERT INTO {queueable_audit} ({changed_at}, {id}, {changed_by}, {reason}, {queue}, ")?;
        push_time(out, "{action}, {filter}, {row_count}) VALUES (", &entry.at)?;
        push_number(out, ", ", &entry.id)?;
        for text in [&entry.by, &entry.reason, &entry.queue, &entry.action, &entry.filter] {
            push_text(out, ", ", text)?;
        }
        push_number(out, ", ", rows)?;
        out.push_sql(")");
        Ok(())
    })
}

/// Sets the number of rows.
pub fn update_audit<DB: QueueBackend>(entry: &AuditEntry, rows: i64) -> impl Statement<DB> {
    statement_on_no_queue((entry, rows), |(entry, rows), mut out| {
        let out = &mut out;
        push_number(out, "UPDATE {queueable_audit} SET {row_count} = ", rows)?;
        push_time(out, " WHERE {changed_at} = ", &entry.at)?;
        push_number(out, " AND {id} = ", &entry.id)
    })
}

/// Reads rows along the key, the newest first: of one queue or of all, from the newest or after a row, which its time as text and
/// its number name. Rows whose time is odd are left out.
pub fn read_audit<DB: QueueBackend>(
    queue: Option<&str>,
    after: Option<&(String, i64)>,
    limit: i64,
) -> impl Statement<DB> {
    statement_on_no_queue((queue, after, limit), |(queue, after, limit), mut out| {
        let out = &mut out;
        let microseconds = DB::MICROSECONDS_SINCE_1970.join("{changed_at}");
        push_named(out, &format!("SELECT {microseconds}, {}{{changed_at}}", DB::TEXT_OF_TIME.0))?;
        out.push_sql(DB::TEXT_OF_TIME.1);
        push_named(out, ", {id}, {changed_by}, {reason}, {queue}, {action}, {filter}, ")?;
        let (before, behind) = DB::AS_INTEGER;
        push_named(out, &format!("{before}{{row_count}}{behind} FROM {{queueable_audit}} WHERE {microseconds}"))?;
        out.push_sql(" IS NOT NULL");
        if let Some(queue) = queue {
            push_text(out, " AND {queue} = ", queue)?;
        }
        if let Some((time, id)) = after {
            // A range for the key, and within it what comes after the row.
            for before in [" AND {changed_at} <= ", " AND ({changed_at} < "] {
                push_named(out, before)?;
                push_time_of(out, time)?;
            }
            push_number(out, " OR {id} < ", id)?;
            out.push_sql(")");
        }
        push_number(out, " ORDER BY {changed_at} DESC, {id} DESC LIMIT ", limit)
    })
}

/// Writes a time that is given as the text that [`TEXT_OF_TIME`](crate::backend::TimeSql::TEXT_OF_TIME) makes of it.
fn push_time_of<'b, DB: QueueBackend>(out: &mut AstPass<'_, 'b, DB>, text: &'b str) -> QueryResult<()> {
    out.push_sql(DB::TIME_OF_TEXT.0);
    DB::bind_text(out, text)?;
    out.push_sql(DB::TIME_OF_TEXT.1);
    Ok(())
}
