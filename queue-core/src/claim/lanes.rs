//! Which lane is next, and whether it has a place: for entities whose rows are scheduled by a column of the domain, or
//! limited in number.
//!
//! The rows of one value are a lane. The lanes take turns: a claim tries one lane after the other, and in each takes
//! the row that comes first there. A lane may have a limited number of places. In transaction and group mode a place is
//! a lock of the database that ends with the worker's session. In lease mode a row under a lease that has not ended
//! takes a place, and the lock only keeps two claims from counting at the same time.
//!
//! Usually only few rows are due. One statement then reads the lanes of all of them, and those lanes come first that
//! have waited longest for their turn. During a backlog the claims walk along the index of lanes, from one lane to the
//! next, and pass over the backlog of each.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use diesel::result::QueryResult;

use super::by_key::{claim_some, peek};
use crate::backend::{LaneSql, LockSql, QueueConnection, Target};
use crate::entity::QueueTable;
use crate::lock::unpoisoned;
use crate::row::{BoundValue, Lane, LaneValue, Lanes, RowKey};
use crate::statement::{Claimed, ClaimedRow, LaneRows, QueueOn, Scope, claimed_within};

/// The largest number of due rows whose lanes are read at once.
const SAMPLE: u32 = 128;

/// After a sample that did not reach the end of the due rows, the time to the next one.
const SAMPLE_PAUSE: Duration = Duration::from_secs(1);

/// How many keys of a lane are read, beyond the rows to claim, if rows are locked by their keys.
const CANDIDATES: u32 = 4;

/// The factor by which the next read is larger if others hold all of them.
const MORE: u32 = 8;

/// How long this process trusts its own count of a lane's places. A handler that never returns keeps its count, while
/// its session has been ended and its place is free.
const TRUST: Duration = Duration::from_secs(10);

/// The shortest time in which the ends of leases are searched for.
const SHORTEST_SEARCH: Duration = Duration::from_secs(3_600);

/// The lanes of one entity, as its workers in this process see them.
pub(crate) struct LaneTurns {
    target: Target,
    lanes: Option<Lanes>,
    at_most: Option<u32>,
    /// In lease mode, how far the end of a lease may be away.
    longest_lease: Option<Duration>,
    round: Mutex<Round>,
    /// How many places this process holds in each lane, in the modes in which a place is a lock.
    held: Arc<Mutex<HashMap<Arc<str>, Taken>>>,
}

/// The places of a lane that this process holds.
struct Taken {
    places: u32,
    last: Instant,
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
    next_sample: Instant,
    /// How many lanes the last complete round had.
    lanes: u32,
    walked: u32,
}

/// The places that a worker holds, and gives back after its transaction.
pub(crate) struct HeldPlaces<'a> {
    turns: &'a LaneTurns,
    places: Mutex<Vec<HeldPlace>>,
}

/// A place in a lane.
struct HeldPlace {
    lane: Arc<str>,
    place: u32,
    /// The limit of the lane.
    of: u32,
    _counted: CountedPlace,
}

/// A place that is counted for this process as long as this value lives.
struct CountedPlace(Arc<Mutex<HashMap<Arc<str>, Taken>>>, Arc<str>);

impl Drop for CountedPlace {
    fn drop(&mut self) {
        let mut held = unpoisoned(self.0.lock());
        if let Some(taken) = held.get_mut(&self.1) {
            taken.places -= 1;
            if taken.places == 0 {
                held.remove(&self.1);
            }
        }
    }
}

/// How far one claim has looked for a lane.
#[derive(Default)]
struct Search {
    /// Whether it has read the lanes of all due rows.
    is_complete: bool,
    /// How often its walk has reached the end of the index.
    ends: u32,
}

/// Whether the worker of a leased row may go on with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It holds one of the places.
    Holds,
    /// Others count the places at this moment.
    Unknown,
    /// Its lease has ended meanwhile, and others have taken the places.
    Lost,
}

