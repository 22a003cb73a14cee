//! Runs the statements about lanes.

use std::time::Duration;

use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Nullable, Text};

use super::ahead::{AheadDue, AheadKey};
use super::key_text::row_key;
use super::lane::{DueLanes, LaneDueRows, LanesOf, LeasedIn};
use super::next_lanes::NextLanes;
use super::probe_on::ProbeOn;
use super::rows::ReadFrom;
use super::scope::Scope;
use crate::backend::{QueueBackend, QueueConnection, load, load_first};
use crate::entity::QueueTable;
use crate::row::{Lane, LaneValue, Lanes, RowKey};

/// How many lanes a walk along their index reads at once.
const LANES_AHEAD: u32 = 32;

/// Finds the lanes of an entity that have due rows, and counts the leased rows of a lane. See
/// [`QueueOn`](super::queue_on::QueueOn).
pub trait LaneOn<C: QueueConnection>: ProbeOn<C> {
    /// Reads the lanes of up to `limit` rows that have been due longest, one for each row, without a lock.
    fn due_lanes(connection: &mut C, scope: Scope<'_, Self::Key>, limit: u32) -> QueryResult<Vec<Lane>>;

    /// Returns how many lanes [`next_lanes`](Self::next_lanes) can read at once.
    fn lanes_ahead(scope: Scope<'_, Self::Key>) -> u32;

    /// Reads the first lanes after this value that have due rows, up to `limit`, without a lock. Fewer lanes are the last
    /// ones.
    fn next_lanes(
        connection: &mut C,
        scope: Scope<'_, Self::Key>,
        after: Option<LaneValue>,
        limit: u32,
    ) -> QueryResult<Vec<LaneValue>>;

    /// Reads the lane of the row with this key. `None`: there is no such row.
    fn lane_of(connection: &mut C, key: &Self::Key) -> QueryResult<Option<Lane>>;

    /// Reads in how long the row that holds a strictly serial lane back is due; zero if it is due already. `None`: there
    /// is none.
    fn ahead_due(connection: &mut C, lane: &Lane) -> QueryResult<Option<Duration>>;

    /// Reads the key of that row.
    fn ahead(connection: &mut C, lane: &Lane) -> QueryResult<Option<RowKey<Self::Key>>>;

    /// Counts the rows of a lane, up to `limit`, that are under leases which have not ended, without the row with this
    /// key.
    fn leased_in(
        connection: &mut C,
        lane: &Lane,
        except: Option<&Self::Key>,
        limit: u32,
        longest: Duration,
    ) -> QueryResult<u32>;
}

#[diagnostic::do_not_recommend]
impl<Q: ReadFrom<C::Backend>, C: QueueConnection> LaneOn<C> for Q {
    fn due_lanes(connection: &mut C, scope: Scope<'_, Q::Key>, limit: u32) -> QueryResult<Vec<Lane>> {
        let due = DueLanes::new(LaneDueRows::of::<Q>(scope), limit);
        let texts: Vec<Option<String>> = load::<Nullable<Text>, _, _>(connection, &due)?;
        Ok(lanes_of::<C::Backend>(texts, Q::Queue::OPTIONS.lanes))
    }

    fn lanes_ahead(scope: Scope<'_, Q::Key>) -> u32 {
        if NextLanes::<C::Backend>::reads_many(&LaneDueRows::of::<Q>(scope)) { LANES_AHEAD } else { 1 }
    }

    fn next_lanes(
        connection: &mut C,
        scope: Scope<'_, Q::Key>,
        after: Option<LaneValue>,
        limit: u32,
    ) -> QueryResult<Vec<LaneValue>> {
        let next = NextLanes::new(LaneDueRows::of::<Q>(scope), after, limit);
        let texts: Vec<Option<String>> = load::<Nullable<Text>, _, _>(connection, &next)?;
        Ok(values_of(lanes_of::<C::Backend>(texts, Q::Queue::OPTIONS.lanes)))
    }

    fn lane_of(connection: &mut C, key: &Q::Key) -> QueryResult<Option<Lane>> {
        let text: Option<Option<String>> = load_first::<Nullable<Text>, _, _>(connection, &LanesOf::new(Q::row(key)))?;
        Ok(text.map(|text| lane_of::<C::Backend>(text, Q::Queue::OPTIONS.lanes)))
    }

    fn ahead_due(connection: &mut C, lane: &Lane) -> QueryResult<Option<Duration>> {
        let due = load_first::<BigInt, i64, _>(connection, &AheadDue::new(Q::SQL, lane.clone()))?;
        Ok(due.map(|due| Duration::from_micros(due.max(0).unsigned_abs())))
    }

    fn ahead(connection: &mut C, lane: &Lane) -> QueryResult<Option<RowKey<Q::Key>>> {
        let ahead = Q::load_keys(connection, &AheadKey::new(Q::SQL, lane.clone()))?.pop();
        Ok(ahead.map(|(key, text)| row_key(Q::SQL, key, &text)))
    }

    fn leased_in(
        connection: &mut C,
        lane: &Lane,
        except: Option<&Q::Key>,
        limit: u32,
        longest: Duration,
    ) -> QueryResult<u32> {
        let except = except.map(|key| Q::row(key).is_key);
        let leased = LeasedIn::new(Q::SQL, lane.clone(), except, limit, longest);
        let leased = load::<Text, String, _>(connection, &leased)?;
        Ok(u32::try_from(leased.len()).unwrap_or(u32::MAX))
    }
}

/// Reads a lane as the statements select it.
fn lane_of<DB: QueueBackend>(text: Option<String>, lanes: Option<Lanes>) -> Lane {
    match (text, lanes) {
        (Some(text), Some(lanes)) => Lane::Value(LaneValue::read(lanes.of.kind, text, DB::TEXT_HAS_IDENTITY)),
        _ => Lane::NoValue,
    }
}

fn lanes_of<DB: QueueBackend>(texts: Vec<Option<String>>, lanes: Option<Lanes>) -> Vec<Lane> {
    texts.into_iter().map(|text| lane_of::<DB>(text, lanes)).collect()
}

fn values_of(lanes: Vec<Lane>) -> Vec<LaneValue> {
    lanes.iter().filter_map(|lane| lane.value().cloned()).collect()
}
