//! The table of pollers: each poller that takes part writes one row about itself, and nothing needs that row.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use diesel::connection::TransactionManager;
use diesel::result::QueryResult;
use serde::{Deserialize, Serialize};

use super::pollers::{PollerProcess, PollerState, ProcessedQueue, RunningMessage, Unserved};
use super::table::{check_own, expect_own, time_of};
use crate::backend::{AsQueueConnection, OwnTable, QueueConnection, execute, load};
use crate::error::{Error, Finding};
use crate::event::RunningAttempts;
use crate::row::{PollerRow, PollerType};
use crate::statement::{PollerEntry, insert_poller, read_pollers, remove_poller, update_poller};
use crate::sync::Mutex;

/// How often a poller writes what it is and does.
pub(crate) const PRESENT_EVERY: Duration = Duration::from_secs(5);

/// How long after its last word a poller passes for dead. It writes every five seconds, and a statement may take a while.
const DEAD_AFTER: TimeDelta = TimeDelta::seconds(60);

/// How often a poller looks for what dead ones have left: it reads all rows.
const TIDIED_EVERY: Duration = Duration::from_secs(60);

/// How long the last poller of a queue is remembered that nobody serves any more. A guess.
const REMEMBERED: TimeDelta = TimeDelta::days(30);

/// How many running messages a poller writes, those that began first.
const MOST_RUNNING: usize = 100;

/// The longest text of a key among them, in characters.
const LONGEST_KEY: usize = 200;

/// A running message as the table has it.
#[derive(Serialize, Deserialize)]
struct StoredMessage {
    queue: String,
    key: String,
    stage: Option<String>,
    /// For how many milliseconds it had run.
    for_ms: i64,
}

/// What the table says of a poller.
struct Entry {
    id: i64,
    process: PollerProcess,
    /// How long ago it was seen.
    ago: TimeDelta,
}

impl Entry {
    /// Reads a row. `Err`: it means nothing. That one is removed, if nobody has written it within a minute.
    fn read((of, what, lists, times): PollerRow) -> Result<Self, Option<i64>> {
        let ((id, host, pid), (version, application, state, workers)) = (of, what);
        let (seen, now) = (time_of(times.1), time_of(times.2));
        let is_old = seen.zip(now).is_none_or(|(seen, now)| (now - seen).abs() > DEAD_AFTER);
        let read = || {
            let (started, seen, now) = (time_of(times.0)?, seen?, now?);
            let queues = serde_json::from_str(&lists.0).ok()?;
            let running: Vec<StoredMessage> = serde_json::from_str(&lists.1).ok()?;
            let running = running.into_iter().map(|StoredMessage { queue, key, stage, for_ms }| {
                let since = seen.checked_sub_signed(TimeDelta::try_milliseconds(for_ms)?)?;
                Some(RunningMessage { queue, key, stage, since })
            });
            let process = PollerProcess {
                application: Some(application).filter(|text| !text.is_empty()),
                // A later release may know more.
                state: PollerState::ALL.into_iter().find(|known| known.word() == state).unwrap_or(PollerState::Running),
                workers: u32::try_from(workers).ok()?,
                running: running.collect::<Option<_>>()?,
                host,
                pid,
                version,
                started,
                seen,
                queues,
            };
            Some(Entry { id, process, ago: now - seen })
        };
        read().ok_or(is_old.then_some(id))
    }

    fn is_alive(&self) -> bool {
        // If the clock has jumped back, a living poller has said something since.
        self.process.state != PollerState::Stopped && self.ago.abs() <= DEAD_AFTER
    }

    fn serves(&self, queue: &str) -> bool {
        self.process.queues.iter().any(|served| served.queue == queue)
    }
}

fn entries<C: QueueConnection>(connection: &mut C) -> QueryResult<Vec<Result<Entry, Option<i64>>>> {
    let rows = load::<PollerType, PollerRow, _>(connection, &read_pollers())?;
    Ok(rows.into_iter().map(Entry::read).collect())
}

