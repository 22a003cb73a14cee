//! The finished work of a queue by the minute, the hour or the day: as the pollers have counted it, or else as its rows tell.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::Column;
use diesel::result::QueryResult;
use serde::{Deserialize, Serialize};

use super::table::{self, By, Heading, OddTimes, Tabular, number, text, write_table};
use crate::backend::{OwnTable, Schema, load};
use crate::control::name_of;
use crate::entity::{Entity, QueueTable, name_of_column};
use crate::error::Error;
use crate::event::Counts;
use crate::minutes::{has_minutes, read_periods};
use crate::queue::queue::{QueueRows, Selection};
use crate::queue::read::ReadsRows;
use crate::row::{Status, microseconds};
use crate::statement::{FinishedRow, FinishedRowType, Split, SplitBy, StateCondition, count_finished};

const FINISHED: StateCondition = StateCondition::In(&[Status::Success, Status::Failed]);

/// The largest number of periods that are read, the latest first: eleven years of hours.
const MOST_PERIODS: u32 = 100_000;

/// The largest number of rows that are read where no minutes are counted, the newest by key. More take seconds.
const MOST_ROWS: u32 = 1_000_000;

/// The length of the periods of [`Statistics`]. They begin and end in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interval {
    /// From one full minute to the next.
    Minute,
    /// From one full hour to the next.
    Hour,
    /// From midnight to midnight.
    Day,
}

impl Interval {
    const fn seconds(self) -> u32 {
        match self {
            Interval::Minute => 60,
            Interval::Hour => 3_600,
            Interval::Day => 86_400,
        }
    }

    const fn format(self) -> &'static str {
        match self {
            Interval::Minute | Interval::Hour => "%Y-%m-%d %H:%M",
            Interval::Day => "%Y-%m-%d",
        }
    }
}

/// What [`Statistics`] count.
///
/// ```
/// use queueable::report::{Counted, Statistics};
///
/// fn has_every_attempt(statistics: &Statistics) -> bool {
///     statistics.counted == Counted::Attempts
/// }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Counted {
    /// Attempts, as the pollers have counted them since they do so, see [`Poller::minutes`](crate::Poller::minutes).
    Attempts,
    /// Rows: each counts where its last attempt has ended.
    #[default]
    Rows,
    /// Only the newest 1,000,000 rows by key. There may be more.
    NewestRows,
}

/// The finished work, by the minute, the hour or the day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Statistics {
    /// The length of the periods.
    pub interval: Interval,
    /// What they count.
    #[serde(default)]
    pub counted: Counted,
    /// The periods in which an attempt ended, in their order. The others are not listed.
    pub periods: Vec<PeriodCounts>,
    /// How many earlier periods were left out, because a report reads the last 100,000 at most.
    #[serde(default)]
    pub left_out: i64,
    /// The finished rows that ended at odd times, if there are any. They belong to no period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub odd_times: Option<OddTimes>,
}

/// One minute, hour or day.
///
/// Of [rows](Counted::Rows), the durations are those of their last attempts, succeeded and failed ones together, if the entity
/// keeps `timestamps(begin, end)`. They are `None` if no row has both times. The percentiles are by nearest rank, so each is
/// the duration of a real attempt.
///
/// Of [attempts](Counted::Attempts), the durations are those of all that ended. They are counted in buckets, from 5 ms to an hour,
/// and the percentiles are estimated within them, as Prometheus does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PeriodCounts {
    /// When the period began.
    pub start: DateTime<Utc>,
    /// The rows that became `SUCCESS` in this period.
    pub succeeded: i64,
    /// The rows that became `FAILED` in this period.
    pub failed: i64,
    /// The mean duration.
    pub mean: Option<Duration>,
    /// The median: half of the attempts took no longer.
    pub p50: Option<Duration>,
    /// The 95th percentile: 95 of 100 attempts took no longer.
    pub p95: Option<Duration>,
    /// The other outcomes and the waits; `None` if rows were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<AttemptCounts>,
}

/// What else attempts have come to in a period, see [`PeriodCounts`]. The outcomes are those of [`Event`](crate::Event).
///
/// ```
/// use queueable::report::{AttemptCounts, PeriodCounts};
///
/// fn retries(period: &PeriodCounts) -> i64 {
///     period.attempts.as_ref().map_or(0, |AttemptCounts { will_retry, .. }| *will_retry)
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AttemptCounts {
    /// Those after which the row went on to another stage.
    pub advanced: i64,
    /// Those after which the row runs again without a failure.
    pub runs_again: i64,
    /// Those after which the row is `SKIPPED`.
    pub skipped: i64,
    /// Those that failed and will be retried.
    pub will_retry: i64,
    /// Those that ended without a result.
    pub interrupted: i64,
    /// Those whose end the database refused to write.
    pub refused: i64,
    /// Those that lost their lease.
    pub lease_lost: i64,
    /// The mean of how long rows waited from their due time.
    pub mean_wait: Option<Duration>,
    /// The median of these waits.
    pub p50_wait: Option<Duration>,
    /// Their 95th percentile.
    pub p95_wait: Option<Duration>,
}

