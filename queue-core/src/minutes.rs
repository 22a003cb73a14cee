//! What pollers have done, minute by minute, in a table of the library's own.
//!
//! Each poller counts by itself and writes rows of its own, so that no two wait for each other. A row's numbers are written as
//! they are, and not added: a write that is repeated because its answer was lost changes nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, DurationRound, TimeDelta, Utc};
use diesel::connection::TransactionManager;
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Nullable};

use crate::attempt::in_transaction;
use crate::backend::{OwnTable, QueueConnection, execute, load, load_first};
use crate::control::check_own;
use crate::error::Finding;
use crate::event::{Collected, Collector, Counts, Event, Times};
use crate::row::{Instant, MinutesRow, MinutesType};
use crate::statement::{
    MinuteKey, any_minute, first_minute, insert_minute, lock_minutes, read_minutes, remove_minute,
    remove_minutes_before, update_minute,
};
use crate::sync::Mutex;

/// How often the numbers of the current minute are written: so much is lost of a process that is killed.
pub(crate) const WRITTEN_EVERY: Duration = Duration::from_secs(10);

/// How long minutes are kept, before they become hours. A guess: charts of more than a day show hours.
const MINUTES_KEPT: TimeDelta = TimeDelta::hours(25);

/// How long hours are kept. A guess: a year can be compared with the one before.
const HOURS_KEPT: TimeDelta = TimeDelta::days(800);

/// How many minutes wait for a database that cannot be written, at most: two days.
const MOST_WAITING: usize = 2 * 24 * 60;

/// How many hours one call merges at most, so that a table that nobody has merged for long holds up nobody.
const MOST_MERGED: usize = 24;

/// What one poller counts in a minute.
#[derive(Clone)]
struct Part {
    start: DateTime<Utc>,
    /// The number that tells it from what others have counted.
    part: i64,
    counts: Collected,
    /// The numbers that the table has.
    written: Collected,
}

impl Part {
    fn new(start: DateTime<Utc>) -> Self {
        let part = fastrand::i64(0..i64::MAX);
        Part { start, part, counts: Collected::new(), written: Collected::new() }
    }
}

/// The minutes of a poller.
#[derive(Default)]
pub struct Minutes {
    pub(crate) collector: Arc<Collector>,
    parts: Mutex<Parts>,
}

#[derive(Clone, Default)]
struct Parts {
    /// Those that are not written yet, the current one last.
    parts: VecDeque<Part>,
    /// When the collector was emptied last.
    emptied: Option<DateTime<Utc>>,
}

impl Minutes {
    /// Counts an event, if it ends an attempt.
    pub fn count(&self, event: &Event) {
        self.collector.count(event);
    }

    /// Returns what this poller knows of its rows, for what is written after a lost answer.
    pub fn as_known(&self) -> Self {
        Minutes { parts: Mutex::new(self.parts.lock().clone()), ..Minutes::default() }
    }

    /// Writes what was counted until now, by the database's clock. `queues`: the names of the entities' queues.
    pub fn write<C: QueueConnection>(
        &self,
        connection: &mut C,
        now: DateTime<Utc>,
        queues: &HashMap<&'static str, String>,
    ) -> QueryResult<()> {
        let mut parts = self.parts.lock();
        parts.take_up(&self.collector, now);
        for _ in 0..parts.parts.len() {
            let Some(part) = parts.parts.front_mut() else { break };
            let gone = part.write(connection, queues)?;
            let part = parts.parts.pop_front().filter(|part| minute_of(part.start) == minute_of(now));
            // The current minute goes on, and so do the numbers of rows that another process has merged into an hour.
            parts.parts.extend(part.into_iter().chain(gone));
        }
        Ok(())
    }
}

impl Parts {
    /// Adds what was collected to the minute in which it was.
    fn take_up(&mut self, collector: &Collector, now: DateTime<Utc>) {
        // Since the last call, which was ten seconds ago, or at the end of the minute.
        let start = minute_of(self.emptied.replace(now).unwrap_or(now));
        let collected = collector.take();
        if collected.is_empty() {
            return;
        }
        if self.parts.back().is_none_or(|part| part.start != start) {
            if self.parts.len() >= MOST_WAITING {
                self.parts.pop_front();
            }
            self.parts.push_back(Part::new(start));
        }
        if let Some(part) = self.parts.back_mut() {
            collected.into_iter().for_each(|(of, counts)| part.counts.entry(of).or_default().add(&counts));
        }
    }
}

