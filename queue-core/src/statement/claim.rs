//! Claims the row that has been due longest: `SELECT .. FOR NO KEY UPDATE SKIP LOCKED`.

use std::marker::PhantomData;
use std::time::Duration;

use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::result::QueryResult;

use super::ahead::push_ahead;
use super::condition::push_exceptions;
use super::due::{Claimable, time_ago};
use super::key_text::{occasion_of, push_occasion_text};
use super::lane::{push_claimed_lane, push_place};
use super::limit::{Limit, keep_if_few, padded};
use super::names::push_columns;
use super::rows::ClaimedRow;
use super::scope::push_floor;
use super::walk::Walk;
use crate::backend::{Captured, Place, QueueBackend, Statement};
use crate::entity::{IsKey, Key, QueueSql, QueueTable, SelectedIn};
use crate::erased_entity::ErasedEntity;
use crate::row::{Details, Fence, Instant, Lane, QueueState, RowKey};

/// Claims one row of a queue.
pub struct Claim<DB: QueueBackend> {
    selection: Box<dyn QueryFragment<DB>>,
    pub(crate) due: Claimable<DB>,
}

impl<DB: QueueBackend> Claim<DB> {
    /// Makes the claim.
    pub fn new<Q: SelectedIn<DB>>() -> Self {
        Claim { selection: Q::selection(), due: Claimable::new(Q::SQL, None) }
    }

    /// Claims up to `limit` rows, except those with these keys.
    pub fn some(self, limit: u32, excepted: Vec<IsKey<DB>>) -> ClaimSome<DB> {
        ClaimSome {
            walk: Walk::of(self.due.queue.options),
            claim: self,
            limit: Limit::of(limit),
            excepted: padded(excepted),
            locks: true,
            age: None,
            only: Vec::new(),
            floor: None,
            lane: None,
        }
    }

    /// Claims only rows in these stages.
    pub fn in_stages(self, stages: Option<&[&'static str]>) -> Self {
        Claim { due: Claimable::new(self.due.queue, stages), ..self }
    }
}

/// Finds the prepared statement of the claim `Of`, of the entity `Q`: its text is the same each time.
pub struct ClaimId<Q, DB, Of>(PhantomData<fn() -> Q>, PhantomData<fn() -> (DB, Of)>);

impl<Q: SelectedIn<DB> + 'static, DB: QueueBackend, Of: 'static> QueryId for ClaimId<Q, DB, Of> {
    type QueryId = Self;

    // The user writes the condition, which may be another one each time. A poller may serve other stages. The condition
    // on a key is of one shape for all keys.
    const HAS_STATIC_QUERY_ID: bool =
        Q::SELECTION_IS_STATIC && !Q::Queue::OPTIONS.conditional && Q::Queue::OPTIONS.stages.is_none();
}

/// Claims several rows, except some that are known by their keys. It is a statement of its own, because the
/// plain claim is prepared once and for all.
pub struct ClaimSome<DB: QueueBackend> {
    claim: Claim<DB>,
    pub(crate) limit: Limit,
    excepted: Vec<IsKey<DB>>,
    locks: bool,
    walk: Walk,
    age: Option<Duration>,
    only: Vec<IsKey<DB>>,
    floor: Option<Instant>,
    lane: Option<FromLane>,
}

/// The lane from which a claim takes rows.
#[derive(Debug, Clone)]
pub struct FromLane {
    /// The lane.
    pub lane: Lane,
    /// A place that the claim takes for the transaction, before it looks for a row. A row that another session has
    /// changed meanwhile is checked again when it is locked.
    pub place: Option<Place>,
    /// Which of its rows.
    pub pick: Pick,
}

/// Which rows of a lane a claim takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// Any that are due, in their order.
    Any,
    /// The first one that is due, or none if another session holds it.
    First,
    /// The same, and none if the claim excepts the first one, or if a row holds the lane back.
    FirstOfAll,
    /// The one that holds the lane back, if it is due.
    Ahead,
}

