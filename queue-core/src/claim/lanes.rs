//! Claims the rows of an entity that are scheduled by a column of the domain, or limited in number.
//!
//! The rows of one value are a lane. The lanes take turns: a claim tries one lane after the other, and in each takes
//! the row that comes first there, if the lane has a place.

use diesel::result::QueryResult;

use super::by_key::{claim_some, peek};
use super::in_turn::claim_candidates;
use super::lane_turns::Search;
use super::places::HeldPlaces;
use crate::backend::{Place, QueueConnection};
use crate::entity::QueueTable;
use crate::row::{Lane, RowKey};
use crate::statement::{Claim, Claimed, ClaimedRow, FromLane, QueueOn, Scope, claimed_within, locks_what_it_passes};

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

/// Which rows of a lane a claim takes.
struct LaneRows<'a, K> {
    lane: &'a Lane,
    /// A place that it takes, too.
    place: Option<Place>,
    limit: u32,
    locks: bool,
    /// Only the row with this key.
    key: Option<&'a RowKey<K>>,
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
        let Some(entry) = self.enter(connection, &Lane::Queue, |connection, limit| {
            self.places.leased::<Q, C>(connection, &Lane::Queue, None, limit)
        })?
        else {
            return Ok(Vec::new());
        };
        let claim = LaneClaim { limit: claim.limit.min(entry.rows), ..claim };
        if self.places.lanes.is_none() {
            return match claim.locks {
                true => claim_some::<Q, C>(connection, claim.limit, scope),
                false => peek::<Q, C>(connection, claim.limit, scope),
            };
        }
        let (mut claimed, mut search) = (Vec::new(), Search::default());
        let mut only = scope.only.map(|keys| keys.iter());
        while claimed.len() < claim.limit as usize {
            let (lane, key) = match &mut only {
                None => match self.places.turns.next_lane::<Q, C>(connection, scope, &mut search)? {
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
        let leased = |connection: &mut C, limit| self.places.leased::<Q, C>(connection, lane, None, limit);
        let Some(entry) = self.enter(connection, lane, leased)? else { return Ok(Some(Vec::new())) };
        let room = claim.limit - u32::try_from(claimed.len()).unwrap_or(claim.limit);
        let most = entry.rows.min(self.places.turns.share(room));
        // A lane may have several turns in one claim, and on some databases a claim does not pass over its own rows.
        let except: Vec<_> = scope.except.iter().chain(claimed.iter().map(|row| &row.key)).cloned().collect();
        let within = Scope { except: &except, ..scope };
        let is_sure = entry.place.is_none();
        let rows = LaneRows { lane, place: entry.place, limit: most, locks: claim.locks, key };
        let rows = claim_in_lane::<Q, C>(connection, within, &rows)?;
        if rows.is_empty() && claimed.is_empty() && claim.begins_again {
            // Another claim has taken the row. Nobody may have to wait for this place as long as another row's handler
            // runs.
            return Ok(self.leave_lane(connection, lane)?.then(Vec::new));
        }
        if rows.is_empty() && !is_sure {
            self.forget_lane(lane);
        }
        let mut rows = claimed_within::<Q, C>(connection, scope, rows)?;
        rows.iter_mut().for_each(|row| row.details.lane = Some(lane.clone()));
        Ok(Some(rows))
    }
}

/// Claims rows of a lane, in their order.
fn claim_in_lane<Q, C>(
    connection: &mut C,
    scope: Scope<'_, Q::Key>,
    rows: &LaneRows<'_, Q::Key>,
) -> QueryResult<Vec<ClaimedRow<Q>>>
where
    C: QueueConnection,
    Q: QueueOn<C>,
{
    // In a serial lane no row may overtake one that another session holds for a moment. There is no order among the rows
    // without a value.
    let is_serial = Q::Queue::OPTIONS.lanes.is_some_and(|lanes| lanes.serial) && rows.lane.value().is_some();
    let head_only = is_serial && rows.locks;
    let claim = |limit| {
        let claim = Claim::<Q, C::Backend>::new().in_stages(scope.stages);
        let claim = claim.some(limit, RowKey::values(scope.except)).not_below(scope.floor());
        let claim = claim.in_lane(FromLane { lane: rows.lane.clone(), place: rows.place.clone(), head_only });
        if rows.locks { claim } else { claim.without_lock() }
    };
    if let Some(key) = rows.key {
        return Q::load_claimed(connection, &claim(1).only([key.value()]));
    }
    match rows.locks && !head_only && locks_what_it_passes::<Q, C::Backend>(scope) {
        true => claim_candidates::<Q, C>(connection, rows.limit, claim),
        false => Q::load_claimed(connection, &claim(rows.limit)),
    }
}
