//! Counts finished rows by the hour or the day in which they ended, and measures how long their attempts took.

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Nullable, Text};

use super::condition::Condition;
use super::names::{push_column, push_columns, push_table};
use super::odd_time::{push_microseconds, push_odd_text};
use super::split::Split;
use crate::backend::{DatabaseText, QueueBackend, Statement};
use crate::row::Status;

/// Counts the rows of each period: how many succeeded and failed, and the durations of their last attempts by nearest
/// rank.
///
/// It needs window functions, which MySQL has from version 8.
pub struct CountFinished<'a, DB: QueueBackend> {
    condition: Condition<'a, DB>,
    split: Split<'a, DB>,
    seconds: u32,
    limit: u32,
}

/// A period as it is loaded: its start in microseconds since 1970 and the value of the split; the rows with `SUCCESS`
/// and with `FAILED`; the mean of their durations, the median and the 95th percentile in microseconds; and the number
/// of periods. A period without a start holds the rows that ended at odd times, and the text of one of those times.
pub type FinishedRow =
    (Option<i64>, Option<String>, i64, i64, Option<i64>, Option<i64>, Option<i64>, i64, Option<DatabaseText>);

/// The SQL type of a [`FinishedRow`].
pub type FinishedRowType = (
    Nullable<BigInt>,
    Nullable<Text>,
    BigInt,
    BigInt,
    Nullable<BigInt>,
    Nullable<BigInt>,
    Nullable<BigInt>,
    BigInt,
    Nullable<Text>,
);

impl<'a, DB: QueueBackend> CountFinished<'a, DB> {
    /// Counts by periods of this many seconds. If there are more than `limit`, it counts the latest. The condition must
    /// pick finished rows.
    pub fn new(
        condition: Condition<'a, DB>,
        split: Option<&'a dyn QueryFragment<DB>>,
        seconds: u32,
        limit: u32,
    ) -> Self {
        CountFinished { condition, split: Split(split), seconds, limit }
    }

    /// Writes `, .. AS queueable_duration`: the microseconds that the last attempt took; null if one of the times is
    /// missing.
    fn push_duration((begin, end): (&str, &str), out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
        out.push_sql(", ");
        push_microseconds(out, &|out| out.push_identifier(end))?;
        out.push_sql(" - ");
        push_microseconds(out, &|out| out.push_identifier(begin))?;
        out.push_sql(" AS queueable_duration");
        Ok(())
    }

    /// Writes the finished rows, each with the end of its last attempt, its value of the split, its status, and the
    /// duration if the entity stores its times.
    fn push_rows<'b>(&'b self, out: &mut AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.condition.queue;
        out.push_sql("SELECT ");
        push_microseconds(out, &|out| push_column(queue, out, queue.names.last_attempt_time))?;
        out.push_sql(" AS queueable_end, ");
        push_odd_text(out, &|out| push_column(queue, out, queue.names.last_attempt_time))?;
        out.push_sql(" AS queueable_odd_end, ");
        self.split.push_value(out)?;
        push_columns(queue, out, " AS queueable_value, {} AS queueable_status", &[queue.names.status])?;
        if let Some(times) = self.times() {
            Self::push_duration(times, out)?;
        }
        push_table(queue, out, " FROM ")?;
        self.condition.walk_ast(out.reborrow())
    }

    /// Returns the columns of the times when the last attempt began and ended, if the entity stores them.
    fn times(&self) -> Option<(&'static str, &'static str)> {
        let timestamps = self.condition.queue.options.timestamps;
        timestamps.begin.zip(timestamps.end)
    }

    /// Writes the columns that form a group: the period, and the value of the split.
    fn push_group(&self, out: &mut AstPass<'_, '_, DB>) {
        self.push_start(out);
        if self.split.0.is_some() {
            out.push_sql(", ");
            out.push_sql(DB::EXACTLY.0);
            out.push_sql("queueable_value");
            out.push_sql(DB::EXACTLY.1);
        }
    }

    fn push_start(&self, out: &mut AstPass<'_, '_, DB>) {
        out.push_sql("queueable_end - queueable_end % ");
        out.push_sql(&(u64::from(self.seconds) * 1_000_000).to_string());
    }
}

impl<DB: QueueBackend> Statement<DB> for CountFinished<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let has_durations = self.times().is_some();
        out.push_sql("SELECT ");
        self.push_start(&mut out);
        out.push_sql(", MIN(queueable_value)");
        for status in [Status::Success, Status::Failed] {
            out.push_sql(", COUNT(CASE WHEN queueable_status = '");
            out.push_sql(status.as_str());
            out.push_sql("' THEN 1 END)");
        }
        if has_durations {
            // Not the sum, because the sum of odd times does not fit into 64 bits.
            out.push_sql(", ");
            out.push_sql(DB::AS_INTEGER.0);
            out.push_sql("AVG(queueable_duration)");
            out.push_sql(DB::AS_INTEGER.1);
            // The nearest rank: the first place at or below which this percentage of all places lies.
            for percent in ["50", "95"] {
                out.push_sql(", MIN(CASE WHEN queueable_place * 100 >= queueable_durations * ");
                out.push_sql(percent);
                out.push_sql(" THEN queueable_duration END)");
            }
        } else {
            for value in ["NULL"; 3] {
                out.push_sql(", ");
                out.push_sql(DB::AS_INTEGER.0);
                out.push_sql(value);
                out.push_sql(DB::AS_INTEGER.1);
            }
        }
        out.push_sql(", COUNT(*) OVER (), MIN(queueable_odd_end) FROM (");
        if has_durations {
            out.push_sql(
                "SELECT queueable_end, queueable_odd_end, queueable_value, queueable_status, queueable_duration",
            );
            out.push_sql(", COUNT(queueable_duration) OVER (PARTITION BY ");
            self.push_group(&mut out);
            out.push_sql(") AS queueable_durations, ROW_NUMBER() OVER (PARTITION BY ");
            self.push_group(&mut out);
            // This puts nulls last on every database.
            out.push_sql(" ORDER BY CASE WHEN queueable_duration IS NULL THEN 1 ELSE 0 END, queueable_duration)");
            out.push_sql(" AS queueable_place FROM (");
            self.push_rows(&mut out)?;
            out.push_sql(") AS queueable_rows");
        } else {
            self.push_rows(&mut out)?;
        }
        // A row that was never attempted belongs to no period.
        out.push_sql(
            ") AS queueable_finished WHERE queueable_end IS NOT NULL OR queueable_odd_end IS NOT NULL GROUP BY ",
        );
        self.push_group(&mut out);
        // The odd ones first, so that the limit cuts none of them.
        out.push_sql(" ORDER BY MIN(CASE WHEN queueable_end IS NULL THEN 0 ELSE 1 END), ");
        self.push_start(&mut out);
        out.push_sql(" DESC, MIN(queueable_value) LIMIT ");
        out.push_sql(&self.limit.to_string());
        Ok(())
    }
}
