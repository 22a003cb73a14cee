//! Runs the statements about lanes.

use std::time::Duration;

use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Nullable, Text};

use super::ahead::{AheadDue, AheadKey};
use super::due::Claimable;
use super::erased::ErasedQueue;
use super::lane::{DueLanes, LanesOf, LeasedIn};
use super::next_lanes::{NextLanes, lane_walk};
use super::probe_due::time_until;
use super::scope::Scope;
use crate::backend::{LaneSql, QueueConnection, load, load_first};
use crate::entity::Key;
use crate::row::{Lane, LaneValue, RowKey};

/// How many lanes a walk along their index reads at once.
const LANES_AHEAD: u32 = 32;

impl<K: Key, C: QueueConnection> ErasedQueue<K, C> {
    fn lane_due_rows(&self, scope: Scope<'_, K>) -> Claimable<C::Backend> {
        let floor = scope.floor().filter(|_| self.sql.options.order.is_none());
        Claimable::new(self.sql, scope.stages).not_below(floor).except(self.rows(RowKey::values(scope.except)))
    }

    /// Reads a lane as the statements select it.
    fn read_lane(&self, text: Option<String>) -> Lane {
        match (text, self.sql.options.lanes) {
            (Some(text), Some(lanes)) => {
                Lane::Value(LaneValue::read(lanes.of.kind, text, C::Backend::TEXT_HAS_IDENTITY))
            }
            _ => Lane::NoValue,
        }
    }

    /// Reads the lanes of up to `limit` rows that have been due longest, one for each row, without a lock.
    pub fn due_lanes(&self, connection: &mut C, scope: Scope<'_, K>, limit: u32) -> QueryResult<Vec<Lane>> {
        let due = DueLanes(self.lane_due_rows(scope), limit.into());
        let texts: Vec<Option<String>> = load::<Nullable<Text>, _, _>(connection, &due)?;
        Ok(texts.into_iter().map(|text| self.read_lane(text)).collect())
    }

    /// Returns how many lanes [`next_lanes`](Self::next_lanes) can read at once.
    pub fn lanes_ahead(&self, scope: Scope<'_, K>) -> u32 {
        if lane_walk(&self.lane_due_rows(scope)).is_some() { LANES_AHEAD } else { 1 }
    }

    /// Reads the first lanes after this value that have due rows, up to `limit`, without a lock. Fewer lanes are the last
    /// ones.
    pub fn next_lanes(
        &self,
        connection: &mut C,
        scope: Scope<'_, K>,
        after: Option<LaneValue>,
        limit: u32,
    ) -> QueryResult<Vec<LaneValue>> {
        let next = NextLanes { due: self.lane_due_rows(scope), after, limit };
        let texts: Vec<Option<String>> = load::<Nullable<Text>, _, _>(connection, &next)?;
        Ok(texts.into_iter().filter_map(|text| self.read_lane(text).value().cloned()).collect())
    }

    /// Reads the lane of the row with this key. `None`: there is no such row.
    pub fn lane_of(&self, connection: &mut C, key: &K) -> QueryResult<Option<Lane>> {
        let text: Option<Option<String>> = load_first::<Nullable<Text>, _, _>(connection, &LanesOf(self.row(key)))?;
        Ok(text.map(|text| self.read_lane(text)))
    }

    /// Reads in how long the row that holds a strictly serial lane back is due; zero if it is due already. `None`: there
    /// is none.
    pub fn ahead_due(&self, connection: &mut C, lane: &Lane) -> QueryResult<Option<Duration>> {
        let due = load_first::<BigInt, i64, _>(connection, &AheadDue(self.sql, lane.clone()))?;
        Ok(due.map(time_until))
    }

    /// Reads the key of that row.
    pub fn ahead(&self, connection: &mut C, lane: &Lane) -> QueryResult<Option<RowKey<K>>> {
        Ok(self.read_keys(connection, &AheadKey(self.sql, lane.clone()))?.pop())
    }

    /// Counts the rows of a lane, up to `limit`, that are under leases which have not ended, without the row with this
    /// key.
    pub fn leased_in(
        &self,
        connection: &mut C,
        lane: &Lane,
        except: Option<&K>,
        limit: u32,
        longest: Duration,
    ) -> QueryResult<u32> {
        let (lane, except) = (lane.clone(), except.map(|key| self.row(key).is_key));
        let leased = LeasedIn { queue: self.sql, lane, except, limit: limit.into(), longest };
        let leased = load::<Text, String, _>(connection, &leased)?;
        Ok(u32::try_from(leased.len()).unwrap_or(u32::MAX))
    }
}