/// Lists the pollers that serve queues of the database and say so, see [`Poller::register`](crate::Poller::register), in the order of
/// their hosts and processes. One that has stopped is gone; one that was killed, frozen or cut off is gone after a minute. Rows
/// of the table that mean nothing are left out.
///
/// ```
/// # use diesel::prelude::*;
/// # use diesel_migrations::MigrationHarness;
/// # use queueable::Migrations;
/// # let mut connection = SqliteConnection::establish(":memory:")?;
/// # connection.run_pending_migrations(Migrations::new().pollers())?;
/// for poller in queueable::pollers(&mut connection)? {
///     println!("{poller}");
///     for message in &poller.running {
///         println!("  {} {} since {}", message.queue, message.key, message.since);
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
///
/// # Errors
///
/// [`Error::Control`] if there is no table of [`Migrations::pollers`](crate::Migrations::pollers), [`Error::Database`].
pub fn pollers<C: AsQueueConnection>(connection: &mut C) -> Result<Vec<PollerProcess>, Error> {
    let connection = connection.as_queue_connection();
    expect_own(connection, OwnTable::Pollers, "pollers")?;
    let alive = entries(connection)?.into_iter().flatten().filter(Entry::is_alive);
    let mut processes: Vec<_> = alive.map(|entry| entry.process).collect();
    mark_differences(&mut processes);
    processes.sort_by(|one, other| (&one.host, one.pid, one.started).cmp(&(&other.host, other.pid, other.started)));
    Ok(processes)
}

/// Notes in which settings each process differs from the others.
fn mark_differences(processes: &mut [PollerProcess]) {
    // For each queue: of how many processes, and how many of them have a setting's value.
    let mut counts = HashMap::<String, usize>::new();
    let mut values = HashMap::<(String, String), HashMap<Option<String>, usize>>::new();
    let served = || processes.iter().flat_map(|process| &process.queues);
    for queue in served() {
        *counts.entry(queue.queue.clone()).or_default() += 1;
        queue.settings.keys().for_each(|name| {
            values.entry((queue.queue.clone(), name.clone())).or_default();
        });
    }
    for queue in served() {
        for ((_, name), values) in values.iter_mut().filter(|((of, _), _)| *of == queue.queue) {
            *values.entry(queue.settings.get(name).cloned()).or_default() += 1;
        }
    }
    for queue in processes.iter_mut().flat_map(|process| &mut process.queues) {
        let differs = |((of, name), values): (&(String, String), &HashMap<Option<String>, usize>)| {
            let (alike, all) = (values.get(&queue.settings.get(name).cloned()).copied(), counts[of]);
            (*of == queue.queue && values.len() > 1 && alike.unwrap_or(0) * 2 <= all).then(|| name.clone())
        };
        queue.differs = values.iter().filter_map(differs).collect();
        queue.differs.sort();
    }
}

/// Returns the process that runs this row, in words, if one says so in the table of pollers.
pub(crate) fn runner_of<C: QueueConnection>(connection: &mut C, queue: &str, key: &str) -> QueryResult<Option<String>> {
    let key = cut(key);
    let runs = |entry: &Entry| {
        entry.is_alive() && entry.process.running.iter().any(|message| message.queue == queue && message.key == key)
    };
    let found = entries(connection)?.into_iter().flatten().find(runs);
    Ok(found.map(|Entry { process, .. }| format!("{} (pid {})", process.host, process.pid)))
}

/// Returns that nobody serves the queue, if that is known: if there is a table of pollers, and none of them does.
pub(crate) fn unserved<C: QueueConnection>(connection: &mut C, queue: &str) -> QueryResult<Option<Unserved>> {
    if !connection.may_read_own(OwnTable::Pollers)? {
        return Ok(None);
    }
    let serving: Vec<_> = entries(connection)?.into_iter().flatten().filter(|entry| entry.serves(queue)).collect();
    if serving.iter().any(Entry::is_alive) {
        return Ok(None);
    }
    // The latest comes first.
    let last =
        serving.into_iter().next().map(|Entry { process, ago, .. }| (process.host, ago.to_std().unwrap_or_default()));
    Ok(Some(Unserved { queue: queue.to_owned(), last }))
}

fn cut(key: &str) -> String {
    key.chars().take(LONGEST_KEY).collect()
}

/// What a running poller says of itself.
pub(crate) struct Presence {
    id: i64,
    started: Instant,
    entry: PollerEntry,
    running: Arc<RunningAttempts>,
    /// When it last looked for what dead ones have left.
    tidied: Mutex<Option<Instant>>,
}

