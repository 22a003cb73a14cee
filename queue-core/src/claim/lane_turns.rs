//! Whose turn it is: the order in which claims try the lanes of an entity whose rows are scheduled by a column of the
//! domain.
//!
//! Usually only few rows are due. One statement then reads the lanes of all of them, and those lanes come first that
//! have waited longest for their turn. During a backlog the claims walk along the index of lanes, from one lane to the
//! next, and pass over the backlog of each.
//!
//! Such a walk also passes over the lanes that have no due row, and with an order over the rows of a lane that are not due yet. If
//! that takes long, and very many rows wait, the claims read the lanes of a thousand due rows four times a second, and walk only now
//! and then, for the lanes of the others.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::result::QueryResult;

use super::refused_state::{Refusal, pause_after};
use crate::backend::QueueConnection;
use crate::entity::Key;
use crate::row::{Instant as Due, Lane, LaneValue, RowKey};
use crate::statement::{ErasedQueue, Scope};
use crate::sync::Mutex;

/// The largest number of due rows whose lanes are read at once.
const LANE_SAMPLE: u32 = 128;

/// After a sample that did not reach the end of the due rows, the time to the next one.
const LANE_SAMPLE_PAUSE: Duration = Duration::from_secs(1);

/// The largest number of due rows whose lanes are read at once where walks are slow.
const WIDE_SAMPLE: u32 = 1_000;

/// How long a walk takes that is slow: about as long as a wide sample.
const SLOW_WALK: Duration = Duration::from_millis(1);

/// How many rows have to wait for their time if a walk is not slow for another reason, such as a busy machine.
const MANY_WAIT: u32 = 10_000;

/// For how long one answer to the question whether walks are slow holds.
const SLOW_FOR: Duration = Duration::from_secs(10);

/// For how long the lanes of a wide sample take turns before the next one.
const WIDE_SAMPLE_PAUSE: Duration = Duration::from_millis(250);

/// Of the time where walks are slow, they take one part in so many.
const WALKS_ONE_IN: u32 = 10;

/// The turns of the lanes of one entity, as its workers in this process see them.
pub(crate) struct LaneTurns<K: Key, C: QueueConnection> {
    queue: &'static ErasedQueue<K, C>,
    round: Mutex<Round>,
    pub(super) refusals: LaneRefusals,
    /// The lanes that are paused, by the names that pauses give them.
    paused: Mutex<Arc<HashSet<String>>>,
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
    /// Until when walks count as slow, and when the next slow one may begin.
    slow_until: Instant,
    next_walk: Instant,
    /// When to look again whether many rows wait.
    next_count: Instant,
    /// The lanes of the last wide sample, and until when they are used.
    sampled: Vec<Lane>,
    sampled_until: Instant,
    /// Lanes that slow walks have found. They have turns until there is no due row.
    walked_to: HashMap<Arc<str>, Lane>,
    /// How many lanes the last complete round had.
    lanes: u32,
    walked: u32,
    /// The lanes that are held back, and when to look again.
    held_back: HashMap<Arc<str>, Instant>,
}

/// What a search for a lane does next.
enum LaneStep {
    /// It tries this lane.
    Take(Lane),
    /// It walks along the index.
    Walk,
    /// It reads the lanes of the rows that have been due longest.
    Sample {
        /// Whether walks are slow.
        is_slow: bool,
    },
    /// No lane is left for it.
    End,
}