impl LaneTurns {
    /// The lanes of `Q`, if it has any or is limited. `lease`: the length of its leases in lease mode.
    pub(crate) fn of<Q, C>(lease: Option<Duration>) -> QueryResult<Option<Self>>
    where
        C: QueueConnection,
        Q: QueueOn<C>,
    {
        let options = Q::Queue::OPTIONS;
        if !options.is_scheduled() {
            return Ok(None);
        }
        let round = Round {
            next: VecDeque::new(),
            turns: HashMap::new(),
            turn: 0,
            reached: None,
            next_sample: Instant::now(),
            lanes: 1,
            walked: 0,
        };
        Ok(Some(LaneTurns {
            target: Q::target()?,
            lanes: options.lanes,
            at_most: options.at_most,
            // Another release of the application may have longer leases.
            longest_lease: lease.map(|lease| lease.saturating_mul(4).max(SHORTEST_SEARCH)),
            round: Mutex::new(round),
            held: Arc::default(),
        }))
    }

    /// Begins a claim, which will hold places.
    pub(crate) fn places(&self) -> HeldPlaces<'_> {
        HeldPlaces { turns: self, places: Mutex::default() }
    }

    /// Tells whether any number of rows is limited.
    pub(crate) fn limit(&self) -> bool {
        self.at_most.is_some() || self.lanes.is_some_and(|lanes| lanes.at_most.is_some())
    }

    /// Returns the value and the limit of the row's lane if as many other rows of it are attempted as it has places; the
    /// same of the queue, without a value. To find out, it takes a place for a moment where places are locks. Run it in a
    /// transaction that is rolled back.
    pub(crate) fn full_lane<Q, C>(&self, connection: &mut C, key: &Q::Key) -> QueryResult<Option<(Option<String>, u32)>>
    where
        C: QueueConnection,
        Q: QueueOn<C>,
    {
        let lane = if self.lanes.is_some() { Q::lane_of(connection, key)? } else { None };
        for lane in std::iter::once(Lane::Queue).chain(lane) {
            let Some(limit) = self.limit_of(&lane) else { continue };
            let is_full = if self.longest_lease.is_some() {
                self.leased::<Q, C>(connection, &lane, Some(key), limit)? >= limit
            } else {
                let identity = identity(&lane);
                let place = connection.take_place(&self.target, &identity, limit)?;
                if let Some(place) = place {
                    connection.leave_place(&self.target, &identity, place)?;
                }
                place.is_none()
            };
            if is_full {
                return Ok(Some((value_of(&lane), limit)));
            }
        }
        Ok(None)
    }

    fn round(&self) -> MutexGuard<'_, Round> {
        unpoisoned(self.round.lock())
    }

    /// Returns the limit of a lane.
    fn limit_of(&self, lane: &Lane) -> Option<u32> {
        match lane {
            Lane::Queue => self.at_most,
            Lane::Value(_) => self.lanes.and_then(|lanes| lanes.at_most),
            Lane::NoValue => None,
        }
    }

    /// Returns the next lane to try. `None`: the search has seen all of them.
    fn next_lane<Q, C>(
        &self,
        connection: &mut C,
        scope: Scope<'_, Q::Key>,
        search: &mut Search,
    ) -> QueryResult<Option<Lane>>
    where
        C: QueueConnection,
        Q: QueueOn<C>,
    {
        loop {
            let samples = {
                let mut round = self.round();
                if let Some(lane) = round.take() {
                    return Ok(Some(lane));
                }
                if search.is_complete {
                    return Ok(None);
                }
                Instant::now() >= round.next_sample
            };
            if samples {
                let lanes = Q::due_lanes(connection, scope, SAMPLE)?;
                search.is_complete = lanes.len() < SAMPLE as usize;
                match search.is_complete {
                    true => self.round().fill(lanes),
                    false => self.round().next_sample = Instant::now() + SAMPLE_PAUSE,
                }
                continue;
            }
            if let Some(lane) = self.walk::<Q, C>(connection, scope, search)? {
                return Ok(Some(lane));
            }
        }
    }

    /// Returns how many of these rows a claim takes of one lane, so that the lanes share it.
    fn share(&self, rows: u32) -> u32 {
        (rows / self.round().lanes).max(1)
    }

    /// Counts a place for this process, if fewer than this number are taken.
    fn count(&self, identity: &Arc<str>, places: u32) -> Option<CountedPlace> {
        let mut held = unpoisoned(self.held.lock());
        let taken = held.entry(identity.clone()).or_insert_with(|| Taken { places: 0, last: Instant::now() });
        if taken.places >= places && taken.last.elapsed() < TRUST {
            return None;
        }
        *taken = Taken { places: taken.places + 1, last: Instant::now() };
        Some(CountedPlace(self.held.clone(), identity.clone()))
    }

    /// Counts the rows of a lane that are under leases, up to `limit`.
    fn leased<Q, C>(&self, connection: &mut C, lane: &Lane, except: Option<&Q::Key>, limit: u32) -> QueryResult<u32>
    where
        C: QueueConnection,
        Q: QueueOn<C>,
    {
        Q::leased_in(connection, lane, except, limit, self.longest_lease.unwrap_or_default())
    }

    /// Goes on to the next lane along the index. `None`: it has reached the end, or another worker has gone on.
    fn walk<Q, C>(&self, connection: &mut C, scope: Scope<'_, Q::Key>, search: &mut Search) -> QueryResult<Option<Lane>>
    where
        C: QueueConnection,
        Q: QueueOn<C>,
    {
        let after = self.round().reached.clone();
        let found = Q::next_lane(connection, scope, after.clone())?;
        let mut round = self.round();
        if round.reached != after {
            // Another worker has taken this turn.
            return Ok(None);
        }
        round.reached = found.clone();
        match found {
            Some(value) => {
                round.walked += 1;
                Ok(Some(Lane::Value(value)))
            }
            None => {
                round.lanes = round.walked.max(1);
                round.walked = 0;
                search.ends += 1;
                // From somewhere to the end, and then all lanes once.
                search.is_complete = search.ends > 1;
                Ok(self.lanes.filter(|lanes| lanes.of.nullable).map(|_| Lane::NoValue))
            }
        }
    }
}