impl PeriodCounts {
    fn of(start: DateTime<Utc>, counts: &Counts) -> Self {
        let [succeeded, advanced, runs_again, skipped, will_retry, failed, interrupted, refused, lease_lost] =
            counts.outcomes;
        let (took, waited) = (counts.took, counts.waited);
        PeriodCounts {
            start,
            succeeded,
            failed,
            mean: took.mean(),
            p50: took.percentile(50),
            p95: took.percentile(95),
            attempts: Some(AttemptCounts {
                advanced,
                runs_again,
                skipped,
                will_retry,
                interrupted,
                refused,
                lease_lost,
                mean_wait: waited.mean(),
                p50_wait: waited.percentile(50),
                p95_wait: waited.percentile(95),
            }),
        }
    }
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
        if self.counted == Counted::NewestRows {
            writeln!(f, "of the newest 1,000,000 rows; pollers with `minutes` count all attempts")?;
        }
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
    /// Counts the finished work by the UTC minute, hour or day, with the mean, the median and the 95th percentile of the
    /// durations.
    ///
    /// Where pollers with [`minutes`](crate::Poller::minutes) have counted the attempts of this queue, it reads what they have
    /// counted, which takes some milliseconds: each minute of the last 25 hours, and each hour before. This is so for a whole
    /// queue, `Payment::queue()`, and with [`attempted_within`](QueueRows::attempted_within), which limits the time.
    ///
    /// With any other filter, and without such pollers, it counts rows: a row counts where its last attempt ended, and one that
    /// was removed or archived does not count. Rows that ended at [odd times](OddTimes) are counted separately. Durations are
    /// known if the entity keeps them, by `#[queue(timestamps(begin, end))]`. It reads the whole table, up to 1,000,000 of
    /// the newest rows, and needs MySQL 8. [`counted`](Statistics::counted) says which of these is so.
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
    pub fn statistics<C: ReadsRows<Q, F>>(&self, connection: &mut C, interval: Interval) -> Result<Statistics, Error> {
        if let Some(statistics) = self.read_counted(connection, interval)? {
            return Ok(statistics);
        }
        let (mut parts, left_out, counted) = self.read_periods(connection, interval, None)?;
        let (periods, odd_times) = parts.remove(&None).unwrap_or_default();
        Ok(Statistics { interval, counted, periods, left_out, odd_times })
    }

    /// Reads what the pollers have counted. `None`: they have counted nothing, or not what is asked for.
    #[doc(hidden)]
    pub fn read_counted<C>(&self, connection: &mut C, interval: Interval) -> Result<Option<Statistics>, Error>
    where
        C: ReadsRows<Q, F>,
    {
        let queue = name_of(C::condition(self, &[]).queue)?;
        let within = match *self.states_and(&[]) {
            _ if self.has_filter() => return Ok(None),
            [] => None,
            [StateCondition::AttemptedWithin(time)] => Some(microseconds(time)),
            _ => return Ok(None),
        };
        let connection = connection.as_queue_connection();
        if !connection.has_own(OwnTable::Minutes)? || !has_minutes(connection, &queue)? {
            return Ok(None);
        }
        // One more says whether there are more.
        let mut periods = read_periods(connection, &queue, within, interval.seconds(), MOST_PERIODS + 1)?;
        let left_out = i64::from(periods.len() > MOST_PERIODS as usize);
        periods.truncate(MOST_PERIODS as usize);
        let periods = periods.into_iter().rev().map(|(start, counts)| PeriodCounts::of(start, &counts)).collect();
        Ok(Some(Statistics { interval, counted: Counted::Attempts, periods, left_out, odd_times: None }))
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
        S: Column<Table = <Q::Queue as QueueTable>::Table>,
    {
        self.statistics_by_name(connection, interval, name_of_column(column))
    }

    /// Reports the same for each value of a column with this name.
    #[doc(hidden)]
    pub fn statistics_by_name<C: ReadsRows<Q, F>>(
        &self,
        connection: &mut C,
        interval: Interval,
        column: &str,
    ) -> Result<By<Statistics>, Error> {
        let (parts, left_out, counted) = self.read_periods(connection, interval, Some(SplitBy::Column(column)))?;
        let report = |(periods, odd_times)| Statistics { interval, counted, periods, left_out: 0, odd_times };
        Ok(By::new(column, parts.into_iter().map(|(value, part)| (value, report(part))), left_out))
    }

    /// Reads the periods of each value of a column, or of all rows together, how many were left out, and what they count.
    fn read_periods<C: ReadsRows<Q, F>>(
        &self,
        connection: &mut C,
        interval: Interval,
        split: Split<'_>,
    ) -> QueryResult<(HashMap<Option<String>, PartOf>, i64, Counted)> {
        let states = self.states_and(&[FINISHED]);
        let finished =
            count_finished(C::condition(self, &states), split, interval.seconds(), (MOST_PERIODS, MOST_ROWS));
        let rows: Vec<FinishedRow> = load::<FinishedRowType, _, _>(connection.as_queue_connection(), &finished)?;
        let left_out = rows.first().map_or(0, |row| row.3.0) - rows.len() as i64;
        let is_cut = rows.first().is_some_and(|row| row.3.1 >= MOST_ROWS.into());
        let counted = if is_cut { Counted::NewestRows } else { Counted::Rows };
        Ok((periods_of(rows), left_out, counted))
    }
}

/// The periods and the odd times of one value.
type PartOf = (Vec<PeriodCounts>, Option<OddTimes>);

/// Returns the periods of each value. The rows come with the latest first.
fn periods_of(rows: Vec<FinishedRow>) -> HashMap<Option<String>, PartOf> {
    let mut parts = HashMap::<_, PartOf>::new();
    for ((start, value), (succeeded, failed), (mean, p50, p95), (_, _, odd_end)) in rows.into_iter().rev() {
        // A row that was never attempted belongs to no period.
        if start.is_none() && odd_end.is_none() {
            continue;
        }
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
            attempts: None,
        });
    }
    parts
}
