//! Whose turn it is: the order in which claims try the lanes of an entity whose rows are scheduled by a column of the
//! domain.
//!
//! Usually only few rows are due. One statement then reads the lanes of all of them, and those lanes come first that
//! have waited longest for their turn. During a backlog the claims walk along the index of lanes, from one lane to the
//! next, and pass over the backlog of each.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::result::QueryResult;

use super::lane_refusals::LaneRefusals;
use crate::backend::QueueConnection;
use crate::entity::Key;
use crate::row::{Lane, LaneValue};
use crate::statement::{ErasedQueue, Scope};
use crate::sync::Mutex;

/// The largest number of due rows whose lanes are read at once.
const SAMPLE: u32 = 128;

/// After a sample that did not reach the end of the due rows, the time to the next one.
const SAMPLE_PAUSE: Duration = Duration::from_secs(1);

/// The turns of the lanes of one entity, as its workers in this process see them.
pub(crate) struct LaneTurns<K: Key, C: QueueConnection> {
    queue: &'static ErasedQueue<K, C>,
    round: Mutex<Round>,
    pub(super) refusals: LaneRefusals,
}

/// The state of the turns.
struct Round {
    /// The lanes that are next.
    next: VecDeque<Lane>,
    /// The last turn of each lane that has due rows, as a number that grows.
    turns: HashMap<Arc<str>, u64>,
    turn: u64,
    /// The value that the walk along the index has reached.
    reached: Option<LaneValue>,
    /// How often a worker has walked on.
    walks: u64,
    next_sample: Instant,
    /// How many lanes the last complete round had.
    lanes: u32,
    walked: u32,
    /// The lanes that are held back, and when to look again.
    held_back: HashMap<Arc<str>, Instant>,
}

/// How far one claim has looked for a lane.
#[derive(Default)]
pub(crate) struct Search {
    /// Whether it has read the lanes of all due rows.
    is_complete: bool,
    /// How often its walk has reached the end of the index.
    ends: u32,
}

impl<K: Key, C: QueueConnection> LaneTurns<K, C> {
    pub(crate) fn new(queue: &'static ErasedQueue<K, C>) -> Self {
        let round = Round {
            next: VecDeque::new(),
            turns: HashMap::new(),
            turn: 0,
            reached: None,
            walks: 0,
            next_sample: Instant::now(),
            lanes: 1,
            walked: 0,
            held_back: HashMap::new(),
        };
        LaneTurns { queue, round: Mutex::new(round), refusals: LaneRefusals::default() }
    }

    /// Returns the next lane to try. `None`: the search has seen all of them.
    pub(crate) fn next_lane(
        &self,
        connection: &mut C,
        scope: Scope<'_, K>,
        search: &mut Search,
    ) -> QueryResult<Option<Lane>> {
        loop {
            let samples = {
                let mut round = self.round.lock();
                if let Some(lane) = round.take() {
                    return Ok(Some(lane));
                }
                if search.is_complete {
                    return Ok(None);
                }
                Instant::now() >= round.next_sample
            };
            if !samples {
                self.walk(connection, scope, search)?;
                continue;
            }
            let lanes = self.queue.due_lanes(connection, scope, SAMPLE)?;
            search.is_complete = lanes.len() < SAMPLE as usize;
            match search.is_complete {
                true => self.round.lock().fill(lanes),
                false => self.round.lock().next_sample = Instant::now() + SAMPLE_PAUSE,
            }
        }
    }

    /// Makes a lane the next one to try.
    pub(super) fn is_next(&self, lane: &Lane) {
        self.round.lock().next.push_front(lane.clone());
    }

    /// Leaves a lane alone for this time, because its first row holds it back.
    pub(super) fn is_held_back(&self, lane: &Lane, pause: Duration) {
        let (now, mut round) = (Instant::now(), self.round.lock());
        round.held_back.retain(|_, until| *until > now);
        round.held_back.insert(lane.identity(), now + pause);
    }

    /// Tells whether a lane is left alone now.
    pub(super) fn holds_back(&self, lane: &Lane) -> bool {
        self.round.lock().holds_back(lane)
    }

    /// Returns how many of these rows a claim takes of one lane, so that the lanes share it.
    pub(crate) fn share(&self, rows: u32) -> u32 {
        (rows / self.round.lock().lanes).max(1)
    }

    /// Reads the next lanes along the index, unless another worker has done so meanwhile.
    fn walk(&self, connection: &mut C, scope: Scope<'_, K>, search: &mut Search) -> QueryResult<()> {
        let (after, walks) = {
            let round = self.round.lock();
            (round.reached.clone(), round.walks)
        };
        let (is_first, ahead) = (after.is_none(), self.queue.lanes_ahead(scope));
        let found = self.queue.next_lanes(connection, scope, after, ahead)?;
        let mut round = self.round.lock();
        if round.walks != walks {
            return Ok(());
        }
        let lanes = u32::try_from(found.len()).unwrap_or(u32::MAX);
        round.walks += 1;
        round.walked += lanes;
        round.reached = found.last().cloned();
        round.next.extend(found.into_iter().map(Lane::Value));
        if lanes < ahead {
            round.reached = None;
            round.lanes = std::mem::take(&mut round.walked).max(1);
            let nullable = self.queue.sql.options.lanes.is_some_and(|lanes| lanes.of.nullable);
            round.next.extend(nullable.then_some(Lane::NoValue));
            search.ends += 1;
            // From the first lane to the last, or from somewhere to the last and then all of them.
            search.is_complete = is_first || search.ends > 1;
        }
        Ok(())
    }
}

impl Round {
    /// Takes the lane that is next.
    fn take(&mut self) -> Option<Lane> {
        let lane = loop {
            let lane = self.next.pop_front()?;
            if !self.holds_back(&lane) {
                break lane;
            }
        };
        self.turn += 1;
        self.turns.insert(lane.identity(), self.turn);
        Some(lane)
    }

    fn holds_back(&self, lane: &Lane) -> bool {
        !self.held_back.is_empty() && self.held_back.get(&lane.identity()).is_some_and(|until| *until > Instant::now())
    }

    /// Puts the lanes of all due rows into the order in which they had their last turns.
    fn fill(&mut self, lanes: Vec<Lane>) {
        let mut seen = HashSet::new();
        let mut next: Vec<_> = lanes.into_iter().filter(|lane| seen.insert(lane.identity())).collect();
        // A lane without due rows has been served.
        self.turns.retain(|lane, _| seen.contains(lane));
        next.sort_by_key(|lane| self.turns.get(&lane.identity()).copied().unwrap_or(0));
        self.lanes = u32::try_from(next.len()).unwrap_or(u32::MAX).max(1);
        self.next = next.into();
    }
}