impl Round {
    /// Takes the lane that is next.
    fn take(&mut self) -> Option<Lane> {
        let lane = self.next.pop_front()?;
        self.turn += 1;
        self.turns.insert(identity(&lane), self.turn);
        Some(lane)
    }

    /// Puts the lanes of all due rows into the order in which they had their last turns.
    fn fill(&mut self, lanes: Vec<Lane>) {
        let mut seen = HashSet::new();
        let mut next: Vec<_> = lanes.into_iter().filter(|lane| seen.insert(identity(lane))).collect();
        // A lane without due rows has been served.
        self.turns.retain(|lane, _| seen.contains(lane));
        next.sort_by_key(|lane| self.turns.get(&identity(lane)).copied().unwrap_or(0));
        self.lanes = u32::try_from(next.len()).unwrap_or(u32::MAX).max(1);
        self.next = next.into();
    }
}

/// Returns a text that only this lane has among those of its queue.
fn identity(lane: &Lane) -> Arc<str> {
    match lane {
        Lane::Queue => "queue".into(),
        Lane::NoValue => "no value".into(),
        Lane::Value(value) => format!("={}", value.identity).into(),
    }
}

/// How a claim takes rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaneClaim {
    /// How many rows it takes at most.
    pub(crate) limit: u32,
    /// Whether it can lock rows.
    pub(crate) locks: bool,
    /// Whether it may begin its transaction again, to free what it has locked in vain. A group cannot: its transaction
    /// refuses every commit but its own.
    pub(crate) begins_again: bool,
}

