//! Which places are free: for entities whose rows are limited in number, all together or in each lane.
//!
//! In transaction and group mode a place is a lock of the database that ends with the worker's session. In lease mode a
//! row under a lease that has not ended takes a place, and the lock only keeps two claims from counting at the same
//! time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use diesel::result::QueryResult;

use super::lane_turns::LaneTurns;
use super::passed_rows::PassedRows;
use crate::backend::{Dialect, Place, QueueConnection, Target};
use crate::entity::Key;
use crate::row::{Lane, LaneValue, Lanes, RowKey};
use crate::statement::ErasedQueue;
use crate::sync::{HeldByThread, HeldByThreads, Mutex};

/// The shortest time in which the ends of leases are searched for.
const SHORTEST_LEASE_SEARCH: Duration = Duration::from_secs(3_600);

/// The lanes of one entity and their places, as its workers in this process see them.
pub(crate) struct Places<K: Key, C: QueueConnection> {
    pub(super) queue: &'static ErasedQueue<K, C>,
    target: Target,
    pub(super) lanes: Option<Lanes>,
    pub(crate) turns: LaneTurns<K, C>,
    pub(super) passed_rows: Arc<PassedRows<K>>,
    /// In lease mode, how far the end of a lease may be away.
    longest_lease: Option<Duration>,
    /// The limit at run time; 0 is none.
    limit: AtomicU32,
    /// The lanes in which threads of this process hold places, in the modes in which a place is a lock. The sessions of threads
    /// that were given up have been ended, or will be, and the database knows best which places are free.
    held: HeldByThreads<Arc<str>>,
}

/// The places that a worker holds, and gives back after its transaction.
pub(crate) struct HeldPlaces<'a, K: Key, C: QueueConnection> {
    pub(super) places: &'a Places<K, C>,
    held: Mutex<Vec<HeldPlace>>,
}

/// A place in a lane.
struct HeldPlace {
    lane: Arc<str>,
    place: u32,
    /// The limit of the lane.
    of: u32,
    _held: HeldByThread<Arc<str>>,
}

/// What a claim may do in a lane.
pub(super) struct Entry {
    /// How many rows it may take.
    pub(super) rows: u32,
    /// The place that it takes itself.
    pub(super) place: Option<Place>,
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

impl<K: Key, C: QueueConnection> Places<K, C> {
    /// The places of a queue, if its rows are scheduled or limited. `lease`: the length of its leases in lease mode.
    pub(crate) fn of(queue: &'static ErasedQueue<K, C>, lease: Option<Duration>) -> QueryResult<Option<Self>> {
        let options = queue.sql.options;
        if !options.is_scheduled() {
            return Ok(None);
        }
        Ok(Some(Places {
            queue,
            target: queue.target()?,
            lanes: options.lanes,
            turns: LaneTurns::new(queue),
            passed_rows: Arc::new(PassedRows::of(options)),
            // Another release of the application may have longer leases.
            longest_lease: lease.map(|lease| lease.saturating_mul(4).max(SHORTEST_LEASE_SEARCH)),
            limit: AtomicU32::new(0),
            held: HeldByThreads::default(),
        }))
    }

    /// Sets the limit at run time: of the whole queue, or if its attribute names a column, of each value.
    pub(crate) fn set_limit(&self, at_most: Option<u32>) {
        self.limit.store(at_most.unwrap_or(0), Ordering::Relaxed);
    }

    /// Begins a claim, which will hold places.
    pub(crate) fn hold(&self) -> HeldPlaces<'_, K, C> {
        HeldPlaces { places: self, held: Mutex::default() }
    }

    /// Tells whether any number of rows is limited.
    pub(crate) fn limit(&self) -> bool {
        self.queue.sql.options.at_most.is_some() || self.lanes.is_some_and(|lanes| lanes.at_most.is_some())
    }

