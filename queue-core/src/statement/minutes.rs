//! The statements about the minutes in which pollers count what they have done.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::writer::{push_named, push_number, push_text, push_time, statement_on_no_queue};
use crate::backend::{QueueBackend, Statement, statement_time_plus};
use crate::event::Counts;
use crate::row::Instant;

/// The key of a row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MinuteKey {
    /// The queue's name.
    pub(crate) queue: String,
    /// When the period began.
    pub(crate) start: Instant,
    /// A number that tells what one poller has counted from what others have.
    pub(crate) part: i64,
    /// The stage's text; empty if the rows have none.
    pub(crate) stage: String,
}

impl MinuteKey {
    fn push_where<'b, DB: QueueBackend>(&'b self, out: &mut AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_text(out, " WHERE {queue} = ", &self.queue)?;
        push_time(out, " AND {period_start} = ", &self.start)?;
        push_number(out, " AND {part} = ", &self.part)?;
        push_text(out, " AND {stage} = ", &self.stage)
    }
}

fn push_columns<DB: QueueBackend>(out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
    Counts::columns().try_for_each(|column| push_named(out, &format!(", {{{column}}}")))
}

/// Sets the numbers of a row. Run twice, it changes nothing more.
pub(crate) fn update_minute<DB: QueueBackend>(key: &MinuteKey, counts: &Counts) -> impl Statement<DB> {
    statement_on_no_queue((key, counts), |(key, counts), mut out| {
        push_named(&mut out, "UPDATE {queueable_minutes} SET ")?;
        for (i, (column, number)) in Counts::columns().zip(counts.numbers()).enumerate() {
            push_number(&mut out, &format!("{}{{{column}}} = ", if i > 0 { ", " } else { "" }), number)?;
        }
        key.push_where(&mut out)
    })
}

/// Adds a row for a period of so many seconds.
pub(crate) fn insert_minute<DB: QueueBackend>(key: &MinuteKey, seconds: i32, counts: &Counts) -> impl Statement<DB> {
    statement_on_no_queue((key, seconds, counts), |(key, seconds, counts), mut out| {
        let out = &mut out;
        push_named(out, "INSERT INTO {queueable_minutes} ({queue}, {period_start}, {part}, {stage}, {seconds}")?;
        push_columns(out)?;
        push_text(out, ") VALUES (", &key.queue)?;
        push_time(out, ", ", &key.start)?;
        push_number(out, ", ", &key.part)?;
        push_text(out, ", ", &key.stage)?;
        out.push_sql(", ");
        DB::bind_integer(out, seconds)?;
        for number in counts.numbers() {
            push_number(out, ", ", number)?;
        }
        out.push_sql(")");
        Ok(())
    })
}

/// Removes a queue's minutes of these parts that began from one time until before another.
pub(crate) fn remove_minutes<DB: QueueBackend>(
    queue: &str,
    (from, to): (Instant, Instant),
    parts: &[i64],
) -> impl Statement<DB> {
    statement_on_no_queue((queue, from, to, parts), |(queue, from, to, parts), mut out| {
        let out = &mut out;
        push_text(out, "DELETE FROM {queueable_minutes} WHERE {queue} = ", queue)?;
        push_time(out, " AND {seconds} = 60 AND {period_start} >= ", from)?;
        push_time(out, " AND {period_start} < ", to)?;
        // Numbers of our own. Each list is a statement of its own, which is not worth keeping.
        out.unsafe_to_cache_prepared();
        let parts = parts.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
        push_named(out, &format!(" AND {{part}} IN ({parts})"))
    })
}

/// Removes a queue's rows whose periods began before this time.
pub(crate) fn remove_minutes_before<DB: QueueBackend>(queue: &str, before: Instant) -> impl Statement<DB> {
    statement_on_no_queue((queue, before), |(queue, before), mut out| {
        push_text(&mut out, "DELETE FROM {queueable_minutes} WHERE {queue} = ", queue)?;
        push_time(&mut out, " AND {period_start} < ", before)
    })
}

