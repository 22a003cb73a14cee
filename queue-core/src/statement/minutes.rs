//! The statements about the minutes in which pollers count what they have done.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::writer::{push_named, statement_on_no_queue};
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
        push_named(out, " WHERE {queue} = ")?;
        DB::bind_text(out, &self.queue)?;
        push_named(out, " AND {period_start} = ")?;
        DB::bind_time(out, &self.start)?;
        push_named(out, " AND {part} = ")?;
        DB::bind_big_integer(out, &self.part)?;
        push_named(out, " AND {stage} = ")?;
        DB::bind_text(out, &self.stage)
    }
}

/// Sets the numbers of a row. Run twice, it changes nothing more.
pub(crate) fn update_minute<DB: QueueBackend>(key: &MinuteKey, counts: &Counts) -> impl Statement<DB> {
    statement_on_no_queue((key, counts), |(key, counts), mut out| {
        push_named(&mut out, "UPDATE {queueable_minutes} SET ")?;
        for (i, (column, number)) in Counts::columns().zip(counts.numbers()).enumerate() {
            out.push_sql(if i > 0 { ", " } else { "" });
            out.push_identifier(&column)?;
            out.push_sql(" = ");
            DB::bind_big_integer(&mut out, number)?;
        }
        key.push_where(&mut out)
    })
}

/// Adds a row for a period of so many seconds.
pub(crate) fn insert_minute<DB: QueueBackend>(key: &MinuteKey, seconds: i32, counts: &Counts) -> impl Statement<DB> {
    statement_on_no_queue((key, seconds, counts), |(key, seconds, counts), mut out| {
        let out = &mut out;
        push_named(out, "INSERT INTO {queueable_minutes} ({queue}, {period_start}, {part}, {stage}, {seconds}")?;
        for column in Counts::columns() {
            out.push_sql(", ");
            out.push_identifier(&column)?;
        }
        out.push_sql(") VALUES (");
        DB::bind_text(out, &key.queue)?;
        out.push_sql(", ");
        DB::bind_time(out, &key.start)?;
        out.push_sql(", ");
        DB::bind_big_integer(out, &key.part)?;
        out.push_sql(", ");
        DB::bind_text(out, &key.stage)?;
        out.push_sql(", ");
        DB::bind_integer(out, seconds)?;
        for number in counts.numbers() {
            out.push_sql(", ");
            DB::bind_big_integer(out, number)?;
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
        push_named(out, "DELETE FROM {queueable_minutes} WHERE {queue} = ")?;
        DB::bind_text(out, queue)?;
        push_named(out, " AND {seconds} = 60 AND {period_start} >= ")?;
        DB::bind_time(out, from)?;
        push_named(out, " AND {period_start} < ")?;
        DB::bind_time(out, to)?;
        // Numbers of our own. Each list is a statement of its own, which is not worth keeping.
        out.unsafe_to_cache_prepared();
        push_named(out, " AND {part} IN (")?;
        for (i, part) in parts.iter().enumerate() {
            out.push_sql(&format!("{}{part}", if i > 0 { ", " } else { "" }));
        }
        out.push_sql(")");
        Ok(())
    })
}

/// Removes a queue's rows whose periods began before this time.
pub(crate) fn remove_minutes_before<DB: QueueBackend>(queue: &str, before: Instant) -> impl Statement<DB> {
    statement_on_no_queue((queue, before), |(queue, before), mut out| {
        push_named(&mut out, "DELETE FROM {queueable_minutes} WHERE {queue} = ")?;
        DB::bind_text(&mut out, queue)?;
        push_named(&mut out, " AND {period_start} < ")?;
        DB::bind_time(&mut out, before)
    })
}

/// Reads when a queue's first minute began before this time, in microseconds since 1970.
pub(crate) fn first_minute<DB: QueueBackend>(queue: &str, before: Instant) -> impl Statement<DB> {
    statement_on_no_queue((queue, before), |(queue, before), mut out| {
        let out = &mut out;
        push_named(out, &format!("SELECT MIN({})", DB::MICROSECONDS_SINCE_1970.join("{period_start}")))?;
        push_named(out, " FROM {queueable_minutes} WHERE {queue} = ")?;
        DB::bind_text(out, queue)?;
        push_named(out, " AND {seconds} = 60 AND {period_start} < ")?;
        DB::bind_time(out, before)
    })
}

/// Reads one row, if the queue has any.
pub(crate) fn any_minute<DB: QueueBackend>(queue: &str) -> impl Statement<DB> {
    statement_on_no_queue(queue, |queue, mut out| {
        push_named(&mut out, "SELECT {part} FROM {queueable_minutes} WHERE {queue} = ")?;
        DB::bind_text(&mut out, queue)?;
        out.push_sql(" LIMIT 1");
        Ok(())
    })
}

/// Locks and reads a queue's minutes that began from one time until before another: the start, the part, the stage, and the
/// numbers.
pub(crate) fn lock_minutes<DB: QueueBackend>(queue: &str, (from, to): (Instant, Instant)) -> impl Statement<DB> {
    statement_on_no_queue((queue, from, to), |(queue, from, to), mut out| {
        let out = &mut out;
        push_named(out, "SELECT ")?;
        push_named(out, &DB::MICROSECONDS_SINCE_1970.join("{period_start}"))?;
        push_named(out, ", {part}, {stage}")?;
        for column in Counts::columns() {
            out.push_sql(", ");
            out.push_identifier(&column)?;
        }
        push_named(out, " FROM {queueable_minutes} WHERE {queue} = ")?;
        DB::bind_text(out, queue)?;
        push_named(out, " AND {seconds} = 60 AND {period_start} >= ")?;
        DB::bind_time(out, from)?;
        push_named(out, " AND {period_start} < ")?;
        DB::bind_time(out, to)?;
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
        out.push_sql(" FROM (SELECT ");
        push_named(out, &DB::MICROSECONDS_SINCE_1970.join("{period_start}"))?;
        out.push_sql(" AS queueable_start");
        for column in Counts::columns() {
            out.push_sql(", ");
            out.push_identifier(&column)?;
        }
        push_named(out, " FROM {queueable_minutes} WHERE {queue} = ")?;
        DB::bind_text(out, queue)?;
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
