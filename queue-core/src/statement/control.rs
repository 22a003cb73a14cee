//! Reads, sets and ends pauses of queues in the control table.

use std::time::Duration;

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::writer::{push_named, statement_on_no_queue};
use crate::backend::{QueueBackend, Statement, push_now_plus};
use crate::row::Instant;

/// Reads the pauses of one queue or of all, also those whose end has come.
pub fn read_pauses<DB: QueueBackend>(queue: Option<&str>) -> impl Statement<DB> {
    statement_on_no_queue(queue, |queue, mut out| {
        let out = &mut out;
        push_named(out, "SELECT {queue}, {scope}, {paused_by}, {pause_reason}, ")?;
        let (before, after) = DB::AS_INTEGER;
        push_named(out, &format!("{before}CASE WHEN {{paused_until}} IS NULL THEN 0 ELSE 1 END{after}"))?;
        for time in ["{paused_at}", "{paused_until}", DB::STATEMENT_TIME] {
            out.push_sql(", ");
            push_named(out, &DB::MICROSECONDS_SINCE_1970.join(time))?;
        }
        push_named(out, " FROM {queueable_control} WHERE {paused_at} IS NOT NULL")?;
        if let Some(queue) = queue {
            push_named(out, " AND {queue} = ")?;
            DB::bind_text(out, queue)?;
        }
        push_named(out, " ORDER BY {queue}, {scope}")
    })
}

/// When a pause ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseEnd {
    /// It does not.
    Never,
    /// At this time.
    At(Instant),
    /// After this time.
    After(Duration),
}

/// Writes a pause from now on. If there is one already, this one takes its place.
pub struct SetPause<'a> {
    /// The queue's name.
    pub queue: &'a str,
    /// The part of the queue; empty for the whole.
    pub scope: &'a str,
    /// Who pauses it.
    pub by: &'a str,
    /// Why.
    pub reason: &'a str,
    /// When it ends by itself.
    pub end: PauseEnd,
}

impl<DB: QueueBackend> Statement<DB> for SetPause<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let out = &mut out;
        push_named(
            out,
            "INSERT INTO {queueable_control} ({queue}, {scope}, {paused_at}, {paused_until}, {paused_by}, ",
        )?;
        push_named(out, "{pause_reason}) VALUES (")?;
        DB::bind_text(out, self.queue)?;
        out.push_sql(", ");
        DB::bind_text(out, self.scope)?;
        out.push_sql(", ");
        out.push_sql(DB::NOW);
        out.push_sql(", ");
        match &self.end {
            PauseEnd::Never => out.push_sql("NULL"),
            PauseEnd::At(time) => DB::bind_time(out, time)?,
            PauseEnd::After(time) => push_now_plus(out, *time),
        }
        out.push_sql(", ");
        DB::bind_text(out, self.by)?;
        out.push_sql(", ");
        DB::bind_text(out, self.reason)?;
        out.push_sql(")");
        push_named(out, DB::ON_SAME_KEY)?;
        let (before, after) = DB::INSERTED;
        let columns = ["paused_at", "paused_until", "paused_by", "pause_reason"];
        push_named(out, &columns.map(|column| format!("{{{column}}} = {before}{{{column}}}{after}")).join(", "))
    }
}

/// Ends the pause of a queue or of a part of it; of the whole if `scope` is empty. The row stays: it may say more about the
/// queue than the pause.
pub fn end_pause<DB: QueueBackend>(queue: &str, scope: &str) -> impl Statement<DB> {
    statement_on_no_queue((queue, scope), |(queue, scope), mut out| {
        let out = &mut out;
        push_named(
            out,
            "UPDATE {queueable_control} SET {paused_at} = NULL, {paused_until} = NULL, {paused_by} = NULL, ",
        )?;
        push_named(out, "{pause_reason} = NULL WHERE {paused_at} IS NOT NULL AND {queue} = ")?;
        DB::bind_text(out, queue)?;
        push_named(out, " AND {scope} = ")?;
        DB::bind_text(out, scope)
    })
}
