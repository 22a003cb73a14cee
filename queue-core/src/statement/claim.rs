//! Claims the row that has been due longest: `SELECT .. FOR NO KEY UPDATE SKIP LOCKED`.

use std::marker::PhantomData;
use std::time::Duration;

use diesel::Selectable;
use diesel::backend::Backend;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::result::QueryResult;

use super::ahead::push_ahead;
use super::condition::push_exceptions;
use super::due::{push_due_rows, time_ago};
use super::key_text::{occasion_of, push_occasion_text};
use super::lane::{push_claimed_lane, push_place};
use super::limit::{Limit, is_keys, keep_if_few};
use super::names::push_columns;
use super::rows::ClaimedRow;
use super::scope::push_floor;
use super::walk::Walk;
use crate::backend::{Captured, Place, QueueBackend, Statement};
use crate::entity::{ClaimCondition, Entity, QueueTable, SelectedIn, StoredIn};
use crate::row::{Details, Fence, Instant, Lane, QueueState, RowKey};

/// Claims one row of `Q`.
pub struct Claim<Q: Selectable<DB>, DB: Backend> {
    selection: Q::SelectExpression,
    pub(crate) claim_if: Option<ClaimCondition<DB>>,
    stages: Option<Vec<&'static str>>,
    pub(crate) entity: PhantomData<fn() -> Q>,
}

impl<Q: Entity + Selectable<DB>, DB: QueueBackend> Claim<Q, DB> {
    /// Makes the claim.
    #[expect(clippy::new_without_default, reason = "a statement has no default")]
    pub fn new() -> Self {
        Claim {
            selection: Q::construct_selection(),
            claim_if: Q::Queue::claim_condition(),
            stages: None,
            entity: PhantomData,
        }
    }

    /// Claims up to `limit` rows, except those with these keys.
    pub fn some<'k>(self, limit: u32, except: impl IntoIterator<Item = &'k Q::Key>) -> ClaimSome<Q, DB>
    where
        Q::Key: 'k,
    {
        ClaimSome {
            claim: self,
            limit: Limit::of(limit),
            excepted: is_keys::<Q>(except.into_iter().collect()),
            locks: true,
            walk: Walk::of::<Q::Queue>(),
            age: None,
            only: Vec::new(),
            floor: None,
            lane: None,
        }
    }

    /// Claims only rows in these stages.
    pub fn in_stages(self, stages: Option<&[&'static str]>) -> Self {
        Claim { stages: stages.map(<[_]>::to_vec), ..self }
    }
}

impl<Q: SelectedIn<DB> + 'static, DB: QueueBackend + 'static> QueryId for Claim<Q, DB> {
    type QueryId = PhantomData<fn() -> Claim<Q, DB>>;

    // The user writes the condition, which may be another one each time. A poller may serve other stages.
    const HAS_STATIC_QUERY_ID: bool =
        Q::SELECTION_IS_STATIC && !Q::Queue::OPTIONS.conditional && Q::Queue::OPTIONS.stages.is_none();
}

/// Claims several rows of `Q`, except some that are known by their keys. It is a statement of its own, because the
/// plain claim is prepared once and for all.
pub struct ClaimSome<Q: Entity + Selectable<DB>, DB: Backend> {
    claim: Claim<Q, DB>,
    pub(crate) limit: Limit,
    excepted: Vec<Q::IsKey>,
    locks: bool,
    walk: Walk,
    age: Option<Duration>,
    only: Vec<Q::IsKey>,
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

impl<Q: Entity + Selectable<DB>, DB: Backend> ClaimSome<Q, DB> {
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
    pub fn only<'k>(self, keys: impl IntoIterator<Item = &'k Q::Key>) -> Self
    where
        Q::Key: 'k,
    {
        ClaimSome { walk: self.walk.by_key(), only: is_keys::<Q>(keys.into_iter().collect()), ..self }
    }
}

/// A claimed row.
pub struct Claimed<Q: Entity> {
    /// The primary key.
    pub key: RowKey<Q::Key>,
    /// The state in which it was claimed.
    pub fence: Fence,
    /// The entity and its queue state, or why they cannot be decoded.
    pub message: Result<(Q, QueueState), Box<dyn std::error::Error + Send + Sync>>,
    /// The optional columns, if the entity asks for them.
    pub details: Details,
}

/// Returns the key of a row that a claim has read.
pub(crate) fn claimed_key<Q: Entity, DB: QueueBackend>(row: ClaimedRow<Q>) -> RowKey<Q::Key> {
    let (text, _) = occasion_of::<Q, DB>(&row.0, &row.1);
    RowKey::new(row.0, text)
}

impl<Q: Entity> Claimed<Q> {
    /// Reads a row as this database returned it.
    pub(crate) fn read<DB: QueueBackend>((key, text, status, try_count, Captured(rest)): ClaimedRow<Q>) -> Self {
        let (text, details) = occasion_of::<Q, DB>(&key, &text);
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
            None if Q::Queue::OPTIONS.occasion.is_some() => Err("its occasion is no whole number".into()),
            _ => message,
        };
        Claimed { key: RowKey::new(key, text), fence, message, details }
    }
}

impl<Q: SelectedIn<DB>, DB: QueueBackend> Statement<DB> for Claim<Q, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let walk = Walk::of::<Q::Queue>();
        self.push_select(walk, DB::STATEMENT_TIME, out.reborrow())?;
        walk.push_order::<Q::Queue, DB>(&mut out, const { &Limit::ONE })?;
        push_claim_lock(&mut out);
        Ok(())
    }
}

