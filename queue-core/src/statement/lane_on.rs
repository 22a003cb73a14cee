//! Runs the statements about lanes.

use std::time::Duration;

use diesel::result::QueryResult;
use diesel::sql_types::{Nullable, Text};

use super::claim::Claim;
use super::lane::{DueLanes, LanesOf, LeasedIn, NextLane};
use super::probe_on::ProbeOn;
use super::rows::{ClaimedRow, ReadFrom};
use super::scope::Scope;
use crate::backend::{LaneSql, QueueConnection, load, load_first};
use crate::entity::QueueTable;
use crate::row::{Lane, LaneValue, RowKey};

/// Which rows of a lane are claimed.
#[derive(Debug)]
pub struct LaneRows<'a, K> {
    /// How many.
    pub limit: u32,
    /// Whether they are locked.
    pub locks: bool,
    /// Only these, if there are any.
    pub only: &'a [&'a K],
}

/// Finds the lanes of an entity that have due rows, and claims the rows of a lane. See
/// [`QueueOn`](super::queue_on::QueueOn).
pub trait LaneOn<C: QueueConnection>: ProbeOn<C> {
    /// Reads the lanes of up to `limit` rows that have been due longest, one for each row, without a lock.
    fn due_lanes(connection: &mut C, scope: Scope<'_, Self::Key>, limit: u32) -> QueryResult<Vec<Lane>>;

    /// Reads the first lane after this value that has a due row, without a lock.
    fn next_lane(
        connection: &mut C,
        scope: Scope<'_, Self::Key>,
        after: Option<LaneValue>,
    ) -> QueryResult<Option<LaneValue>>;

    /// Reads the lane of the row with this key. `None`: there is no such row.
    fn lane_of(connection: &mut C, key: &Self::Key) -> QueryResult<Option<Lane>>;

    /// Claims rows of a lane, in their order.
    fn claim_in_lane(
        connection: &mut C,
        lane: &Lane,
        scope: Scope<'_, Self::Key>,
        rows: LaneRows<'_, Self::Key>,
    ) -> QueryResult<Vec<ClaimedRow<Self>>>;

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
        let due = DueLanes::<Q, C::Backend>::new(scope, limit);
        let texts: Vec<Option<String>> = load::<Nullable<Text>, _, _>(connection, &due)?;
        Ok(texts.into_iter().map(lane::<Q, C>).collect())
    }

    fn next_lane(
        connection: &mut C,
        scope: Scope<'_, Q::Key>,
        after: Option<LaneValue>,
    ) -> QueryResult<Option<LaneValue>> {
        let next = NextLane::<Q, C::Backend>::new(scope, after);
        let text: Option<Option<String>> = load_first::<Nullable<Text>, _, _>(connection, &next)?;
        Ok(match text.flatten().map(|text| lane::<Q, C>(Some(text))) {
            Some(Lane::Value(value)) => Some(value),
            _ => None,
        })
    }

    fn lane_of(connection: &mut C, key: &Q::Key) -> QueryResult<Option<Lane>> {
        let text: Option<Option<String>> = load_first::<Nullable<Text>, _, _>(connection, &LanesOf::<Q>::new(key))?;
        Ok(text.map(lane::<Q, C>))
    }

    fn claim_in_lane(
        connection: &mut C,
        lane: &Lane,
        scope: Scope<'_, Q::Key>,
        LaneRows { limit, locks, only }: LaneRows<'_, Q::Key>,
    ) -> QueryResult<Vec<ClaimedRow<Q>>> {
        let claim = Claim::<Q, C::Backend>::new().in_stages(scope.stages);
        let claim = claim.some(limit, RowKey::values(scope.except)).not_below(scope.floor()).in_lane(lane.clone());
        let claim = if only.is_empty() { claim } else { claim.only(only.iter().copied()) };
        Q::load_claimed(connection, &if locks { claim } else { claim.without_lock() })
    }

    fn leased_in(
        connection: &mut C,
        lane: &Lane,
        except: Option<&Q::Key>,
        limit: u32,
        longest: Duration,
    ) -> QueryResult<u32> {
        let leased = load::<Text, String, _>(connection, &LeasedIn::<Q>::new(lane.clone(), except, limit, longest))?;
        Ok(u32::try_from(leased.len()).unwrap_or(u32::MAX))
    }
}

/// Reads a lane as the statements select it.
fn lane<Q: ReadFrom<C::Backend>, C: QueueConnection>(text: Option<String>) -> Lane {
    match (text, Q::Queue::OPTIONS.lanes) {
        (Some(text), Some(lanes)) => Lane::Value(LaneValue::read(lanes.of.kind, text, C::Backend::TEXT_HAS_IDENTITY)),
        _ => Lane::NoValue,
    }
}