/// How far one claim has looked for a lane.
#[derive(Default)]
pub(crate) struct Search {
    /// Whether it tries only the lanes that are left of this round.
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
            slow_until: Instant::now(),
            next_walk: Instant::now(),
            next_count: Instant::now(),
            sampled: Vec::new(),
            sampled_until: Instant::now(),
            walked_to: HashMap::new(),
            lanes: 1,
            walked: 0,
            held_back: HashMap::new(),
        };
        LaneTurns { queue, round: Mutex::new(round), refusals: LaneRefusals::default(), paused: Mutex::default() }
    }

    /// Leaves these lanes alone, and no others.
    pub(crate) fn set_paused(&self, lanes: HashSet<String>) {
        *self.paused.lock() = Arc::new(lanes);
    }

    /// Tells whether any lane is paused.
    pub(crate) fn any_paused(&self) -> bool {
        !self.paused.lock().is_empty()
    }

    /// Tells whether a lane is paused.
    pub(crate) fn is_paused(&self, lane: &Lane) -> bool {
        let paused = self.paused.lock().clone();
        !paused.is_empty() && lane.pause_name().is_some_and(|name| paused.contains(&*name))
    }

    /// Returns the next lane to try. `None`: the search has seen all of them.
    pub(crate) fn next_lane(
        &self,
        connection: &mut C,
        scope: Scope<'_, K>,
        search: &mut Search,
    ) -> QueryResult<Option<Lane>> {
        loop {
            let step = self.round.lock().step(search);
            match step {
                LaneStep::Take(lane) if self.is_paused(&lane) => {}
                LaneStep::Take(lane) => return Ok(Some(lane)),
                LaneStep::Walk => self.walk_on(connection, scope, search)?,
                LaneStep::Sample { is_slow } => self.sample(connection, scope, search, is_slow)?,
                LaneStep::End => return Ok(None),
            }
        }
    }

    /// Walks on along the index, and notes if that is slow because very many rows wait.
    fn walk_on(&self, connection: &mut C, scope: Scope<'_, K>, search: &mut Search) -> QueryResult<()> {
        let begun = Instant::now();
        self.walk(connection, scope, search)?;
        let took = begun.elapsed();
        if took > SLOW_WALK && self.do_many_wait(connection, begun)? {
            let mut round = self.round.lock();
            round.slow_until = begun + SLOW_FOR;
            round.next_walk = begun + took * WALKS_ONE_IN;
            let found: Vec<_> = round.next.iter().map(|lane| (lane.identity(), lane.clone())).collect();
            round.walked_to.extend(found);
        }
        Ok(())
    }

    /// Reads the lanes of the rows that have been due longest. `is_slow`: of many, because walks are slow.
    fn sample(&self, connection: &mut C, scope: Scope<'_, K>, search: &mut Search, is_slow: bool) -> QueryResult<()> {
        let most = if is_slow { WIDE_SAMPLE } else { LANE_SAMPLE };
        let lanes = self.queue.due_lanes(connection, scope, most)?;
        let are_all = lanes.len() < most as usize;
        let is_wide = is_slow && lanes.len() >= LANE_SAMPLE as usize;
        // The lanes of a wide sample are tried once, however long that takes.
        search.is_complete = are_all || is_wide;
        let mut round = self.round.lock();
        if are_all {
            round.walked_to.clear();
        } else {
            round.next_sample = Instant::now() + LANE_SAMPLE_PAUSE;
        }
        if are_all || is_slow {
            let others: Vec<_> = round.walked_to.values().cloned().collect();
            round.fill(lanes.into_iter().chain(others).collect());
        }
        if is_wide {
            round.sampled = round.next.iter().cloned().collect();
            round.sampled_until = Instant::now() + WIDE_SAMPLE_PAUSE;
        }
        Ok(())
    }

    /// Tells whether so many rows wait for their time that a walk may pass over very many.
    fn do_many_wait(&self, connection: &mut C, now: Instant) -> QueryResult<bool> {
        {
            let mut round = self.round.lock();
            if now < round.slow_until || now < round.next_count {
                return Ok(now < round.slow_until);
            }
            round.next_count = now + SLOW_FOR;
        }
        self.queue.do_wait(connection, MANY_WAIT)
    }

    /// Makes a lane the next one to try.
    pub(super) fn put_next(&self, lane: &Lane) {
        self.round.lock().next.push_front(lane.clone());
    }

    /// Notes that a claim has found no row in a lane.
    pub(super) fn note_nothing_in(&self, lane: &Lane) {
        self.round.lock().walked_to.remove(&lane.identity());
    }

    /// Leaves a lane alone for this time, because its first row holds it back.
    pub(super) fn hold_back(&self, lane: &Lane, pause: Duration) {
        let (now, mut round) = (Instant::now(), self.round.lock());
        round.held_back.retain(|_, until| *until > now);
        round.held_back.insert(lane.identity(), now + pause);
    }

    /// Tells whether a lane is left alone now.
    pub(super) fn is_held_back(&self, lane: &Lane) -> bool {
        self.round.lock().is_held_back(lane) || self.is_paused(lane)
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
    /// Decides what a search for a lane does next.
    fn step(&mut self, search: &mut Search) -> LaneStep {
        loop {
            if let Some(lane) = self.take() {
                return LaneStep::Take(lane);
            }
            let now = Instant::now();
            if search.is_complete {
                return LaneStep::End;
            }
            if now >= self.sampled_until {
                let is_slow = now < self.slow_until;
                let samples = now >= self.next_sample || (is_slow && now < self.next_walk);
                return if samples { LaneStep::Sample { is_slow } } else { LaneStep::Walk };
            }
            // For the rest of this time every claim tries these.
            search.is_complete = true;
            let lanes = self.sampled.clone();
            self.fill(lanes);
        }
    }

    /// Takes the lane that is next.
    fn take(&mut self) -> Option<Lane> {
        let lane = loop {
            let lane = self.next.pop_front()?;
            if !self.is_held_back(&lane) {
                break lane;
            }
        };
        self.turn += 1;
        if self.turns.len() >= LANES_REMEMBERED {
            self.turns.clear();
        }
        self.turns.insert(lane.identity(), self.turn);
        Some(lane)
    }

    fn is_held_back(&self, lane: &Lane) -> bool {
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

/// The shortest time between two looks at a lane whose first row waits: an operator may have skipped the row.
const SHORTEST_LOOK: Duration = Duration::from_secs(3);

/// What each such lane adds to this time, so that many lanes are not looked at more often than a few.
const LOOK_PER_LANE: Duration = Duration::from_millis(30);

/// How many lanes are remembered.
const LANES_REMEMBERED: usize = 100_000;

/// The strict lanes whose first row the database refuses to write, by the names of the lanes, as one process knows them.
///
/// No worker may pass such a row, so the process leaves its whole lane alone while the row waits for its next try. Other
/// processes find out for themselves.
#[derive(Default)]
pub(super) struct LaneRefusals(Mutex<RefusedLanes>);

#[derive(Default)]
struct RefusedLanes {
    first: HashMap<Arc<str>, RefusedFirst>,
    /// The lane of each such row, by the text of its key.
    lane_of: HashMap<Arc<str>, Arc<str>>,
}

/// The first row of a lane.
struct RefusedFirst {
    key: Arc<str>,
    due: Option<Due>,
    times: u32,
    until: Instant,
}

impl RefusedFirst {
    /// Tells whether this row is meant. With another due time, it was enqueued anew.
    fn is<K>(&self, key: &RowKey<K>, due: Option<Due>) -> bool {
        self.key == *key.text() && (self.due.is_none() || due.is_none() || self.due == due)
    }
}

impl LaneRefusals {
    /// Notes that the database has refused to write on the first row of a lane, and has done so at least `times` times
    /// before.
    pub(super) fn refuse<K>(&self, lane: &Lane, key: &RowKey<K>, due: Option<Due>, times: u32) -> Refusal {
        let (lane, mut lanes) = (lane.identity(), self.0.lock());
        let before = lanes.first.get(&lane).filter(|before| before.is(key, due)).map(|before| before.times);
        let is_first = before.is_none();
        if is_first && lanes.first.len() >= LANES_REMEMBERED {
            return Refusal { is_first, is_left_alone: false };
        }
        let times = before.unwrap_or(0).max(times);
        let until = Instant::now() + pause_after(times);
        lanes.end(&lane);
        // It may have come from another lane.
        lanes.end_row(key.text());
        lanes.lane_of.insert(key.text().clone(), lane.clone());
        lanes.first.insert(lane, RefusedFirst { key: key.text().clone(), due, times: times.saturating_add(1), until });
        Refusal { is_first, is_left_alone: true }
    }

    /// Returns how many lanes have such a row.
    pub(super) fn number(&self) -> usize {
        self.0.lock().first.len()
    }

    /// Tells whether the first row of this lane may be one that waits for its next try.
    pub(super) fn may_hold(&self, lane: &Lane) -> bool {
        self.0.lock().first.get(&lane.identity()).is_some_and(|first| first.until > Instant::now())
    }

    /// Returns how long to leave the lane alone whose first row this is, if the row waits for its next try.
    pub(super) fn holds<K>(&self, lane: &Lane, key: &RowKey<K>, due: Option<Due>) -> Option<Duration> {
        let lanes = &self.0.lock().first;
        let first = lanes.get(&lane.identity()).filter(|first| first.is(key, due))?;
        let waits = first.until.checked_duration_since(Instant::now())?;
        let look = LOOK_PER_LANE.saturating_mul(u32::try_from(lanes.len()).unwrap_or(u32::MAX)).max(SHORTEST_LOOK);
        Some(waits.min(look))
    }

    /// Tells whether this row is the refused first one of the lane, whether or not it waits.
    pub(super) fn contain<K>(&self, lane: &Lane, key: &RowKey<K>, due: Option<Due>) -> bool {
        self.0.lock().first.get(&lane.identity()).is_some_and(|first| first.is(key, due))
    }

    /// Forgets what was refused in a lane whose first row is another one by now.
    pub(super) fn end(&self, lane: &Lane) {
        self.0.lock().end(&lane.identity());
    }

    /// Forgets a row whose new state is committed.
    pub(super) fn end_row<K>(&self, key: &RowKey<K>) {
        self.0.lock().end_row(key.text());
    }
}

impl RefusedLanes {
    fn end(&mut self, lane: &Arc<str>) {
        if let Some(first) = self.first.remove(lane) {
            self.lane_of.remove(&first.key);
        }
    }

    fn end_row(&mut self, key: &Arc<str>) {
        if let Some(lane) = self.lane_of.remove(key) {
            self.first.remove(&lane);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::BoundValue;

    fn lane(company: &str) -> Lane {
        Lane::Value(LaneValue { identity: company.into(), bound: BoundValue::Text(company.to_owned()) })
    }

    #[test]
    fn a_refused_row_holds_its_lane_until_another_one_is_first() {
        let refusals = LaneRefusals::default();
        let (one, two) = (RowKey::new(1, "1"), RowKey::new(2, "2"));
        assert!(refusals.refuse(&lane("7"), &one, None, 0).is_first);
        assert!(refusals.may_hold(&lane("7")) && !refusals.may_hold(&lane("8")));
        assert!(refusals.holds(&lane("7"), &one, None).is_some_and(|look| look <= SHORTEST_LOOK));
        assert!(refusals.contain(&lane("7"), &one, None));
        assert_eq!(refusals.holds(&lane("7"), &two, None), None);
        assert!(!refusals.refuse(&lane("7"), &one, None, 0).is_first);
        refusals.end(&lane("7"));
        assert!(!refusals.may_hold(&lane("7")) && !refusals.contain(&lane("7"), &one, None));
    }

    #[test]
    fn a_refused_row_that_is_settled_after_all_is_forgotten() {
        let refusals = LaneRefusals::default();
        let (one, two) = (RowKey::new(1, "1"), RowKey::new(2, "2"));
        refusals.refuse(&lane("7"), &one, None, 0);
        refusals.refuse(&lane("8"), &two, None, 0);
        refusals.end_row(&RowKey::new(3, "3"));
        assert_eq!(refusals.number(), 2);
        refusals.end_row(&one);
        assert_eq!(refusals.number(), 1);
        assert!(refusals.contain(&lane("8"), &two, None));
        refusals.refuse(&lane("8"), &one, None, 0);
        refusals.end_row(&two);
        assert!(refusals.contain(&lane("8"), &one, None), "another row is the first of the lane by now");
        refusals.refuse(&lane("9"), &one, None, 0);
        assert_eq!(refusals.number(), 1, "the row has gone to another lane");
        refusals.end_row(&one);
        assert_eq!(refusals.number(), 0);
    }

    #[test]
    fn a_row_that_was_enqueued_anew_is_another_one() {
        let refusals = LaneRefusals::default();
        let (lane, key) = (lane("7"), RowKey::new(1, "1"));
        let due = |second| Some(Due::from(chrono::DateTime::from_timestamp(second, 0).expect("a small number")));
        refusals.refuse(&lane, &key, due(1), 3);
        assert!(refusals.holds(&lane, &key, due(1)).is_some());
        assert_eq!(refusals.holds(&lane, &key, due(2)), None);
    }
}