    /// Returns the value and the limit of the row's lane if as many other rows of it are attempted as it has places; the
    /// same of the queue, without a value. To find out, it takes a place for a moment where places are locks. Run it in a
    /// transaction that is rolled back.
    pub(crate) fn full_lane(&self, connection: &mut C, key: &RowKey<K>) -> QueryResult<Option<(Option<String>, u32)>> {
        let lane = if self.lanes.is_some() { self.queue.lane_of(connection, key)? } else { None };
        for lane in std::iter::once(Lane::Queue).chain(lane) {
            let Some(limit) = self.limit_of(&lane) else { continue };
            let is_full = if self.longest_lease.is_some() {
                self.leased(connection, &lane, Some(key), limit)? >= limit
            } else {
                let identity = lane.identity();
                let place = connection.take_place(&self.target, &identity, limit)?;
                if let Some(place) = place {
                    connection.leave_place(&self.target, &identity, place)?;
                }
                place.is_none()
            };
            if is_full {
                return Ok(Some((lane.value().map(LaneValue::text), limit)));
            }
        }
        Ok(None)
    }

    /// Returns the limit of a lane for a claim: that of the attribute, or a lower one at run time.
    fn limit_of(&self, lane: &Lane) -> Option<u32> {
        let most = self.own_limit_of(lane)?;
        let is_limited = matches!(lane, Lane::Queue) || self.queue.sql.options.at_most.is_none();
        match self.limit.load(Ordering::Relaxed) {
            limit if limit > 0 && is_limited => Some(most.min(limit)),
            _ => Some(most),
        }
    }

    /// Returns the limit of a lane that its attribute sets.
    fn own_limit_of(&self, lane: &Lane) -> Option<u32> {
        match lane {
            Lane::Queue => self.queue.sql.options.at_most,
            Lane::Value(_) => self.lanes.and_then(|lanes| lanes.at_most),
            Lane::NoValue => None,
        }
    }

    /// Counts the rows of a lane that are under leases, up to `limit`.
    pub(super) fn leased(
        &self,
        connection: &mut C,
        lane: &Lane,
        except: Option<&RowKey<K>>,
        limit: u32,
    ) -> QueryResult<u32> {
        self.queue.leased_in(connection, lane, except, limit, Some(self.longest_lease.unwrap_or_default()))
    }
}

