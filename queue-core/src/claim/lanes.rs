//! Claims the rows of an entity that are scheduled by a column of the domain, or limited in number.
//!
//! The rows of one value are a lane. The lanes take turns: a claim tries one lane after the other, and in each takes
//! the row that comes first there, if the lane has a place.

use std::collections::HashSet;
use std::slice;
use std::time::{Duration, Instant};

use diesel::result::QueryResult;

use super::candidates::claim_free;
use super::claim::{ClaimTerms, claim_some};
use super::lane_turns::Search;
use super::places::{Entry, HeldPlaces, Places};
use super::refused_state::ROWS_EXCEPTED;
use super::way::ClaimWay;
use crate::backend::QueueConnection;
use crate::entity::Key;
use crate::row::{Lane, RowKey};
use crate::statement::{Claimed, ClaimedRow, FromLane, Pick, Scope};
use crate::sync::fail_point;
use crate::sync::in_test::has_wanted;

/// The longest time for which a lane is left alone that a retry holds back. An operation may have ended what holds it.
const HELD_BACK_PAUSE: Duration = Duration::from_secs(3);

/// How many refused rows of a lane a claim passes over to the first of the others.
const MOST_PASSED: usize = 1_000;

/// Reads one row without a lock.
const PEEK: ClaimTerms = ClaimTerms { limit: 1, locks: false, begins_again: false };

impl<K: Key, C: QueueConnection> HeldPlaces<'_, K, C> {
    /// Claims rows: the first of each lane whose turn it is and that has a place. Run it in a transaction.
    pub(crate) fn claim(
        &self,
        connection: &mut C,
        claim: ClaimTerms,
        scope: Scope<'_, K>,
    ) -> QueryResult<Vec<Claimed<K>>> {
        let mut begun = Instant::now();
        let Some(entry) = self.enter(connection, &Lane::Queue, true)? else {
            self.places.passed_rows.put_off(scope.only.unwrap_or_default(), begun);
            return Ok(Vec::new());
        };
        let claim = ClaimTerms { limit: claim.limit.min(entry.rows), ..claim };
        if self.places.lanes.is_none() {
            return claim_some(self.places.queue, connection, claim.locks, claim.limit, scope);
        }
        let (mut claimed, mut search) = (Vec::new(), Search::default());
        let mut only = scope.only.map(|keys| keys.iter());
        while claimed.len() < claim.limit as usize {
            begun = Instant::now();
            let (lane, key) = match &mut only {
                None => match self.places.turns.next_lane(connection, scope, &mut search)? {
                    Some(lane) => (lane, None),
                    None => break,
                },
                Some(keys) => match keys.next() {
                    Some(key) => match self.places.queue.lane_of(connection, key)? {
                        Some(lane) => (lane, Some(key)),
                        None => continue,
                    },
                    None => break,
                },
            };
            let may_enter = key.is_none() || !self.places.turns.is_held_back(&lane);
            // Of one row it must be known whether the lane has a place.
            let enter = || self.enter(connection, &lane, key.is_none());
            let Some(entry) = may_enter.then(enter).transpose()?.flatten() else {
                self.places.passed_rows.put_off(key.map_or(&[], slice::from_ref), begun);
                continue;
            };
            let rows = self.claim_from(connection, claim, scope, (&lane, key, entry), &claimed)?;
            if self.places.turns.is_held_back(&lane) {
                self.places.passed_rows.put_off(key.map_or(&[], slice::from_ref), begun);
            }
            match rows {
                Some(rows) if rows.is_empty() => self.places.turns.note_nothing_in(&lane),
                Some(rows) => claimed.extend(rows),
                None => break,
            }
        }
        Ok(claimed)
    }

    /// Claims rows of one lane, in which it has a place. `None`: the claim has lost its place in the queue.
    fn claim_from(
        &self,
        connection: &mut C,
        claim: ClaimTerms,
        scope: Scope<'_, K>,
        (lane, key, entry): (&Lane, Option<&RowKey<K>>, Entry),
        claimed: &[Claimed<K>],
    ) -> QueryResult<Option<Vec<Claimed<K>>>> {
        let room = claim.limit - u32::try_from(claimed.len()).unwrap_or(claim.limit);
        let most = entry.rows.min(self.places.turns.share(room));
        // A lane may have several turns in one claim, and on some databases a claim does not pass over its own rows.
        let identity = lane.identity();
        let is_of_lane = |row: &&Claimed<K>| row.details.lane.as_ref().is_some_and(|of| of.identity() == identity);
        let claimed_here = claimed.iter().filter(is_of_lane).map(|row| &row.key);
        let except: Vec<_> = scope.except.iter().chain(claimed_here).cloned().collect();
        let within = Scope { except: &except, only: key.map(slice::from_ref), ..scope };
        let is_sure = entry.place.is_none();
        let terms = ClaimTerms { limit: most, ..claim };
        let rows = match self.pick(connection, scope, lane)? {
            Some(pick) => {
                let from = FromLane { lane: lane.clone(), place: entry.place, pick };
                match pick {
                    Pick::Any => self.places.claim_in_lane(connection, within, terms, &from)?,
                    _ => self.places.claim_in_order(connection, within, terms, &from)?,
                }
            }
            None => Vec::new(),
        };
        if rows.is_empty() && claimed.is_empty() && claim.begins_again {
            // Another claim has taken the row. Nobody may have to wait for this place as long as another row's handler
            // runs.
            return Ok(self.leave_lane(connection, lane, claim.limit)?.then(Vec::new));
        }
        if rows.is_empty() && !is_sure {
            self.forget_lane(lane);
        }
        let mut rows = self.places.queue.claimed_within(connection, scope, rows)?;
        for row in &mut rows {
            row.details.lane = Some(lane.clone());
        }
        Ok(Some(rows))
    }

    /// Decides which rows of a lane in which it has a place a claim takes. `None`: none, because one that has failed, or
    /// on which the database refuses to write, holds the others back.
    fn pick(&self, connection: &mut C, scope: Scope<'_, K>, lane: &Lane) -> QueryResult<Option<Pick>> {
        if !self.places.is_serial(lane) {
            return Ok(Some(Pick::Any));
        }
        if !self.places.lanes.is_some_and(|lanes| lanes.strict) {
            // No row may overtake one that another session holds for a moment.
            return Ok(Some(Pick::First));
        }
        let due = self.places.queue.ahead_due(connection, lane)?;
        fail_point("lane-asked");
        let turns = &self.places.turns;
        let Some(pick) = pick_of(due) else {
            turns.hold_back(lane, due.unwrap_or_default().min(HELD_BACK_PAUSE));
            return Ok(None);
        };
        if turns.refusals.may_hold(lane)
            && let Some(first) = self.places.first_of(connection, scope, lane, pick)?
        {
            if let Some(look) = turns.refusals.holds(lane, &first.key, first.fence.due) {
                turns.hold_back(lane, look);
                return Ok(None);
            }
            turns.refusals.end(lane);
        }
        Ok(Some(pick))
    }
}