/// Returns the value of a lane as people read it.
fn value_of(lane: &Lane) -> Option<String> {
    let Lane::Value(value) = lane else { return None };
    Some(match &value.bound {
        BoundValue::Integer(integer) => integer.to_string(),
        BoundValue::Text(text) => text.clone(),
        BoundValue::Binary(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    })
}

impl HeldPlaces<'_> {
    /// Claims rows: the first of each lane whose turn it is and that has a place. Run it in a transaction.
    pub(crate) fn claim<Q, C>(
        &self,
        connection: &mut C,
        claim: LaneClaim,
        scope: Scope<'_, Q::Key>,
    ) -> QueryResult<Vec<Claimed<Q>>>
    where
        C: QueueConnection,
        Q: QueueOn<C>,
    {
        let Some(free) = self.enter(connection, &Lane::Queue, |connection, limit| {
            self.turns.leased::<Q, C>(connection, &Lane::Queue, None, limit)
        })?
        else {
            return Ok(Vec::new());
        };
        let claim = LaneClaim { limit: claim.limit.min(free), ..claim };
        if self.turns.lanes.is_none() {
            return match claim.locks {
                true => claim_some::<Q, C>(connection, claim.limit, scope),
                false => peek::<Q, C>(connection, claim.limit, scope),
            };
        }
        let (mut claimed, mut search) = (Vec::new(), Search::default());
        let mut only = scope.only.map(|keys| keys.iter());
        while claimed.len() < claim.limit as usize {
            let (lane, key) = match &mut only {
                None => match self.turns.next_lane::<Q, C>(connection, scope, &mut search)? {
                    Some(lane) => (lane, None),
                    None => break,
                },
                Some(keys) => match keys.next() {
                    Some(key) => match Q::lane_of(connection, key.value())? {
                        Some(lane) => (lane, Some(key)),
                        None => continue,
                    },
                    None => break,
                },
            };
            match self.claim_from::<Q, C>(connection, claim, scope, &lane, key, &claimed)? {
                Some(rows) => claimed.extend(rows),
                None => break,
            }
        }
        Ok(claimed)
    }

    /// Claims rows of one lane, if it has a place. `None`: the claim has lost its place in the queue.
    fn claim_from<Q, C>(
        &self,
        connection: &mut C,
        claim: LaneClaim,
        scope: Scope<'_, Q::Key>,
        lane: &Lane,
        key: Option<&RowKey<Q::Key>>,
        claimed: &[Claimed<Q>],
    ) -> QueryResult<Option<Vec<Claimed<Q>>>>
    where
        C: QueueConnection,
        Q: QueueOn<C>,
    {
        let leased = |connection: &mut C, limit| self.turns.leased::<Q, C>(connection, lane, None, limit);
        let Some(free) = self.enter(connection, lane, leased)? else { return Ok(Some(Vec::new())) };
        let room = claim.limit - u32::try_from(claimed.len()).unwrap_or(claim.limit);
        let most = free.min(self.turns.share(room));
        // A lane may have several turns in one claim, and on some databases a claim does not pass over its own rows.
        let except: Vec<_> = scope.except.iter().chain(claimed.iter().map(|row| &row.key)).cloned().collect();
        let within = Scope { except: &except, ..scope };
        let rows = claim_in_lane::<Q, C>(connection, lane, within, (most, claim.locks), key)?;
        if rows.is_empty() && claimed.is_empty() && claim.begins_again {
            // Another claim has taken the row. Nobody may have to wait for this place as long as another row's handler
            // runs.
            return Ok(self.leave_lane(connection, lane)?.then(Vec::new));
        }
        let mut rows = claimed_within::<Q, C>(connection, scope, rows)?;
        rows.iter_mut().for_each(|row| row.details.lane = Some(lane.clone()));
        Ok(Some(rows))
    }

    /// Takes a place in a lane, and returns how many rows may be claimed there. `None`: there is no place.
    fn enter<C: QueueConnection>(
        &self,
        connection: &mut C,
        lane: &Lane,
        leased: impl FnOnce(&mut C, u32) -> QueryResult<u32>,
    ) -> QueryResult<Option<u32>> {
        let Some(limit) = self.turns.limit_of(lane) else { return Ok(Some(u32::MAX)) };
        let is_leased = self.turns.longest_lease.is_some();
        let one_row = self.turns.lanes.is_some_and(|lanes| lanes.serial) && !matches!(lane, Lane::Queue);
        let (identity, most) = (identity(lane), if one_row { 1 } else { u32::MAX });
        if unpoisoned(self.places.lock()).iter().any(|place| place.lane == identity) {
            // The place is the worker's, who handles one row after the other.
            return Ok((!is_leased && !one_row).then_some(most));
        }
        let places = if is_leased { 1 } else { limit };
        let Some(counted) = self.turns.count(&identity, places) else { return Ok(None) };
        let Some(place) = connection.take_place(&self.turns.target, &identity, places)? else { return Ok(None) };
        unpoisoned(self.places.lock()).push(HeldPlace { lane: identity, place, of: places, _counted: counted });
        let free = if is_leased { limit.saturating_sub(leased(connection, limit)?) } else { most };
        Ok(Some(free).filter(|free| *free > 0))
    }

    /// Frees what a claim has locked in a lane without finding a row there. `false`: others have taken its other places
    /// meanwhile.
    fn leave_lane<C: QueueConnection>(&self, connection: &mut C, lane: &Lane) -> QueryResult<bool> {
        let (identity, mut places) = (identity(lane), unpoisoned(self.places.lock()));
        let Some(at) = places.iter().position(|place| place.lane == identity) else { return Ok(true) };
        let place = places.remove(at);
        connection.commit_and_begin()?;
        if !C::Backend::PLACES_END_WITH_TRANSACTION {
            return connection.leave_place(&self.turns.target, &place.lane, place.place).map(|()| true);
        }
        drop(places);
        self.retake(connection)
    }

    /// Takes the places again after the end of the transaction in which they were taken. `false`: others have them now.
    pub(crate) fn retake<C: QueueConnection>(&self, connection: &mut C) -> QueryResult<bool> {
        if C::Backend::PLACES_END_WITH_TRANSACTION {
            for place in unpoisoned(self.places.lock()).iter_mut() {
                match connection.take_place(&self.turns.target, &place.lane, place.of)? {
                    Some(taken) => place.place = taken,
                    None => return Ok(false),
                }
            }
        }
        Ok(true)
    }

    /// Gives all places back, after the end of the transaction.
    pub(crate) fn leave<C: QueueConnection>(&self, connection: &mut C) -> QueryResult<()> {
        let places = std::mem::take(&mut *unpoisoned(self.places.lock()));
        if !C::Backend::PLACES_END_WITH_TRANSACTION {
            for place in &places {
                connection.leave_place(&self.turns.target, &place.lane, place.place)?;
            }
        }
        Ok(())
    }

    /// Tells whether the worker of a leased row still holds one of the places of its lane. Others cannot claim there
    /// before the end of the transaction.
    pub(crate) fn standing<Q, C>(&self, connection: &mut C, lane: Option<&Lane>, key: &Q::Key) -> QueryResult<Standing>
    where
        C: QueueConnection,
        Q: QueueOn<C>,
    {
        for lane in std::iter::once(&Lane::Queue).chain(lane) {
            let Some(limit) = self.turns.limit_of(lane) else { continue };
            let leased = |connection: &mut C, limit| self.turns.leased::<Q, C>(connection, lane, Some(key), limit);
            let identity = identity(lane);
            let has_entered = unpoisoned(self.places.lock()).iter().any(|place| place.lane == identity);
            if !has_entered {
                let Some(counted) = self.turns.count(&identity, 1) else { return Ok(Standing::Unknown) };
                if connection.take_place(&self.turns.target, &identity, 1)?.is_none() {
                    return Ok(Standing::Unknown);
                }
                unpoisoned(self.places.lock()).push(HeldPlace { lane: identity, place: 0, of: 1, _counted: counted });
            }
            if leased(connection, limit)? >= limit {
                return Ok(Standing::Lost);
            }
        }
        Ok(Standing::Holds)
    }
}

