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
use crate::event::{Collected, Collector, CountedOf, Counts, Event, Times};
use crate::row::{Instant, MinutesRow, MinutesType};
use crate::statement::{
    MinuteKey, any_minute, first_minute, insert_minute, lock_minutes, read_minutes, remove_minutes,
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

/// What one poller counts in a minute.
#[derive(Clone)]
struct Part {
    start: DateTime<Utc>,
    /// The number that tells it from what others have counted.
    part: i64,
    counts: Collected,
    /// The numbers that were sent, and whether the database has answered. If not, the table may have them or not.
    sent: HashMap<CountedOf, (Counts, bool)>,
}

impl Part {
    fn new(start: DateTime<Utc>) -> Self {
        let part = fastrand::i64(0..i64::MAX);
        Part { start, part, counts: Collected::new(), sent: HashMap::new() }
    }
}

/// The minutes of a poller.
#[derive(Default)]
pub struct Minutes {
    pub(crate) collector: Arc<Collector>,
    /// Those that are not written yet, and the current one.
    parts: Mutex<VecDeque<Part>>,
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

    /// Writes what was counted until now, by the database's clock. `turn` waits for the turn to write each minute.
    ///
    /// Nothing is locked meanwhile: the database may never answer. Another thread then goes on with other rows.
    pub fn write<C: QueueConnection, T>(
        &self,
        connection: &mut C,
        now: DateTime<Utc>,
        turn: impl Fn() -> T,
    ) -> QueryResult<()> {
        let (mut left, mut kept) = (std::mem::take(&mut *self.parts.lock()), VecDeque::new());
        take_up(&mut left, &self.collector, now);
        let mut result = Ok(());
        while result.is_ok()
            && let Some(mut part) = left.pop_front()
        {
            let turn = turn();
            let mut gone = Part::new(part.start);
            result = part.write(connection, &mut gone);
            drop(turn);
            // The current minute goes on, and so do the numbers of rows that another process has merged into an hour.
            if result.is_err() || part.start == minute_of(now) {
                kept.push_back(part);
            }
            if !gone.counts.is_empty() {
                kept.push_back(gone);
            }
        }
        let mut parts = self.parts.lock();
        *parts = kept.into_iter().chain(left).chain(std::mem::take(&mut *parts)).collect();
        result
    }
}

/// Adds what was collected to the minutes in which it was.
fn take_up(parts: &mut VecDeque<Part>, collector: &Collector, now: DateTime<Utc>) {
    for (began, collected) in collector.take() {
        let ago = TimeDelta::from_std(began.elapsed()).unwrap_or(TimeDelta::zero());
        let start = minute_of(now - ago);
        let place = parts.iter().rposition(|part| part.start == start).unwrap_or_else(|| {
            if parts.len() >= MOST_WAITING {
                parts.pop_front();
            }
            parts.push_back(Part::new(start));
            parts.len() - 1
        });
        collected.into_iter().for_each(|(of, counts)| parts[place].counts.entry(of).or_default().add(&counts));
    }
}

impl Part {
    /// Writes the numbers that have changed. `gone` takes up what comes after those that another process has merged.
    fn write<C: QueueConnection>(&mut self, connection: &mut C, gone: &mut Part) -> QueryResult<()> {
        for of in self.counts.keys().cloned().collect::<Vec<_>>() {
            let (counts, before) = (self.counts[&of], self.sent.get(&of).copied());
            if before == Some((counts, true)) {
                continue;
            }
            let (queue, stage) = (of.0.as_ref().to_owned(), of.1.unwrap_or_default().to_owned());
            let key = MinuteKey { queue, start: self.start.into(), part: self.part, stage };
            // An update adds no row, so before the first insert there is nothing to doubt.
            if before.is_some() {
                self.sent.insert(of.clone(), (counts, false));
            }
            if execute(connection, &update_minute(&key, &counts))? == 0 {
                if let Some((sent, is_answered)) = before
                    && (is_answered || self.may_be_merged(connection, &key.queue)?)
                {
                    self.counts.remove(&of);
                    self.sent.remove(&of);
                    let since = counts.without(&sent);
                    if since != Counts::default() {
                        gone.counts.insert(of, since);
                    }
                    continue;
                }
                self.sent.insert(of.clone(), (counts, false));
                execute(connection, &insert_minute(&key, 60, &counts))?;
            }
            self.sent.insert(of, (counts, true));
        }
        Ok(())
    }

    /// Tells whether minutes of this hour were merged. If a row was sent, no answer came, and it is not there, then it may have been
    /// among them: to write it again might count it twice. Without a merged hour it has never arrived.
    fn may_be_merged<C: QueueConnection>(&self, connection: &mut C, queue: &str) -> QueryResult<bool> {
        let hour = self.start.duration_trunc(TimeDelta::hours(1)).unwrap_or(self.start).into();
        Ok(load_first::<BigInt, i64, _>(connection, &any_minute(queue, Some(hour)))?.is_some())
    }
}

fn minute_of(time: DateTime<Utc>) -> DateTime<Utc> {
    time.duration_trunc(TimeDelta::minutes(1)).unwrap_or(time)
}

/// Merges a queue's minutes that are old into hours, and removes hours that are very old, as long as `goes_on` says so. `turn` waits
/// for the turn to write each hour. Two processes merge no minute twice, because they lock them.
pub fn merge_minutes<C: QueueConnection, T>(
    connection: &mut C,
    queue: &str,
    now: DateTime<Utc>,
    (goes_on, turn): (impl Fn() -> bool, impl Fn() -> T),
) -> QueryResult<()> {
    let before = (now - MINUTES_KEPT).duration_trunc(TimeDelta::hours(1)).unwrap_or(now).into();
    while goes_on() {
        let first = load_first::<Nullable<BigInt>, Option<i64>, _>(connection, &first_minute(queue, before))?.flatten();
        let Some(first) = first.and_then(DateTime::from_timestamp_micros) else { break };
        let from = first.duration_trunc(TimeDelta::hours(1)).unwrap_or(first);
        let _turn = turn();
        in_transaction(connection, |connection| merge_hour(connection, queue, from))?;
    }
    let _turn = turn();
    execute(connection, &remove_minutes_before(queue, (now - HOURS_KEPT).into())).map(drop)
}

fn merge_hour<C: QueueConnection>(connection: &mut C, queue: &str, hour: DateTime<Utc>) -> QueryResult<()> {
    let period = (Instant::from(hour), Instant::from(hour + TimeDelta::hours(1)));
    let (mut stages, mut parts) = (HashMap::<String, Counts>::new(), Vec::new());
    for row in load::<MinutesType, MinutesRow, _>(connection, &lock_minutes(queue, period))? {
        let ((start, part, stage), counts) = (row.0.clone(), counts_of(row));
        if start.is_some() {
            parts.push(part);
            stages.entry(stage).or_default().add(&counts);
        }
    }
    if parts.is_empty() {
        return Ok(());
    }
    execute(connection, &remove_minutes(queue, period, &parts))?;
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
    Ok(load_first::<BigInt, i64, _>(connection, &any_minute(queue, None))?.is_some())
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
    check_own(connection, OwnTable::Minutes, ("minutes", "minutes", "SELECT, INSERT, UPDATE, DELETE"), |connection| {
        let start = Instant::from(DateTime::UNIX_EPOCH);
        let key =
            MinuteKey { queue: "queueable check".to_owned(), start, part: fastrand::i64(..), stage: String::new() };
        let counts = Counts::default();
        connection.begin()?;
        let tried = execute(connection, &insert_minute(&key, 60, &counts))
            .and_then(|_| execute(connection, &update_minute(&key, &counts)))
            .and_then(|_| load_first::<Nullable<BigInt>, Option<i64>, _>(connection, &first_minute(&key.queue, start)))
            .and_then(|_| execute(connection, &remove_minutes(&key.queue, (start, start), &[key.part])));
        C::TransactionManager::rollback_transaction(connection)?;
        tried.map(drop)
    })
}
