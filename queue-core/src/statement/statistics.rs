//! Counts finished rows by the hour or the day in which they ended, and measures how long their attempts took.

use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Nullable, Text};

use super::condition::Condition;
use super::report::Split;
use super::writer::{Writer, statement};
use crate::backend::{DatabaseText, QueueBackend, Statement, column_names};

/// A period as it is loaded: its start in microseconds since 1970 and the value of the split; the rows with `SUCCESS`
/// and with `FAILED`; the mean of their durations, the median and the 95th percentile in microseconds; the number
/// of periods, and of rows. A period without a start holds the rows that ended at odd times, and the text of one of those times.
pub type FinishedRow = (
    (Option<i64>, Option<String>),
    (i64, i64),
    (Option<i64>, Option<i64>, Option<i64>),
    (i64, i64, Option<DatabaseText>),
);

/// The SQL type of a [`FinishedRow`].
pub type FinishedRowType = (
    (Nullable<BigInt>, Nullable<Text>),
    (BigInt, BigInt),
    (Nullable<BigInt>, Nullable<BigInt>, Nullable<BigInt>),
    (BigInt, BigInt, Nullable<Text>),
);

/// Counts the rows of each period of so many seconds: how many succeeded and failed, and the durations of their last attempts
/// by nearest rank. The condition must pick finished rows. If there are more than `limit` periods, it counts the latest; of more than `most_rows` rows,
/// the newest by key.
///
/// It needs window functions, which MySQL has from version 8.
pub fn count_finished<'a, DB: QueueBackend>(
    condition: Condition<'a, DB>,
    split: Split<'a>,
    seconds: u32,
    (limit, most_rows): (u32, u32),
) -> impl Statement<DB> {
    statement(condition.queue, Finished { condition, split, seconds, limit, most_rows }, |finished, sql| {
        let has_durations = finished.times().is_some();
        sql.push("SELECT ")?;
        finished.push_start(sql)?;
        sql.push(", MIN(queueable_value), COUNT(CASE WHEN queueable_status = 'SUCCESS' THEN 1 END)")?;
        sql.push(", COUNT(CASE WHEN queueable_status = 'FAILED' THEN 1 END)")?;
        if has_durations {
            // Not the sum, because the sum of odd times does not fit into 64 bits.
            sql.push(", ")?;
            sql.push_within(DB::AS_INTEGER, "AVG(queueable_duration)")?;
            // The nearest rank: the first place at or below which this percentage of all places lies.
            for percent in ["50", "95"] {
                sql.push(", MIN(CASE WHEN queueable_place * 100 >= queueable_durations * ")?;
                sql.push(percent)?;
                sql.push(" THEN queueable_duration END)")?;
            }
        } else {
            for _ in 0..3 {
                sql.push(", ")?;
                sql.push_within(DB::AS_INTEGER, "NULL")?;
            }
        }
        sql.push(", COUNT(*) OVER (), ")?;
        sql.push_within(DB::AS_INTEGER, "SUM(COUNT(*)) OVER ()")?;
        sql.push(", MIN(queueable_odd_end) FROM (")?;
        if has_durations {
            sql.push("SELECT queueable_end, queueable_odd_end, queueable_value, queueable_status, queueable_duration")?;
            sql.push(", COUNT(queueable_duration) OVER (PARTITION BY ")?;
            finished.push_group(sql)?;
            sql.push(") AS queueable_durations, ROW_NUMBER() OVER (PARTITION BY ")?;
            finished.push_group(sql)?;
            // This puts nulls last on every database.
            sql.push(" ORDER BY CASE WHEN queueable_duration IS NULL THEN 1 ELSE 0 END, queueable_duration)")?;
            sql.push(" AS queueable_place FROM (")?;
            finished.push_rows(sql)?;
            sql.push(") AS queueable_rows")?;
        } else {
            finished.push_rows(sql)?;
        }
        sql.push(") AS queueable_finished GROUP BY ")?;
        finished.push_group(sql)?;
        // The odd ones first, so that the limit cuts none of them.
        sql.push(" ORDER BY MIN(CASE WHEN queueable_end IS NULL THEN 0 ELSE 1 END), ")?;
        finished.push_start(sql)?;
        sql.push_with(&format!(" DESC, MIN(queueable_value) LIMIT {}", finished.limit), &[])
    })
}

struct Finished<'a, DB: QueueBackend> {
    condition: Condition<'a, DB>,
    split: Split<'a>,
    seconds: u32,
    limit: u32,
    most_rows: u32,
}

impl<DB: QueueBackend> Finished<'_, DB> {
    /// Writes the finished rows, each with the end of its last attempt, its value of the split, its status, and the
    /// duration of its last attempt if the entity stores its times: null if one of the times is missing.
    fn push_rows<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>) -> QueryResult<()> {
        sql.push("SELECT ")?;
        sql.push_microseconds("{.last_attempt_time}")?;
        sql.push(" AS queueable_end, ")?;
        sql.push_odd_text("{.last_attempt_time}")?;
        sql.push(" AS queueable_odd_end, ")?;
        sql.push_split(self.split)?;
        sql.push(" AS queueable_value, {.status} AS queueable_status")?;
        if let Some((begin, end)) = self.times() {
            sql.push(", ")?;
            sql.push_around(DB::MICROSECONDS_SINCE_1970, "{}", &[end])?;
            sql.push(" - ")?;
            sql.push_around(DB::MICROSECONDS_SINCE_1970, "{}", &[begin])?;
            sql.push(" AS queueable_duration")?;
        }
        sql.push(" FROM {table}")?;
        self.condition.push(sql)?;
        sql.push(" ORDER BY ")?;
        let key = column_names(sql.queue.key_columns, &DB::default())?;
        sql.each(&key, ", ", |sql, column| sql.push_with("{.} DESC", &[column]))?;
        sql.push_with(&format!(" LIMIT {}", self.most_rows), &[])
    }

    /// Returns the columns of the times when the last attempt began and ended, if the entity stores them.
    fn times(&self) -> Option<(&'static str, &'static str)> {
        let timestamps = self.condition.queue.options.timestamps;
        timestamps.begin.zip(timestamps.end)
    }

    /// Writes the columns that form a group: the period, and the value of the split.
    fn push_group(&self, sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
        self.push_start(sql)?;
        if self.split.is_none() {
            return Ok(());
        }
        sql.push(", ")?;
        sql.push_within(DB::EXACTLY, "queueable_value")
    }

    fn push_start(&self, sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
        sql.push_with(&format!("queueable_end - queueable_end % {}", u64::from(self.seconds) * 1_000_000), &[])
    }
}