impl<DB: QueueBackend> ClaimSome<DB> {
    /// Returns the queue.
    pub(crate) fn queue(&self) -> &'static QueueSql<DB> {
        self.claim.due.queue
    }

    /// Reads the rows without locking them.
    pub fn without_lock(self) -> Self {
        ClaimSome { locks: false, ..self }
    }

    /// Claims only rows that are due at this time or later, for entities that claim by due time.
    pub fn not_below(self, floor: Option<Instant>) -> Self {
        ClaimSome { floor: floor.filter(|_| self.walk.is_by_due_time()), ..self }
    }

    /// Claims rows that have been due for longer than this, those first that have been due longest, whatever the
    /// entity's order.
    pub fn aged(self, age: Duration) -> Self {
        ClaimSome { walk: Walk::Oldest, age: Some(age), ..self }
    }

    /// Claims only rows of this lane.
    pub fn in_lane(self, lane: FromLane) -> Self {
        ClaimSome { walk: self.walk.in_lane(), lane: Some(lane), ..self }
    }

    /// Claims only rows with these keys.
    pub fn only(self, keys: Vec<IsKey<DB>>) -> Self {
        ClaimSome { walk: self.walk.by_key(), only: padded(keys), ..self }
    }
}

/// A claimed row.
pub struct Claimed<K> {
    /// The primary key.
    pub key: RowKey<K>,
    /// The state in which it was claimed.
    pub fence: Fence,
    /// The entity and its queue state, or why they cannot be decoded.
    pub message: Result<(ErasedEntity, QueueState), Box<dyn std::error::Error + Send + Sync>>,
    /// The optional columns, if the entity asks for them.
    pub details: Details,
}

/// Returns the key of a row that a claim has read.
pub(crate) fn claimed_key<K: Key, DB: QueueBackend>(queue: &QueueSql<DB>, row: ClaimedRow<K>) -> RowKey<K> {
    let (text, _) = occasion_of(queue, &row.0, &row.1);
    RowKey::new(row.0, text)
}

impl<K: Key> Claimed<K> {
    /// Reads a row as this database returned it.
    pub(crate) fn read<DB: QueueBackend>(queue: &QueueSql<DB>, row: ClaimedRow<K>) -> Self {
        let (key, text, status, try_count, Captured(rest)) = row;
        let (text, details) = occasion_of(queue, &key, &text);
        let due = rest.as_ref().ok().and_then(|(due, ..)| *due).filter(|due| due.is_exact);
        let fence = Fence { due: due.map(|due| due.time), ..Fence::new(status, try_count) };
        let message = rest.map(|(next_attempt_time, last_attempt_time, last_attempt_error_message, entity)| {
            let state = QueueState {
                status,
                next_attempt_time: next_attempt_time.map(Into::into),
                try_count,
                last_attempt_time: last_attempt_time.map(Into::into),
                last_attempt_error_message,
            };
            (entity, state)
        });
        // SQLite stores values of any type. A row whose occasion cannot be read has no idempotency key of its own.
        let message = match details.occasion {
            None if queue.options.occasion.is_some() => Err("its occasion is no whole number".into()),
            _ => message,
        };
        Claimed { key: RowKey::new(key, text), fence, message, details }
    }
}

impl<DB: QueueBackend> Statement<DB> for Claim<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.due.queue;
        let walk = Walk::of(queue.options);
        self.push_select(walk, DB::STATEMENT_TIME, out.reborrow())?;
        walk.push_order(queue, &mut out, const { &Limit::ONE })?;
        push_claim_lock(&mut out);
        Ok(())
    }
}

impl<DB: QueueBackend> Statement<DB> for ClaimSome<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.queue();
        keep_if_few(&mut out, self.only.len() + self.excepted.len());
        let picks_one = |lane: &&FromLane| match lane.pick {
            Pick::Any => false,
            Pick::First => self.only.is_empty(),
            Pick::FirstOfAll | Pick::Ahead => true,
        };
        let one_of = self.lane.as_ref().filter(picks_one);
        let walk = if one_of.is_some() { self.walk.by_key() } else { self.walk };
        self.claim.push_columns(out.reborrow())?;
        self.push_from(&mut out, walk)?;
        if let Some(lane) = one_of {
            push_key_is(queue, &mut out, |out| self.push_one_of(out, lane))?;
        }
        if let Some(lane) = &self.lane {
            push_claimed_lane(queue, &mut out, &lane.lane)?;
            push_place(&mut out, lane.place.as_ref())?;
            if lane.pick == Pick::FirstOfAll {
                push_none_ahead(queue, &mut out, &lane.lane)?;
            }
        }
        let mut separator = " AND ((";
        for is_key in &self.only {
            out.push_sql(std::mem::replace(&mut separator, ") OR ("));
            is_key.walk_ast(out.reborrow())?;
        }
        if !self.only.is_empty() {
            out.push_sql("))");
        }
        push_exceptions(&self.excepted, &mut out)?;
        if one_of.is_none() {
            walk.push_order(queue, &mut out, &self.limit)?;
        }
        if self.locks {
            push_claim_lock(&mut out);
        }
        Ok(())
    }
}

