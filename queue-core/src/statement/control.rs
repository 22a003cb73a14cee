//! The statements about the control table: pauses, limits, and the environment's name.

use super::writer::{push_named, push_text, statement_on_no_queue};
use crate::backend::{QueueBackend, Statement, now, push_now_plus, statement_time};
use crate::row::Instant;
use diesel::query_builder::AstPass;
use diesel::result::QueryResult;
use std::time::Duration;

/// The name under which the control table has what is not about a queue. No queue has it: a queue's name has a full stop.
pub(crate) const NO_QUEUE: &str = "queueable";

/// Reads the rows of one queue or of all, also those whose pause has ended.
pub fn read_control<DB: QueueBackend>(queue: Option<&str>) -> impl Statement<DB> {
    statement_on_no_queue(queue, |queue, mut out| {
        let out = &mut out;
        let (before, after) = DB::AS_INTEGER;
        push_named(out, "SELECT {queue}, {scope}, {paused_by}, {pause_reason}, {paused_value}, ")?;
        for time in ["{paused_at}", "{paused_until}"] {
            push_named(out, &format!("{before}CASE WHEN {time} IS NULL THEN 0 ELSE 1 END{after}, "))?;
        }
        for time in ["{paused_at}", "{paused_until}", &*statement_time::<DB>()] {
            push_named(out, &DB::MICROSECONDS_SINCE_1970.join(time))?;
            out.push_sql(", ");
        }
        push_named(out, "{limited_by}, {limit_reason}, ")?;
        push_named(out, &DB::MICROSECONDS_SINCE_1970.join("{limited_at}"))?;
        for limit in ["{workers}", "{at_most}", "{retry_delay_ms}"] {
            push_named(out, &format!(", {before}{limit}{after}"))?;
        }
        push_named(out, ", {environment} FROM {queueable_control}")?;
        if let Some(queue) = queue {
            push_text(out, " WHERE {queue} = ", queue)?;
        }
        push_named(out, " ORDER BY {queue}, {scope}")
    })
}

/// Writes the limits of a queue from now on. If there are some already, these take their place.
pub struct SetLimits<'a> {
    /// The queue's name.
    pub queue: &'a str,
    /// Who limits it.
    pub by: &'a str,
    /// Why.
    pub reason: &'a str,
    /// How many workers of each process.
    pub workers: Option<i64>,
    /// How many rows at the same time.
    pub at_most: Option<i64>,
    /// How many milliseconds until a retry.
    pub retry_delay_ms: Option<i64>,
}

impl<DB: QueueBackend> Statement<DB> for SetLimits<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let out = &mut out;
        let columns = ["limited_at", "limited_by", "limit_reason", "workers", "at_most", "retry_delay_ms"];
        push_named(out, "INSERT INTO {queueable_control} ({queue}, {scope}")?;
        columns.iter().try_for_each(|column| push_named(out, &format!(", {{{column}}}")))?;
        push_text(out, ") VALUES (", self.queue)?;
        push_named(out, &format!(", '', {}", now::<DB>()))?;
        for text in [self.by, self.reason] {
            push_text(out, ", ", text)?;
        }
        for number in [&self.workers, &self.at_most, &self.retry_delay_ms] {
            out.push_sql(", ");
            match number {
                Some(number) => DB::bind_big_integer(out, number)?,
                None => out.push_sql("NULL"),
            }
        }
        out.push_sql(")");
        push_named(out, DB::ON_SAME_KEY)?;
        push_inserted(out, &columns)
    }
}

/// Writes that these columns take the values that were to be inserted.
fn push_inserted<DB: QueueBackend>(out: &mut AstPass<'_, '_, DB>, columns: &[&str]) -> QueryResult<()> {
    let (before, after) = DB::INSERTED;
    let changes = columns.iter().map(|column| format!("{{{column}}} = {before}{{{column}}}{after}"));
    push_named(out, &changes.collect::<Vec<_>>().join(", "))
}

/// Ends the limits of a queue.
pub fn end_limits<DB: QueueBackend>(queue: &str) -> impl Statement<DB> {
    statement_on_no_queue(queue, |queue, mut out| {
        let out = &mut out;
        push_named(out, "UPDATE {queueable_control} SET {limited_at} = NULL, {limited_by} = NULL, ")?;
        push_named(out, "{limit_reason} = NULL, {workers} = NULL, {at_most} = NULL, {retry_delay_ms} = NULL ")?;
        push_text(out, "WHERE {limited_at} IS NOT NULL AND {scope} = '' AND {queue} = ", queue)
    })
}

/// Writes the environment's name. `replaces`: also if there is one already.
pub fn set_environment<DB: QueueBackend>(name: &str, replaces: bool) -> impl Statement<DB> {
    statement_on_no_queue((name, replaces), |(name, replaces), mut out| {
        let out = &mut out;
        push_named(out, "INSERT INTO {queueable_control} ({queue}, {scope}, {environment}) VALUES ('")?;
        out.push_sql(NO_QUEUE);
        push_text(out, "', '', ", name)?;
        out.push_sql(")");
        push_named(out, DB::ON_SAME_KEY)?;
        if *replaces {
            return push_inserted(out, &["environment"]);
        }
        let (before, after) = DB::INSERTED;
        let inserted = format!("{before}{{environment}}{after}");
        push_named(out, &format!("{{environment}} = COALESCE({{queueable_control}}.{{environment}}, {inserted})"))
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
    /// The value whose rows are paused, as people read it.
    pub value: Option<&'a str>,
    /// When it ends by itself.
    pub end: PauseEnd,
}

impl<DB: QueueBackend> Statement<DB> for SetPause<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let out = &mut out;
        push_named(out, "INSERT INTO {queueable_control} ({queue}, {scope}, {paused_at}, {paused_until}, ")?;
        push_text(out, "{paused_by}, {pause_reason}, {paused_value}) VALUES (", self.queue)?;
        push_text(out, ", ", self.scope)?;
        push_named(out, &format!(", {}, ", now::<DB>()))?;
        match &self.end {
            PauseEnd::Never => out.push_sql("NULL"),
            PauseEnd::At(time) => DB::bind_time(out, time)?,
            PauseEnd::After(time) => push_now_plus(out, *time),
        }
        push_text(out, ", ", self.by)?;
        push_text(out, ", ", self.reason)?;
        out.push_sql(", ");
        match self.value {
            Some(value) => DB::bind_text(out, value)?,
            None => out.push_sql("NULL"),
        }
        out.push_sql(")");
        push_named(out, DB::ON_SAME_KEY)?;
        push_inserted(out, &["paused_at", "paused_until", "paused_by", "pause_reason", "paused_value"])
    }
}

/// Ends the pause of a queue or of a part of it; of the whole if `scope` is empty. The row stays: it may say more about the
/// queue than the pause.
pub fn end_pause<DB: QueueBackend>(queue: &str, scope: &str) -> impl Statement<DB> {
    statement_on_no_queue((queue, scope), |(queue, scope), mut out| {
        let out = &mut out;
        push_named(out, "UPDATE {queueable_control} SET {paused_at} = NULL, {paused_until} = NULL, ")?;
        push_named(out, "{paused_by} = NULL, {pause_reason} = NULL, {paused_value} = NULL ")?;
        push_text(out, "WHERE {paused_at} IS NOT NULL AND {queue} = ", queue)?;
        push_text(out, " AND {scope} = ", scope)
    })
}