impl<K: Key, C: QueueConnection> Places<K, C> {
    /// Tells whether any row in these stages is due, not in a paused lane, and not held back by another one, which waits for its
    /// retry or on which the database refuses to write.
    pub(crate) fn any_may_run(&self, connection: &mut C, stages: Option<&[&'static str]>) -> QueryResult<bool> {
        let scope = Scope { stages, ..Scope::ALL };
        if self.lanes.is_some_and(|lanes| lanes.of.nullable) && self.any_in(connection, scope, Lane::NoValue)? {
            return Ok(true);
        }
        let (mut after, ahead) = (None, self.queue.lanes_ahead(scope));
        loop {
            let lanes = self.queue.next_lanes(connection, scope, after, ahead)?;
            for lane in &lanes {
                let lane = Lane::Value(lane.clone());
                if self.turns.is_paused(&lane) {
                    continue;
                }
                if self.lanes.is_none_or(|lanes| !lanes.strict) {
                    if self.any_in(connection, scope, lane)? {
                        return Ok(true);
                    }
                    continue;
                }
                let Some(pick) = pick_of(self.queue.ahead_due(connection, &lane)?) else { continue };
                // There is none if the claim's condition or the stage keeps the first one from being claimed.
                let Some(first) = self.first_of(connection, scope, &lane, pick)? else { continue };
                if !self.turns.refusals.contain(&lane, &first.key, first.fence.due) {
                    return Ok(true);
                }
            }
            if lanes.len() < ahead as usize {
                return Ok(false);
            }
            after = lanes.last().cloned();
        }
    }

    /// Tells whether any row of a lane is due that is not refused.
    fn any_in(&self, connection: &mut C, scope: Scope<'_, K>, lane: Lane) -> QueryResult<bool> {
        let from = FromLane { lane, place: None, pick: Pick::Any };
        // A number of rows of which one is not refused, if there are so many. Each number is a statement of its own.
        let limit =
            u32::try_from((self.passed_rows.with_refused(|refused| refused.rows.len()) + 1).next_power_of_two())
                .unwrap_or(u32::MAX);
        let peek = ClaimTerms { limit, ..PEEK };
        let mut rows = self.claim_in_lane(connection, scope, peek, &from)?.into_iter();
        let is_refused =
            |key: &RowKey<K>| self.passed_rows.with_refused(|refused| refused.rows.contains_key(key.text()));
        Ok(rows.any(|row| !is_refused(&self.queue.claimed_key(row))))
    }

    /// Reads the row of a strict lane that is next, without locking it.
    fn first_of(
        &self,
        connection: &mut C,
        Scope { stages, sorts, .. }: Scope<'_, K>,
        lane: &Lane,
        pick: Pick,
    ) -> QueryResult<Option<Claimed<K>>> {
        let from = FromLane { lane: lane.clone(), place: None, pick };
        let scope = Scope { stages, sorts, ..Scope::ALL };
        let first = self.claim_in_lane(connection, scope, PEEK, &from)?.pop();
        Ok(first.map(|row| Claimed::read(self.queue.sql, row)))
    }

    /// Tells whether the rows of this lane keep their order. There is none among the rows without a value.
    pub(super) fn is_serial(&self, lane: &Lane) -> bool {
        lane.value().is_some() && self.lanes.is_some_and(|lanes| lanes.serial)
    }

    /// Claims the first rows of a lane that are not refused, wherever claims begin elsewhere. If the scope names one row,
    /// it is claimed only if it is refused, and tried again. In a lane with very many refused rows, claims begin where others
    /// do, and a row that became due late may be passed.
    fn claim_in_order(
        &self,
        connection: &mut C,
        scope: Scope<'_, K>,
        rows: ClaimTerms,
        from: &FromLane,
    ) -> QueryResult<Vec<ClaimedRow<K>>> {
        // A test that wants one row gets no other of its lane.
        let refused = self.passed_rows.refused_in(&from.lane, MOST_PASSED).filter(|_| !has_wanted());
        let Some(refused) = refused else { return self.claim_in_lane(connection, scope, rows, from) };
        let scope = Scope { claim_floor: None, ..scope };
        if scope.only.is_some_and(|keys| keys.iter().all(|key| refused.contains(key))) {
            return self.claim_in_lane(connection, scope, rows, from);
        }
        let scope = Scope { only: None, ..scope };
        let except: Vec<_> = scope.except.iter().chain(&refused).cloned().collect();
        if refused.len() <= ROWS_EXCEPTED {
            return self.claim_in_lane(connection, Scope { except: &except, ..scope }, rows, from);
        }
        // Too many for one statement.
        let limit = u32::try_from((except.len() + 1).next_power_of_two()).unwrap_or(u32::MAX);
        let passed: HashSet<_> = except.iter().map(RowKey::text).collect();
        let page = FromLane { place: None, pick: Pick::Any, ..from.clone() };
        let page = self.claim_in_lane(connection, scope, ClaimTerms { limit, ..PEEK }, &page)?;
        let mut keys = page.into_iter().map(|row| self.queue.claimed_key(row));
        let Some(first) = keys.find(|key| !passed.contains(key.text())) else { return Ok(Vec::new()) };
        self.claim_in_lane(connection, Scope { only: Some(slice::from_ref(&first)), ..scope }, rows, from)
    }

    /// Claims rows of a lane, in their order.
    fn claim_in_lane(
        &self,
        connection: &mut C,
        scope: Scope<'_, K>,
        rows: ClaimTerms,
        from: &FromLane,
    ) -> QueryResult<Vec<ClaimedRow<K>>> {
        let claim = |limit| self.queue.claim_of(scope, limit).in_lane(from.clone()).locked(rows.locks);
        if let Some(keys) = scope.only {
            return (self.queue.load_claimed)(connection, &claim(1).only(self.queue.rows(keys)));
        }
        let way = ClaimWay::of::<C::Backend, K>(self.queue.sql.options, &scope);
        let passes = rows.locks && from.pick == Pick::Any && way == ClaimWay::Candidates;
        claim_free(self.queue, connection, passes, rows.limit, claim)
    }
}

/// Decides which row of a strict lane is next. `due`: in how long the row that holds it back is due, if there is one.
/// `None`: it is not due yet.
fn pick_of(due: Option<Duration>) -> Option<Pick> {
    match due {
        None => Some(Pick::FirstOfAll),
        Some(due) => due.is_zero().then_some(Pick::Ahead),
    }
}