impl Presence {
    /// `queues`: the name, the entity and the settings of each.
    pub(crate) fn new(
        (application, workers): (Option<&str>, usize),
        queues: impl Iterator<Item = (String, &'static str, BTreeMap<String, String>)>,
        running: Arc<RunningAttempts>,
    ) -> Self {
        let queues: Vec<_> = queues
            .map(|(queue, entity, settings)| ProcessedQueue {
                queue,
                entity: entity.to_owned(),
                settings,
                differs: Vec::new(),
            })
            .collect();
        let id = fastrand::i64(0..i64::MAX);
        let entry = PollerEntry {
            id,
            host: gethostname::gethostname().to_string_lossy().into_owned(),
            pid: i64::from(std::process::id()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            application: application.unwrap_or_default().to_owned(),
            state: PollerState::Running.word(),
            workers: i32::try_from(workers).unwrap_or(i32::MAX),
            queues: json(&queues),
            running: String::new(),
            age: 0,
        };
        Presence { id, started: Instant::now(), entry, running, tidied: Mutex::default() }
    }

    /// Says what the poller does now, and removes what dead ones have left.
    pub(crate) fn write<C: QueueConnection>(&self, connection: &mut C, state: PollerState) -> QueryResult<()> {
        let running = self.running.oldest(MOST_RUNNING).into_iter().map(|attempt| StoredMessage {
            queue: attempt.queue.to_string(),
            key: cut(&attempt.key),
            stage: attempt.stage.map(str::to_owned),
            for_ms: i64::try_from(attempt.begun.elapsed().as_millis()).unwrap_or(i64::MAX),
        });
        let running = json(&running.collect::<Vec<_>>());
        let age = i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX);
        let entry = PollerEntry { state: state.word(), running, age, ..self.entry.clone() };
        // Others may have removed the row, if this process was frozen.
        if execute(connection, &update_poller(&entry))? == 0 {
            execute(connection, &insert_poller(&entry))?;
        }
        if self.tidied.lock().is_some_and(|tidied| tidied.elapsed() < TIDIED_EVERY) {
            return Ok(());
        }
        *self.tidied.lock() = Some(Instant::now());
        let found = entries(connection)?;
        let gone = |place: usize| match &found[place] {
            Err(id) => *id,
            Ok(entry) if entry.id == self.id || entry.is_alive() => None,
            // The last one of a queue stays, so that an operator learns when it was.
            Ok(entry) => {
                let later = || found[..place].iter().flatten();
                let has_successor = |queue: &ProcessedQueue| later().any(|later| later.serves(&queue.queue));
                let is_forgotten = entry.ago > REMEMBERED || entry.process.queues.iter().all(has_successor);
                is_forgotten.then_some(entry.id)
            }
        };
        (0..found.len()).filter_map(gone).try_for_each(|id| execute(connection, &remove_poller(id)).map(drop))
    }
}

fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("texts and numbers can be written as JSON")
}

/// Finds out whether the session can read and write the table.
pub(crate) fn check_pollers<C: QueueConnection>(connection: &mut C) -> QueryResult<Option<Finding>> {
    check_own(connection, OwnTable::Pollers, ("register", "pollers", "SELECT, INSERT, UPDATE, DELETE"), |connection| {
        let entry = PollerEntry { id: -fastrand::i64(1..i64::MAX), ..PollerEntry::default() };
        connection.begin()?;
        let tried = execute(connection, &insert_poller(&entry))
            .and_then(|_| execute(connection, &update_poller(&entry)))
            .and_then(|_| entries(connection))
            .and_then(|_| execute(connection, &remove_poller(entry.id)));
        C::TransactionManager::rollback_transaction(connection)?;
        tried.map(drop)
    })
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    fn process(settings: &[(&str, &str)]) -> PollerProcess {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let queue = ProcessedQueue {
            queue: "payments.status".to_owned(),
            entity: String::new(),
            settings,
            differs: Vec::new(),
        };
        PollerProcess {
            host: String::new(),
            pid: 1,
            version: String::new(),
            application: None,
            state: PollerState::Running,
            workers: 1,
            started: DateTime::UNIX_EPOCH,
            seen: DateTime::UNIX_EPOCH,
            queues: vec![queue],
            running: Vec::new(),
        }
    }

    fn differences(mut processes: Vec<PollerProcess>) -> Vec<Vec<String>> {
        mark_differences(&mut processes);
        processes.into_iter().map(|mut process| std::mem::take(&mut process.queues[0].differs)).collect()
    }

    #[test]
    fn the_one_that_differs_from_most_is_named() {
        let alike = || process(&[("retry", "1s"), ("max_tries", "5")]);
        assert_eq!(differences(vec![alike(), alike()]), [Vec::<String>::new(), Vec::new()]);
        let other = process(&[("retry", "2s"), ("max_tries", "5"), ("window", "22:00-06:00 UTC")]);
        let found = differences(vec![alike(), other.clone(), alike()]);
        assert_eq!(found, [vec![], vec!["retry".to_owned(), "window".to_owned()], vec![]]);
        let of_two = differences(vec![alike(), other]);
        assert_eq!(of_two[0], of_two[1]);
        assert_eq!(of_two[0], ["retry", "window"]);
    }
}