impl<K: Key, C: QueueConnection> HeldPlaces<'_, K, C> {
    /// Takes a place in a lane, or lets the claim do so if it may. `None`: there is no place.
    pub(super) fn enter(&self, connection: &mut C, lane: &Lane, may_in_claim: bool) -> QueryResult<Option<Entry>> {
        let Some(limit) = self.places.limit_of(lane) else { return Ok(Some(Entry { rows: u32::MAX, place: None })) };
        let is_leased = self.places.longest_lease.is_some();
        let one_row = self.places.lanes.is_some_and(|lanes| lanes.serial) && !matches!(lane, Lane::Queue);
        let (identity, most) = (lane.identity(), if one_row { 1 } else { u32::MAX });
        if self.has_entered(&identity) {
            // The place is the worker's, who handles one row after the other.
            return Ok((!is_leased && !one_row).then_some(Entry { rows: most, place: None }));
        }
        let places = if is_leased { 1 } else { limit };
        // Whether a row holds a strictly serial lane back can only be read after the place is taken.
        let is_strict = self.places.lanes.is_some_and(|lanes| lanes.strict);
        let can_in_claim = !is_leased && !is_strict && lane.value().is_some() && C::Backend::PLACE_IN_CLAIM.is_some();
        let in_claim = may_in_claim && can_in_claim;
        if !self.take(connection, &identity, places, in_claim)? {
            return Ok(None);
        }
        let in_claim = in_claim.then(|| Place::of(&self.places.target, &identity, places));
        let free =
            if is_leased { limit.saturating_sub(self.places.leased(connection, lane, None, limit)?) } else { most };
        Ok((free > 0).then_some(Entry { rows: free, place: in_claim }))
    }

    fn has_entered(&self, lane: &Arc<str>) -> bool {
        self.held.lock().iter().any(|place| place.lane == *lane)
    }

    /// Takes one of these many places in a lane, or leaves that to the claim. `false`: there is none.
    fn take(&self, connection: &mut C, lane: &Arc<str>, of: u32, in_claim: bool) -> QueryResult<bool> {
        let Some(_held) = self.places.held.hold(lane.clone(), of as usize) else { return Ok(false) };
        let place = if in_claim { Some(0) } else { connection.take_place(&self.places.target, lane, of)? };
        let Some(place) = place else { return Ok(false) };
        self.held.lock().push(HeldPlace { lane: lane.clone(), place, of, _held });
        Ok(true)
    }

    /// Frees what a claim of so many rows has locked in a lane without finding a row there. `false`: others have taken its other
    /// places meanwhile.
    pub(super) fn leave_lane(&self, connection: &mut C, lane: &Lane, rows: u32) -> QueryResult<bool> {
        let (identity, mut places) = (lane.identity(), self.held.lock());
        let Some(at) = places.iter().position(|place| place.lane == identity) else { return Ok(true) };
        let place = places.remove(at);
        if C::Backend::ONE_WRITER {
            // Nobody waits for a place without waiting for the transaction too.
            return Ok(true);
        }
        connection.commit_and_begin()?;
        if !C::Backend::PLACES_END_WITH_TRANSACTION {
            return connection.leave_place(&self.places.target, &place.lane, place.place).map(|()| true);
        }
        drop(places);
        if !self.retake(connection)? {
            return Ok(false);
        }
        // Under leases the place is only the lock under which the claim has counted.
        match self.places.limit_of(&Lane::Queue).filter(|_| self.places.longest_lease.is_some()) {
            Some(limit) => Ok(limit.saturating_sub(self.places.leased(connection, &Lane::Queue, None, limit)?) >= rows),
            None => Ok(true),
        }
    }

    /// Makes a lane the one that the next claim tries first.
    pub(crate) fn put_next(&self, lane: &Lane) {
        self.places.turns.put_next(lane);
    }

    /// Forgets the place of a lane in which a claim has found nothing: perhaps it has found no place. If it has, that is
    /// free when the transaction ends.
    pub(super) fn forget_lane(&self, lane: &Lane) {
        let identity = lane.identity();
        self.held.lock().retain(|place| place.lane != identity);
    }

    /// Keeps the only places of lanes until they are taken again. Rows of a lane with several have no order.
    pub(crate) fn keep(&self, connection: &mut C) -> QueryResult<()> {
        let held = self.held.lock();
        let mut only = held.iter().filter(|place| place.of == 1);
        only.try_for_each(|place| connection.keep_lock(&self.places.target, Some(&place.lane)))
    }

    /// Takes the places again after the end of the transaction in which they were taken. `false`: others have them now.
    pub(crate) fn retake(&self, connection: &mut C) -> QueryResult<bool> {
        if C::Backend::PLACES_END_WITH_TRANSACTION {
            for place in self.held.lock().iter_mut() {
                match connection.take_place(&self.places.target, &place.lane, place.of)? {
                    Some(taken) => place.place = taken,
                    None => return Ok(false),
                }
            }
        }
        Ok(true)
    }

    /// Gives all places back, after the end of the transaction.
    pub(crate) fn leave(&self, connection: &mut C) -> QueryResult<()> {
        let places = std::mem::take(&mut *self.held.lock());
        if !C::Backend::PLACES_END_WITH_TRANSACTION {
            for place in &places {
                connection.leave_place(&self.places.target, &place.lane, place.place)?;
            }
        }
        Ok(())
    }

    /// Tells whether the worker of a leased row still holds one of the places of its lane. Others cannot claim there
    /// before the end of the transaction. A limit at run time is one of claims: what runs goes on.
    pub(crate) fn standing(&self, connection: &mut C, lane: Option<&Lane>, key: &RowKey<K>) -> QueryResult<Standing> {
        for lane in std::iter::once(&Lane::Queue).chain(lane) {
            let Some(limit) = self.places.own_limit_of(lane) else { continue };
            let identity = lane.identity();
            if !self.has_entered(&identity) && !self.take(connection, &identity, 1, false)? {
                return Ok(Standing::Unknown);
            }
            if self.places.leased(connection, lane, Some(key), limit)? >= limit {
                return Ok(Standing::Lost);
            }
        }
        Ok(Standing::Holds)
    }
}