impl<Q: SelectedIn<DB>, DB: QueueBackend> Statement<DB> for ClaimSome<Q, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
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
            push_key_is::<Q, DB>(&mut out, |out| self.push_one_of(out, lane))?;
        }
        if let Some(lane) = &self.lane {
            push_claimed_lane::<Q::Queue, DB>(&mut out, &lane.lane)?;
            push_place(&mut out, lane.place.as_ref())?;
            if lane.pick == Pick::FirstOfAll {
                push_none_ahead::<Q, DB>(&mut out, &lane.lane)?;
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
            walk.push_order::<Q::Queue, DB>(&mut out, &self.limit)?;
        }
        if self.locks {
            push_claim_lock(&mut out);
        }
        Ok(())
    }
}

impl<Q: SelectedIn<DB>, DB: QueueBackend> ClaimSome<Q, DB> {
    /// Writes ` FROM table WHERE`, and which rows are due.
    fn push_due<'b>(&'b self, out: &mut AstPass<'_, 'b, DB>, walk: Walk) -> QueryResult<()> {
        let until = self.age.map(time_ago::<DB>);
        self.claim.push_from(walk, until.as_deref().unwrap_or(DB::STATEMENT_TIME), out)
    }

    /// The same, from the floor on.
    fn push_from<'b>(&'b self, out: &mut AstPass<'_, 'b, DB>, walk: Walk) -> QueryResult<()> {
        self.push_due(out, walk)?;
        self.floor.as_ref().map_or(Ok(()), |floor| push_floor::<Q::Queue, DB>(out, floor))
    }

    /// Writes ` FROM table WHERE .. LIMIT 1`, which finds the one row of a lane that may be claimed.
    fn push_one_of<'b>(&'b self, out: &mut AstPass<'_, 'b, DB>, from: &'b FromLane) -> QueryResult<()> {
        if from.pick == Pick::Ahead {
            return push_ahead::<Q, DB>(out, &from.lane);
        }
        let walk = Walk::of::<Q::Queue>().in_lane();
        match from.pick {
            // Whatever the claim passes over: if that is the first one, it takes none.
            Pick::FirstOfAll => self.push_due(out, walk)?,
            _ => self.push_from(out, walk)?,
        }
        push_claimed_lane::<Q::Queue, DB>(out, &from.lane)?;
        if from.pick == Pick::First {
            push_exceptions(&self.excepted, out)?;
        }
        walk.push_order::<Q::Queue, DB>(out, const { &Limit::ONE })
    }
}

/// Writes ` AND NOT EXISTS (SELECT .. )`, which no row fulfils if one of the lane holds the others back. The claim has asked
/// before; meanwhile, somebody may have recorded a failure whose transaction was lost, and with it the lane's place.
fn push_none_ahead<'b, Q, DB>(out: &mut AstPass<'_, 'b, DB>, lane: &'b Lane) -> QueryResult<()>
where
    Q: StoredIn<DB>,
    DB: QueueBackend,
{
    out.push_sql(" AND NOT EXISTS (SELECT 1");
    push_ahead::<Q, DB>(out, lane)?;
    out.push_sql(")");
    Ok(())
}

/// Writes ` AND (key) = (SELECT key .. )`.
fn push_key_is<'b, Q: StoredIn<DB>, DB: QueueBackend>(
    out: &mut AstPass<'_, 'b, DB>,
    rest: impl FnOnce(&mut AstPass<'_, 'b, DB>) -> QueryResult<()>,
) -> QueryResult<()> {
    out.push_sql(" AND (");
    Q::KEY_COLUMNS.walk_ast(out.reborrow())?;
    out.push_sql(") = (SELECT ");
    Q::KEY_COLUMNS.walk_ast(out.reborrow())?;
    rest(out)?;
    out.push_sql(")");
    Ok(())
}

impl<Q: SelectedIn<DB>, DB: QueueBackend> Claim<Q, DB> {
    /// Writes everything up to the end of the condition.
    pub(crate) fn push_select<'b>(&'b self, walk: Walk, until: &str, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.push_columns(out.reborrow())?;
        self.push_from(walk, until, &mut out)
    }

    /// Writes ` FROM table WHERE`, and which rows are due.
    fn push_from<'b>(&'b self, walk: Walk, until: &str, out: &mut AstPass<'_, 'b, DB>) -> QueryResult<()> {
        walk.push_from::<Q::Queue, DB>(out)?;
        push_due_rows::<Q::Queue, DB>(out, until, self.claim_if.as_ref(), self.stages.as_deref())
    }

    /// Writes `SELECT key, its text, state, entity`.
    pub(crate) fn push_columns<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let names = Q::Queue::COLUMNS;
        out.push_sql("SELECT ");
        Q::KEY_COLUMNS.walk_ast(out.reborrow())?;
        out.push_sql(", ");
        push_occasion_text::<Q, DB>(&mut out)?;
        push_columns::<Q::Queue, DB>(
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
        Q::push_selection(&self.selection, out)
    }
}

/// Writes the lock with which a claim ends.
pub(crate) fn push_claim_lock<DB: QueueBackend>(out: &mut AstPass<'_, '_, DB>) {
    out.push_sql(DB::CLAIM_LOCK);
}
