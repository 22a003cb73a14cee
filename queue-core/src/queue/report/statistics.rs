//! The finished work, by the hour or the day.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::Column;
use diesel::query_builder::QueryFragment;
use diesel::result::QueryResult;
use serde::{Deserialize, Serialize};

use super::table::{self, By, Heading, OddTimes, Tabular, number, text, write_table};
use crate::backend::load;
use crate::entity::{Entity, QueueTable};
use crate::error::Error;
use crate::queue::queue::{QueueRows, Selection};
use crate::queue::read::{BackendOf, ReadsRows};
use crate::row::Status;
use crate::statement::{FinishedRow, FinishedRowType, StateCondition, count_finished};

/// The largest number of periods that are read, the latest first: eleven years of hours.
const MOST_PERIODS: u32 = 100_000;

/// The length of the periods of [`Statistics`]. They begin and end in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interval {
    /// From one full hour to the next.
    Hour,
    /// From midnight to midnight.
    Day,
}

impl Interval {
    const fn seconds(self) -> u32 {
        match self {
            Interval::Hour => 3_600,
            Interval::Day => 86_400,
        }
    }

    const fn format(self) -> &'static str {
        match self {
            Interval::Hour => "%Y-%m-%d %H:%M",
            Interval::Day => "%Y-%m-%d",
        }
    }
}

/// The finished work, by the hour or the day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Statistics {
    /// The length of the periods.
    pub interval: Interval,
    /// The periods in which an attempt ended, in their order. The others are not listed.
    pub periods: Vec<PeriodCounts>,
    /// How many earlier periods were left out, because a report reads the last 100,000 at most.
    #[serde(default)]
    pub left_out: i64,
    /// The finished rows that ended at odd times, if there are any. They belong to no period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub odd_times: Option<OddTimes>,
}

/// One hour or day.
///
/// The durations are those of the rows' last attempts, succeeded and failed ones together, if the entity keeps
/// `timestamps(begin, end)`. They are `None` if no row has both times. The percentiles are by nearest rank, so each is
/// the duration of a real attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PeriodCounts {
    /// When the period began.
    pub start: DateTime<Utc>,
    /// The rows that are `SUCCESS` and whose last attempt ended in this period.
    pub succeeded: i64,
    /// The rows that are `FAILED` and whose last attempt ended in this period.
    pub failed: i64,
    /// The mean duration.
    pub mean: Option<Duration>,
    /// The median: half of the attempts took no longer.
    pub p50: Option<Duration>,
    /// The 95th percentile: 95 of 100 attempts took no longer.
    pub p95: Option<Duration>,
}

impl Tabular for Statistics {
    const COLUMNS: &'static [Heading] =
        &[text("from (UTC)"), number("succeeded"), number("failed"), number("mean"), number("p50"), number("p95")];

    fn lines(&self) -> Vec<Vec<String>> {
        let duration = |duration: Option<Duration>| duration.map_or_else(String::new, table::duration);
        let line = |period: &PeriodCounts| {
            vec![
                period.start.format(self.interval.format()).to_string(),
                period.succeeded.to_string(),
                period.failed.to_string(),
                duration(period.mean),
                duration(period.p50),
                duration(period.p95),
            ]
        };
        self.periods.iter().map(line).collect()
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_table(f, None, Self::COLUMNS, &self.lines())?;
        if self.left_out > 0 {
            writeln!(f, "and {} earlier periods that were not read", self.left_out)?;
        }
        if let Some(odd_times) = &self.odd_times {
            writeln!(f, "and {} rows that ended at odd times, as `{}`", odd_times.rows, odd_times.example)?;
        }
        Ok(())
    }
}

