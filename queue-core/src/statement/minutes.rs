//! The statements about the minutes in which pollers count what they have done.

use super::own_tables::Value::{self, Integer, Number, Once, Text, Time};
use super::own_tables::{insert, integer, listed, own_statement, since_1970};
use crate::backend::{OwnTable, QueueBackend, Statement, statement_time_plus};
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
    fn values(&self) -> [Value<'_>; 4] {
        [Text(&self.queue), Time(self.start), Number(self.part), Text(&self.stage)]
    }
}

/// Sets the numbers of a row. Run twice, it changes nothing more.
pub(crate) fn update_minute<DB: QueueBackend>(key: &MinuteKey, counts: &Counts) -> impl Statement<DB> {
    let text = format!(
        "UPDATE {{queueable_minutes}} SET {} WHERE {{queue}} = ? AND {{period_start}} = ? AND {{part}} = ? AND {{stage}} = ?",
        numbers(|column| format!("{{{column}}} = ?"))
    );
    own_statement(text, counts.numbers().copied().map(Number).chain(key.values()).collect())
}

/// Adds a row for a period of so many seconds.
pub(crate) fn insert_minute<DB: QueueBackend>(key: &MinuteKey, seconds: i32, counts: &Counts) -> impl Statement<DB> {
    let values = key.values().into_iter().chain([Integer(seconds)]).chain(counts.numbers().copied().map(Number));
    own_statement(insert(OwnTable::Minutes, &OwnTable::Minutes.columns()), values.collect())
}

/// Removes a queue's minutes of these parts that began from one time until before another.
pub(crate) fn remove_minutes<DB: QueueBackend>(
    queue: &str,
    (from, to): (Instant, Instant),
    parts: &[i64],
) -> impl Statement<DB> {
    let parts = parts.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    own_statement(
        "DELETE FROM {queueable_minutes} WHERE {queue} = ? AND {seconds} = 60 AND {period_start} >= ? AND {period_start} < ? \
         AND {part} IN (?)",
        vec![Text(queue), Time(from), Time(to), Once(parts)],
    )
}

/// Removes a queue's rows whose periods began before this time.
pub(crate) fn remove_minutes_before<DB: QueueBackend>(queue: &str, before: Instant) -> impl Statement<DB> {
    own_statement(
        "DELETE FROM {queueable_minutes} WHERE {queue} = ? AND {period_start} < ?",
        vec![Text(queue), Time(before)],
    )
}

/// Reads when a queue's first minute began before this time, in microseconds since 1970.
pub(crate) fn first_minute<DB: QueueBackend>(queue: &str, before: Instant) -> impl Statement<DB> {
    let text = format!(
        "SELECT MIN({}) FROM {{queueable_minutes}} WHERE {{queue}} = ? AND {{seconds}} = 60 AND {{period_start}} < ?",
        since_1970::<DB>("{period_start}")
    );
    own_statement(text, vec![Text(queue), Time(before)])
}

/// Reads one row, if the queue has any; or one into which the minutes of this hour were merged.
pub(crate) fn any_minute<DB: QueueBackend>(queue: &str, hour: Option<Instant>) -> impl Statement<DB> {
    let of_hour = if hour.is_some() { " AND {seconds} = 3600 AND {period_start} = ?" } else { "" };
    let text = format!("SELECT {{part}} FROM {{queueable_minutes}} WHERE {{queue}} = ?{of_hour} LIMIT 1");
    own_statement(text, [Text(queue)].into_iter().chain(hour.map(Time)).collect())
}

/// Locks and reads a queue's minutes that began from one time until before another: the start, the part, the stage, and the
/// numbers.
pub(crate) fn lock_minutes<DB: QueueBackend>(queue: &str, (from, to): (Instant, Instant)) -> impl Statement<DB> {
    let text = format!(
        "SELECT {}, {{part}}, {{stage}}, {} FROM {{queueable_minutes}} WHERE {{queue}} = ? AND {{seconds}} = 60 \
         AND {{period_start}} >= ? AND {{period_start}} < ?{}",
        since_1970::<DB>("{period_start}"),
        numbers(|column| format!("{{{column}}}")),
        DB::ROW_LOCK
    );
    own_statement(text, vec![Text(queue), Time(from), Time(to)])
}

/// Adds up what a queue has done in each period of so many seconds: those that began within a time, or all, the latest first.
/// Rows whose time is odd are left out.
pub(crate) fn read_minutes<DB: QueueBackend>(
    queue: &str,
    within: Option<i64>,
    seconds: u32,
    limit: u32,
) -> impl Statement<DB> {
    let start = format!("queueable_start - queueable_start % {}", u64::from(seconds) * 1_000_000);
    let text = format!(
        "SELECT {start}, {zero}, '', {sums} FROM (SELECT {period} AS queueable_start, {numbers} FROM {{queueable_minutes}} \
         WHERE {{queue}} = ?{within}) AS queueable_periods WHERE queueable_start IS NOT NULL GROUP BY {start} \
         ORDER BY {start} DESC LIMIT ?",
        zero = integer::<DB>("0"),
        sums = numbers(|column| integer::<DB>(&format!("SUM({{{column}}})"))),
        period = since_1970::<DB>("{period_start}"),
        numbers = numbers(|column| format!("{{{column}}}")),
        within = if within.is_some() { " AND {period_start} >= ?" } else { "" },
    );
    let within = within.map(|microseconds| Once(statement_time_plus::<DB>(-microseconds)));
    own_statement(text, [Text(queue)].into_iter().chain(within).chain([Once(limit.to_string())]).collect())
}

/// Lists the columns of the numbers, each written so.
fn numbers(each: impl Fn(&str) -> String) -> String {
    listed(&Counts::columns().collect::<Vec<_>>(), each)
}