/// Claims rows of a lane, in their order, or the one with this key.
fn claim_in_lane<Q, C>(
    connection: &mut C,
    lane: &Lane,
    scope: Scope<'_, Q::Key>,
    (limit, locks): (u32, bool),
    key: Option<&RowKey<Q::Key>>,
) -> QueryResult<Vec<ClaimedRow<Q>>>
where
    C: QueueConnection,
    Q: QueueOn<C>,
{
    if let Some(key) = key {
        return Q::claim_in_lane(connection, lane, scope, LaneRows { limit: 1, locks, only: &[key.value()] });
    }
    if !locks || !C::Backend::LOCKS_WHAT_IT_PASSES {
        return Q::claim_in_lane(connection, lane, scope, LaneRows { limit, locks, only: &[] });
    }
    let mut read = limit.saturating_add(CANDIDATES);
    loop {
        let candidates = Q::claim_in_lane(connection, lane, scope, LaneRows { limit: read, locks: false, only: &[] })?;
        let keys: Vec<_> = candidates.iter().map(|row| &row.0).collect();
        for keys in keys.chunks(limit.max(1) as usize) {
            let claimed = Q::claim_in_lane(connection, lane, scope, LaneRows { limit, locks, only: keys })?;
            if !claimed.is_empty() {
                return Ok(claimed);
            }
        }
        if keys.len() < read as usize {
            return Ok(Vec::new());
        }
        // Others hold all of them.
        read = read.saturating_mul(MORE);
    }
}