/// Reads when a queue's first minute began before this time, in microseconds since 1970.
pub(crate) fn first_minute<DB: QueueBackend>(queue: &str, before: Instant) -> impl Statement<DB> {
    statement_on_no_queue((queue, before), |(queue, before), mut out| {
        let out = &mut out;
        push_named(out, &format!("SELECT MIN({})", DB::MICROSECONDS_SINCE_1970.join("{period_start}")))?;
        push_text(out, " FROM {queueable_minutes} WHERE {queue} = ", queue)?;
        push_time(out, " AND {seconds} = 60 AND {period_start} < ", before)
    })
}

/// Reads one row, if the queue has any; or one into which the minutes of this hour were merged.
pub(crate) fn any_minute<DB: QueueBackend>(queue: &str, hour: Option<Instant>) -> impl Statement<DB> {
    statement_on_no_queue((queue, hour), |(queue, hour), mut out| {
        push_text(&mut out, "SELECT {part} FROM {queueable_minutes} WHERE {queue} = ", queue)?;
        if let Some(hour) = hour {
            push_time(&mut out, " AND {seconds} = 3600 AND {period_start} = ", hour)?;
        }
        out.push_sql(" LIMIT 1");
        Ok(())
    })
}

/// Locks and reads a queue's minutes that began from one time until before another: the start, the part, the stage, and the
/// numbers.
pub(crate) fn lock_minutes<DB: QueueBackend>(queue: &str, (from, to): (Instant, Instant)) -> impl Statement<DB> {
    statement_on_no_queue((queue, from, to), |(queue, from, to), mut out| {
        let out = &mut out;
        let start = DB::MICROSECONDS_SINCE_1970.join("{period_start}");
        push_named(out, &format!("SELECT {start}, {{part}}, {{stage}}"))?;
        push_columns(out)?;
        push_text(out, " FROM {queueable_minutes} WHERE {queue} = ", queue)?;
        push_time(out, " AND {seconds} = 60 AND {period_start} >= ", from)?;
        push_time(out, " AND {period_start} < ", to)?;
        out.push_sql(DB::ROW_LOCK);
        Ok(())
    })
}

/// Adds up what a queue has done in each period of so many seconds: those that began within a time, or all, the latest first.
/// Rows whose time is odd are left out.
pub(crate) fn read_minutes<DB: QueueBackend>(
    queue: &str,
    within: Option<i64>,
    seconds: u32,
    limit: u32,
) -> impl Statement<DB> {
    statement_on_no_queue((queue, within, seconds, limit), |(queue, within, seconds, limit), mut out| {
        let (out, period) = (&mut out, u64::from(*seconds) * 1_000_000);
        let start = format!("queueable_start - queueable_start % {period}");
        let (before, after) = DB::AS_INTEGER;
        out.push_sql(&format!("SELECT {start}, {before}0{after}, ''"));
        for column in Counts::columns() {
            out.push_sql(", ");
            push_named(out, &format!("{before}SUM({{{column}}}){after}"))?;
        }
        let time = DB::MICROSECONDS_SINCE_1970.join("{period_start}");
        push_named(out, &format!(" FROM (SELECT {time} AS queueable_start"))?;
        push_columns(out)?;
        push_text(out, " FROM {queueable_minutes} WHERE {queue} = ", queue)?;
        if let Some(microseconds) = within {
            push_named(out, " AND {period_start} >= ")?;
            push_named(out, &statement_time_plus::<DB>(-microseconds))?;
        }
        out.push_sql(") AS queueable_periods WHERE queueable_start IS NOT NULL GROUP BY ");
        out.push_sql(&format!("{start} ORDER BY {start} DESC LIMIT {limit}"));
        out.unsafe_to_cache_prepared();
        Ok(())
    })
}
