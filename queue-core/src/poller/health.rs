//! How a poller is, as far as its process knows: cheap enough to be asked every second.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::sync::Mutex;

/// For how long the scout keeps reading after `health` was called once.
const ASKED: Duration = Duration::from_secs(60);

/// The shortest time between two readings of the oldest due row.
const READ_EVERY: Duration = Duration::from_secs(1);

/// How many times as long as a reading has taken the next one waits at least.
const REST: u32 = 20;

/// How a running poller is, see [`PollerHandle::health`](crate::PollerHandle::health).
///
/// ```
/// use queueable::Health;
///
/// let health: Health = serde_json::from_str(r#"{
///     "alive": true, "threads_without_connection": 0, "last_probe": {"secs": 0, "nanos": 310000000},
///     "workers": 4, "stuck_workers": 0, "running": 1,
///     "entities": [{"entity": "Payment", "running": 1, "oldest_due": {"secs": 12, "nanos": 0}, "read": {"secs": 0, "nanos": 310000000}}]
/// }"#)?;
/// assert!(health.is_well(std::time::Duration::from_secs(30)));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Health {
    /// Whether the poller serves: its scout runs, it is not shutting down, and not all of its workers are stuck.
    pub alive: bool,
    /// How many of its threads could not get a connection when they asked last.
    pub threads_without_connection: usize,
    /// How long ago the database has last answered a probe of the scout. `None`: it never has.
    pub last_probe: Option<Duration>,
    /// How long the database has owed an answer to the thread that has waited longest. `None`: no thread waits. After
    /// [`PollerSettings::network_timeout`](crate::PollerSettings::network_timeout) another thread takes its place.
    #[serde(default)]
    pub longest_wait: Option<Duration>,
    /// How many worker threads there are, stuck ones included.
    pub workers: usize,
    /// How many workers' handlers have not returned after their timeout. Other threads have taken their places, up to
    /// [`PollerSettings::max_stuck_workers`](crate::PollerSettings::max_stuck_workers).
    pub stuck_workers: usize,
    /// How many workers are processing a message, or a group of messages, and how many async calls are in flight. Stuck
    /// workers do not count.
    pub running: usize,
    /// The entities that the poller serves.
    pub entities: Vec<EntityHealth>,
}

/// How one entity of a poller is, see [`Health`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EntityHealth {
    /// The entity's name.
    pub entity: String,
    /// How many workers are processing a message of it, or a group of messages, and how many of its async calls are in
    /// flight.
    pub running: usize,
    /// How long its oldest due row has been due, by the database's clock. In transaction and group mode this includes rows
    /// that are being processed. `None`: no row was due, or `read` is `None`.
    pub oldest_due: Option<Duration>,
    /// How long ago `oldest_due` was read. `None`: not yet.
    pub read: Option<Duration>,
    /// Why no message of it can be claimed, if the reason is its table's and no row's: the table, a column or a right is
    /// gone, a column has another type than when the poller started, or another build of the entity has added columns.
    /// Nothing is claimed meanwhile. A restart of the process mends no table, so [`Health::is_well`] does not ask for it.
    #[serde(default)]
    pub stalled: Option<String>,
}

impl Health {
    /// Tells whether a load balancer or an orchestrator should be content: the poller is alive, all its threads have
    /// connections, no worker is stuck, the scout has looked at the database within `longest`, and no thread has waited longer
    /// for an answer. Choose at least ten times the poll interval.
    pub fn is_well(&self, longest: Duration) -> bool {
        self.alive
            && self.threads_without_connection == 0
            && self.stuck_workers == 0
            && self.last_probe.is_some_and(|last_probe| last_probe <= longest)
            && self.longest_wait.is_none_or(|wait| wait <= longest)
    }
}

/// What the scout notes for those who ask how the poller is.
pub(crate) struct HealthBoard(Mutex<Notes>);

struct Notes {
    /// When `health` was called last.
    asked: Option<Instant>,
    last_probe: Option<Instant>,
    /// The oldest due row of each runner.
    oldest: Vec<Option<Reading>>,
}

#[derive(Clone, Copy)]
struct Reading {
    oldest_due: Option<Duration>,
    at: Instant,
    next: Instant,
}

impl HealthBoard {
    pub(crate) fn new(runners: usize) -> Self {
        HealthBoard(Mutex::new(Notes { asked: None, last_probe: None, oldest: vec![None; runners] }))
    }

    /// Notes a call of `health`. Returns whether there was none lately, so that the scout has not read anything.
    pub(crate) fn note_question(&self) -> bool {
        let before = self.0.lock().asked.replace(Instant::now());
        before.is_none_or(|before| before.elapsed() >= ASKED)
    }

    /// Notes that the database has answered the scout.
    pub(crate) fn note_answer(&self) {
        self.0.lock().last_probe = Some(Instant::now());
    }

    /// Tells whether `health` wants to know the oldest due row of a runner, and it was not read lately.
    pub(crate) fn wants(&self, runner: usize) -> bool {
        let notes = self.0.lock();
        let is_asked = notes.asked.is_some_and(|asked| asked.elapsed() < ASKED);
        is_asked && notes.oldest[runner].is_none_or(|reading| reading.next <= Instant::now())
    }

    /// Takes what was read in answer to a question of this moment.
    pub(crate) fn note_oldest_due(&self, runner: usize, oldest_due: Option<Duration>, asked: Instant) {
        let at = Instant::now();
        let next = at + READ_EVERY.max((at - asked).saturating_mul(REST));
        let mut notes = self.0.lock();
        notes.oldest[runner] = Some(Reading { oldest_due, at, next });
        notes.last_probe = Some(at);
    }

    pub(crate) fn last_probe(&self) -> Option<Duration> {
        self.0.lock().last_probe.map(|at| at.elapsed())
    }

    /// Returns the health of a runner's entity. `running`: how many of its messages are being processed. `stalled`: why the queue
    /// stands still, if it does.
    pub(crate) fn entity(&self, runner: usize, entity: &str, running: usize, stalled: Option<String>) -> EntityHealth {
        let reading = self.0.lock().oldest[runner];
        EntityHealth {
            entity: entity.to_owned(),
            running,
            oldest_due: reading.and_then(|reading| reading.oldest_due),
            read: reading.map(|reading| reading.at.elapsed()),
            stalled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_for_nobody_and_a_slow_reading_has_a_long_rest() {
        let board = HealthBoard::new(1);
        assert!(!board.wants(0));
        assert!(board.note_question() && board.wants(0) && !board.note_question());
        let asked = Instant::now();
        board.note_oldest_due(0, Some(Duration::from_secs(9)), asked);
        assert!(!board.wants(0));
        let reading = board.0.lock().oldest[0].expect("what was read");
        let took = reading.at - asked;
        assert_eq!(reading.next - reading.at, READ_EVERY.max(took * REST));
        let entity = board.entity(0, "Payment", 2, None);
        assert_eq!((entity.running, entity.oldest_due), (2, Some(Duration::from_secs(9))));
    }
}