impl<DB: QueueBackend> ClaimSome<DB> {
    /// Writes ` FROM table WHERE`, and which rows are due.
    fn push_due<'b>(&'b self, out: &mut AstPass<'_, 'b, DB>, walk: Walk) -> QueryResult<()> {
        let until = self.age.map(time_ago::<DB>);
        self.claim.push_from(walk, until.as_deref().unwrap_or(DB::STATEMENT_TIME), out)
    }

    /// The same, from the floor on.
    fn push_from<'b>(&'b self, out: &mut AstPass<'_, 'b, DB>, walk: Walk) -> QueryResult<()> {
        self.push_due(out, walk)?;
        self.floor.as_ref().map_or(Ok(()), |floor| push_floor(self.queue(), out, floor))
    }

    /// Writes ` FROM table WHERE .. LIMIT 1`, which finds the one row of a lane that may be claimed.
    fn push_one_of<'b>(&'b self, out: &mut AstPass<'_, 'b, DB>, from: &'b FromLane) -> QueryResult<()> {
        let queue = self.queue();
        if from.pick == Pick::Ahead {
            return push_ahead(queue, out, &from.lane);
        }
        let walk = Walk::of(queue.options).in_lane();
        match from.pick {
            // Whatever the claim passes over: if that is the first one, it takes none.
            Pick::FirstOfAll => self.push_due(out, walk)?,
            _ => self.push_from(out, walk)?,
        }
        push_claimed_lane(queue, out, &from.lane)?;
        if from.pick == Pick::First {
            push_exceptions(&self.excepted, out)?;
        }
        walk.push_order(queue, out, const { &Limit::ONE })
    }
}

/// Writes ` AND NOT EXISTS (SELECT .. )`, which no row fulfils if one of the lane holds the others back. The claim has asked
/// before; meanwhile, somebody may have recorded a failure whose transaction was lost, and with it the lane's place.
fn push_none_ahead<'b, DB: QueueBackend>(
    queue: &QueueSql<DB>,
    out: &mut AstPass<'_, 'b, DB>,
    lane: &'b Lane,
) -> QueryResult<()> {
    out.push_sql(" AND NOT EXISTS (SELECT 1");
    push_ahead(queue, out, lane)?;
    out.push_sql(")");
    Ok(())
}

/// Writes ` AND (key) = (SELECT key .. )`.
fn push_key_is<'b, DB: QueueBackend>(
    queue: &QueueSql<DB>,
    out: &mut AstPass<'_, 'b, DB>,
    rest: impl FnOnce(&mut AstPass<'_, 'b, DB>) -> QueryResult<()>,
) -> QueryResult<()> {
    out.push_sql(" AND (");
    queue.key_columns.walk_ast(out.reborrow())?;
    out.push_sql(") = (SELECT ");
    queue.key_columns.walk_ast(out.reborrow())?;
    rest(out)?;
    out.push_sql(")");
    Ok(())
}

impl<DB: QueueBackend> Claim<DB> {
    /// Writes everything up to the end of the condition.
    pub(crate) fn push_select<'b>(&'b self, walk: Walk, until: &str, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.push_columns(out.reborrow())?;
        self.push_from(walk, until, &mut out)
    }

    /// Writes ` FROM table WHERE`, and which rows are due.
    fn push_from<'b>(&'b self, walk: Walk, until: &str, out: &mut AstPass<'_, 'b, DB>) -> QueryResult<()> {
        walk.push_from(self.due.queue, out)?;
        self.due.push_due(out, until)
    }

    /// Writes `SELECT key, its text, state, entity`.
    pub(crate) fn push_columns<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.due.queue;
        let names = queue.names;
        out.push_sql("SELECT ");
        queue.key_columns.walk_ast(out.reborrow())?;
        out.push_sql(", ");
        push_occasion_text(queue, &mut out)?;
        push_columns(
            queue,
            &mut out,
            ", {}, {}, {}, {}, {}, ",
            &[
                names.status,
                names.try_count,
                names.next_attempt_time,
                names.last_attempt_time,
                names.last_attempt_error_message,
            ],
        )?;
        self.selection.walk_ast(out)
    }
}

/// Writes the lock with which a claim ends.
pub(crate) fn push_claim_lock<DB: QueueBackend>(out: &mut AstPass<'_, '_, DB>) {
    out.push_sql(DB::CLAIM_LOCK);
}