impl<Q: Entity, F: Selection> QueueRows<Q, F> {
    /// Counts the finished rows by the UTC hour or day in which their last attempt ended, with the mean, the median and
    /// the 95th percentile of the durations.
    ///
    /// It counts rows, not attempts: a row counts where its last attempt ended, and one that was removed or archived
    /// does not count. Rows that ended at [odd times](OddTimes) are counted separately. Durations are known if the
    /// entity keeps them, by `#[queue(timestamps(begin, end))]`. A filter limits the time:
    /// `.filter(payment_queue::last_attempt_time.ge(..))`. It reads the whole table, and needs MySQL 8.
    ///
    /// # Errors
    ///
    /// [`Error::Database`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel::connection::SimpleConnection;
    /// # use diesel_migrations::MigrationHarness;
    /// # use queueable::report::Interval;
    /// # use queueable::{Migrations, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL)")?;
    /// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
    /// let statistics = Payment::queue().statistics(&mut connection, Interval::Hour)?;
    /// for period in &statistics.periods {
    ///     println!("{}: {} succeeded, {} failed", period.start, period.succeeded, period.failed);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn statistics<C>(&self, connection: &mut C, interval: Interval) -> Result<Statistics, Error>
    where
        C: ReadsRows<Q, F>,
    {
        let (mut parts, left_out) = self.read_periods(connection, interval, None)?;
        let (periods, odd_times) = parts.remove(&None).unwrap_or_default();
        Ok(Statistics { interval, periods, left_out, odd_times })
    }

    /// Counts the same for each value of a domain column.
    ///
    /// # Errors
    ///
    /// [`Error::Database`].
    pub fn statistics_by<C, S>(
        &self,
        connection: &mut C,
        interval: Interval,
        column: S,
    ) -> Result<By<Statistics>, Error>
    where
        C: ReadsRows<Q, F>,
        S: Column<Table = <Q::Queue as QueueTable>::Table> + QueryFragment<BackendOf<C>>,
    {
        let (parts, left_out) = self.read_periods(connection, interval, Some(&column))?;
        let report = |(periods, odd_times)| Statistics { interval, periods, left_out: 0, odd_times };
        Ok(By::new(S::NAME, parts.into_iter().map(|(value, part)| (value, report(part))), left_out))
    }

    /// Reads the periods of each value of a column, or of all rows together, and how many were left out.
    fn read_periods<C: ReadsRows<Q, F>>(
        &self,
        connection: &mut C,
        interval: Interval,
        split: Option<&dyn QueryFragment<BackendOf<C>>>,
    ) -> QueryResult<(HashMap<Option<String>, PartOf>, i64)> {
        let states = self.states_and(&[FINISHED]);
        let finished = count_finished(C::condition(self, &states), split, interval.seconds(), MOST_PERIODS);
        let rows: Vec<FinishedRow> = load::<FinishedRowType, _, _>(connection.as_queue_connection(), &finished)?;
        let left_out = rows.first().map_or(0, |row| row.3.0) - rows.len() as i64;
        Ok((parts(rows), left_out))
    }
}

/// The periods and the odd times of one value.
type PartOf = (Vec<PeriodCounts>, Option<OddTimes>);

/// Returns the periods of each value. The rows come with the latest first.
fn parts(rows: Vec<FinishedRow>) -> HashMap<Option<String>, PartOf> {
    let mut parts = HashMap::<_, PartOf>::new();
    for ((start, value), (succeeded, failed), (mean, p50, p95), (_, odd_end)) in rows.into_iter().rev() {
        let (periods, odd_times) = parts.entry(value).or_default();
        let Some(start) = start else {
            OddTimes::add(odd_times, succeeded + failed, odd_end.map(|text| text.0));
            continue;
        };
        // The database's clock may have been set back during an attempt.
        let duration = |microseconds: i64| Duration::from_micros(microseconds.max(0).unsigned_abs());
        periods.push(PeriodCounts {
            start: DateTime::from_timestamp_micros(start).unwrap_or(DateTime::<Utc>::MAX_UTC),
            succeeded,
            failed,
            mean: mean.map(duration),
            p50: p50.map(duration),
            p95: p95.map(duration),
        });
    }
    parts
}

const FINISHED: StateCondition = StateCondition::In(&[Status::Success, Status::Failed]);