impl Part {
    /// Writes the numbers that have changed. Returns the part that takes up the rest of rows which are gone.
    fn write<C: QueueConnection>(
        &mut self,
        connection: &mut C,
        queues: &HashMap<&'static str, String>,
    ) -> QueryResult<Option<Part>> {
        let mut gone = Part::new(self.start);
        for ((entity, stage), counts) in &self.counts {
            let (of, Some(queue)) = ((*entity, *stage), queues.get(entity)) else { continue };
            let written = self.written.get(&of);
            if written == Some(counts) {
                continue;
            }
            let stage = stage.unwrap_or_default().to_owned();
            let key = MinuteKey { queue: queue.clone(), start: self.start.into(), part: self.part, stage };
            if execute(connection, &update_minute(&key, counts))? == 0 {
                match written {
                    None => _ = execute(connection, &insert_minute(&key, 60, counts))?,
                    Some(written) => {
                        let mut rest = *counts;
                        rest.subtract(written);
                        gone.counts.insert(of, rest);
                    }
                }
            }
            self.written.insert(of, *counts);
        }
        self.counts.retain(|of, _| !gone.counts.contains_key(of));
        Ok(Some(gone).filter(|gone| !gone.counts.is_empty()))
    }
}

fn minute_of(time: DateTime<Utc>) -> DateTime<Utc> {
    time.duration_trunc(TimeDelta::minutes(1)).unwrap_or(time)
}

/// Merges a queue's minutes that are old into hours, and removes hours that are very old. Only one process at a time merges the
/// same minutes, because it locks them.
pub fn merge_minutes<C: QueueConnection>(connection: &mut C, queue: &str, now: DateTime<Utc>) -> QueryResult<()> {
    let before = (now - MINUTES_KEPT).duration_trunc(TimeDelta::hours(1)).unwrap_or(now).into();
    for _ in 0..MOST_MERGED {
        let first = load_first::<Nullable<BigInt>, Option<i64>, _>(connection, &first_minute(queue, before))?.flatten();
        let Some(first) = first.and_then(DateTime::from_timestamp_micros) else { break };
        let from = first.duration_trunc(TimeDelta::hours(1)).unwrap_or(first);
        in_transaction(connection, |connection| merge_hour(connection, queue, from))?;
    }
    execute(connection, &remove_minutes_before(queue, (now - HOURS_KEPT).into())).map(drop)
}

fn merge_hour<C: QueueConnection>(connection: &mut C, queue: &str, hour: DateTime<Utc>) -> QueryResult<()> {
    let period = (Instant::from(hour), Instant::from(hour + TimeDelta::hours(1)));
    let mut stages = HashMap::<String, Counts>::new();
    for row in load::<MinutesType, MinutesRow, _>(connection, &lock_minutes(queue, period))? {
        let ((start, part, stage), counts) = (row.0.clone(), counts_of(row));
        let Some(start) = start.and_then(DateTime::from_timestamp_micros) else { continue };
        stages.entry(stage.clone()).or_default().add(&counts);
        let key = MinuteKey { queue: queue.to_owned(), start: start.into(), part, stage };
        execute(connection, &remove_minute(&key))?;
    }
    let part = fastrand::i64(0..i64::MAX);
    stages.into_iter().try_for_each(|(stage, counts)| {
        let key = MinuteKey { queue: queue.to_owned(), start: period.0, part, stage };
        execute(connection, &insert_minute(&key, 3600, &counts)).map(drop)
    })
}

fn counts_of((_, outcomes, waited, took): MinutesRow) -> Counts {
    Counts { outcomes: outcomes.into(), waited: Times(waited.into()), took: Times(took.into()) }
}

/// Tells whether a poller has ever counted what this queue does.
pub(crate) fn has_minutes<C: QueueConnection>(connection: &mut C, queue: &str) -> QueryResult<bool> {
    Ok(load_first::<BigInt, i64, _>(connection, &any_minute(queue))?.is_some())
}

/// Reads what a queue has done in each period of so many seconds, the latest first, with when each began.
pub(crate) fn read_periods<C: QueueConnection>(
    connection: &mut C,
    queue: &str,
    within: Option<i64>,
    seconds: u32,
    limit: u32,
) -> QueryResult<Vec<(DateTime<Utc>, Counts)>> {
    let rows = load::<MinutesType, MinutesRow, _>(connection, &read_minutes(queue, within, seconds, limit))?;
    let period = |row: MinutesRow| Some((DateTime::from_timestamp_micros(row.0.0?)?, counts_of(row)));
    Ok(rows.into_iter().filter_map(period).collect())
}

/// Finds out whether the session can read and write the table.
pub(crate) fn check_minutes<C: QueueConnection>(connection: &mut C) -> QueryResult<Option<Finding>> {
    check_own(connection, OwnTable::Minutes, ("minutes", "SELECT, INSERT, UPDATE, DELETE"), |connection| {
        let start = Instant::from(DateTime::UNIX_EPOCH);
        let key =
            MinuteKey { queue: "queueable check".to_owned(), start, part: fastrand::i64(..), stage: String::new() };
        let counts = Counts::default();
        connection.begin()?;
        let tried = execute(connection, &insert_minute(&key, 60, &counts))
            .and_then(|_| execute(connection, &update_minute(&key, &counts)))
            .and_then(|_| load_first::<Nullable<BigInt>, Option<i64>, _>(connection, &first_minute(&key.queue, start)))
            .and_then(|_| execute(connection, &remove_minute(&key)));
        C::TransactionManager::rollback_transaction(connection)?;
        tried.map(drop)
    })
}
