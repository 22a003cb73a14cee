//! Who serves the queues, as pollers say of themselves.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::table::utc;
use crate::row::printable;

/// A process whose poller serves queues of the database, as it said of itself within the last minute.
///
/// [`pollers`](crate::pollers) lists them all.
///
/// ```
/// let json = r#"{"host": "web-2", "pid": 4711, "version": "0.1.0", "application": "shop 1.4.2", "state": "running", "workers": 4,
///     "started": "2026-03-01T11:00:00Z", "seen": "2026-03-01T12:00:00Z", "queues": [], "running": []}"#;
/// let poller: queueable::report::PollerProcess = serde_json::from_str(json).unwrap();
/// assert_eq!(poller.to_string(), "web-2 (pid 4711, shop 1.4.2): running, 4 workers, seen 2026-03-01 12:00:00 UTC");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PollerProcess {
    /// The name of the machine.
    pub host: String,
    /// The number of the process on it.
    pub pid: i64,
    /// The version of this library in it.
    pub version: String,
    /// What the application says of itself, see [`Poller::application`](crate::Poller::application).
    #[serde(default)]
    pub application: Option<String>,
    /// What it does.
    pub state: PollerState,
    /// How many workers it has.
    pub workers: u32,
    /// When it started, by the database's clock.
    pub started: DateTime<Utc>,
    /// When it last said something, by the database's clock: every five seconds.
    pub seen: DateTime<Utc>,
    /// The queues that it serves.
    pub queues: Vec<ProcessedQueue>,
    /// The messages that it was processing then, those that began first before the others, and no more than 100.
    pub running: Vec<RunningMessage>,
}

/// What a poller does.
///
/// ```
/// use queueable::report::PollerState;
///
/// assert_eq!(PollerState::WithoutConnection.to_string(), "without connection");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PollerState {
    /// It processes due rows.
    Running,
    /// All its queues are paused, or outside their windows.
    Paused,
    /// It stops, and running handlers have their grace period.
    Draining,
    /// Some of its threads have no connection to the database.
    WithoutConnection,
    /// It has stopped.
    Stopped,
}

/// A queue that a poller serves.
///
/// ```
/// let json = r#"{"queue": "payments.status", "entity": "Payment", "settings": {"max_tries": "20"}, "differs": []}"#;
/// let queue: queueable::report::ProcessedQueue = serde_json::from_str(json).unwrap();
/// assert_eq!(queue.settings["max_tries"], "20");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProcessedQueue {
    /// The queue's name in the control table: its table, with the schema that `table!` names, and its status column.
    pub queue: String,
    /// The entity's name.
    pub entity: String,
    /// How this process works for it: its mode, timeout, retries, tries, turns, limits and so on, as its build of the application
    /// and its poller say.
    pub settings: BTreeMap<String, String>,
    /// The settings in which it differs from more than half of the processes that serve the queue, or from all others if there is
    /// no such half.
    #[serde(default)]
    pub differs: Vec<String>,
}

/// A message that a poller was processing when it was last seen.
///
/// ```
/// let json = r#"{"queue": "payments.status", "key": "42", "since": "2026-03-01T12:00:00Z"}"#;
/// let running: queueable::report::RunningMessage = serde_json::from_str(json).unwrap();
/// assert_eq!(running.key, "42");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunningMessage {
    /// The queue's name.
    pub queue: String,
    /// The primary key as text, cut after 200 characters.
    pub key: String,
    /// The text of the stage, if the rows have stages.
    #[serde(default)]
    pub stage: Option<String>,
    /// Since when, by the database's clock.
    pub since: DateTime<Utc>,
}

/// That no poller serves a queue, among those that say who they are.
///
/// ```
/// let json = r#"{"queue": "payments.status", "last": ["web-2", {"secs": 10800, "nanos": 0}]}"#;
/// let unserved: queueable::report::Unserved = serde_json::from_str(json).unwrap();
/// assert_eq!(unserved.to_string(), "no registered poller serves payments.status; the last one was seen 3h ago on web-2");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Unserved {
    /// The queue's name.
    pub queue: String,
    /// The machine on which the last one ran, and how long ago it was seen. `None`: there was none within 30 days.
    pub last: Option<(String, Duration)>,
}

impl fmt::Display for PollerProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {}", printable(&self.host, false), self.pid)?;
        if let Some(application) = &self.application {
            write!(f, ", {}", printable(application, false))?;
        }
        let workers = if self.workers == 1 { "1 worker".to_owned() } else { format!("{} workers", self.workers) };
        write!(f, "): {}, {workers}, seen {}", self.state, utc(self.seen))?;
        for ProcessedQueue { queue, settings, differs, .. } in &self.queues {
            for setting in differs {
                let value = settings.get(setting).map_or("none", |value| value);
                let (queue, setting) = (printable(queue, false), printable(setting, false));
                write!(f, "; {queue}: its {setting} differs: {}", printable(value, false))?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for PollerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PollerState::WithoutConnection => "without connection",
            state => state.word(),
        })
    }
}

impl fmt::Display for Unserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no registered poller serves {}", printable(&self.queue, false))?;
        let Some((host, ago)) = &self.last else { return Ok(()) };
        let ago = humantime::format_duration(Duration::from_secs(ago.as_secs()));
        write!(f, "; the last one was seen {ago} ago on {}", printable(host, false))
    }
}

impl PollerState {
    pub(super) const ALL: [PollerState; 5] = [
        PollerState::Running,
        PollerState::Paused,
        PollerState::Draining,
        PollerState::WithoutConnection,
        PollerState::Stopped,
    ];

    /// Returns the word that the table has.
    pub(super) fn word(self) -> &'static str {
        match self {
            PollerState::Running => "running",
            PollerState::Paused => "paused",
            PollerState::Draining => "draining",
            PollerState::WithoutConnection => "without_connection",
            PollerState::Stopped => "stopped",
        }
    }
}
