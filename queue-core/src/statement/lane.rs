//! Finds the lanes that have due rows, and counts the leased rows of a lane. The rows of one value of a domain column
//! are a lane.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::condition::{StateCondition, push_exceptions};
use super::due::push_due_rows;
use super::limit::{Limit, is_keys, keep_if_few};
use super::names::{push_column, push_columns, push_table, push_within};
use super::scope::{Scope, push_floor};
use super::walk::{Walk, push_oldest};
use crate::backend::{Place, QueueBackend, Statement};
use crate::entity::{ClaimCondition, Entity, QueueTable, StoredIn, TableIn};
use crate::row::{BoundValue, Instant, Lane, LaneValues, Lanes, RowKey, Status, ValueKind, microseconds};

/// Reads the values of the rows of `Q` that have been due longest: one for each row.
pub struct DueLanes<Q: Entity, DB: Backend> {
    due: LaneDueRows<Q, DB>,
    limit: Limit,
}

impl<Q: Entity, DB: QueueBackend> DueLanes<Q, DB> {
    /// Reads at most `limit` rows of this scope.
    pub fn new(scope: Scope<'_, Q::Key>, limit: u32) -> Self {
        DueLanes { due: LaneDueRows::new(scope), limit: Limit::of(limit) }
    }
}

/// Reads the lanes of rows with these keys.
pub struct LanesOf<Q: Entity> {
    is_key: Q::IsKey,
}

impl<Q: Entity> LanesOf<Q> {
    /// Reads the lane of the row with this key.
    pub fn new(key: &Q::Key) -> Self {
        LanesOf { is_key: Q::is_key(key.clone()) }
    }
}

/// Reads the statuses of the rows in a lane that workers hold under leases that have not ended, up to a number of them.
pub struct LeasedIn<Q: Entity> {
    lane: Lane,
    except: Option<Q::IsKey>,
    limit: Limit,
    longest: i64,
}

impl<Q: Entity> LeasedIn<Q> {
    /// Reads up to `limit` rows, but not the one with this key. Leases that end later than in `longest` are not
    /// searched for.
    pub fn new(lane: Lane, except: Option<&Q::Key>, limit: u32, longest: std::time::Duration) -> Self {
        let except = except.cloned().map(Q::is_key);
        LeasedIn { lane, except, limit: Limit::of(limit), longest: microseconds(longest) }
    }
}

/// The due rows of a scope.
pub(crate) struct LaneDueRows<Q: Entity, DB: Backend> {
    claim_if: Option<ClaimCondition<DB>>,
    stages: Option<Vec<&'static str>>,
    excepted: Vec<Q::IsKey>,
    floor: Option<Instant>,
    entity: PhantomData<fn() -> Q>,
}

impl<Q: Entity, DB: QueueBackend> LaneDueRows<Q, DB> {
    pub(crate) fn new(scope: Scope<'_, Q::Key>) -> Self {
        LaneDueRows {
            claim_if: Q::Queue::claim_condition(),
            stages: scope.stages.map(<[_]>::to_vec),
            excepted: is_keys::<Q>(RowKey::values(scope.except)),
            floor: scope.floor().filter(|_| Q::Queue::OPTIONS.order.is_none()),
            entity: PhantomData,
        }
    }

    pub(crate) fn push<'b>(&'b self, out: &mut AstPass<'_, 'b, DB>) -> QueryResult<()>
    where
        Q: StoredIn<DB>,
    {
        keep_if_few(out, self.excepted.len());
        push_due_rows::<Q::Queue, DB>(out, DB::STATEMENT_TIME, self.claim_if.as_ref(), self.stages.as_deref())?;
        if let Some(floor) = &self.floor {
            push_floor::<Q::Queue, DB>(out, floor)?;
        }
        push_exceptions(&self.excepted, out)
    }
}

impl<Q: StoredIn<DB>, DB: QueueBackend> Statement<DB> for DueLanes<Q, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let Some(lanes) = Q::Queue::OPTIONS.lanes else { return Ok(()) };
        push_value_text::<Q::Queue, DB>(&mut out, lanes)?;
        Walk::Oldest.push_from::<Q::Queue, DB>(&mut out)?;
        self.due.push(&mut out)?;
        push_oldest::<Q::Queue, DB>(&mut out, &[], &self.limit)
    }
}

impl<Q: StoredIn<DB>, DB: QueueBackend> Statement<DB> for LanesOf<Q> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let Some(lanes) = Q::Queue::OPTIONS.lanes else { return Ok(()) };
        push_value_text::<Q::Queue, DB>(&mut out, lanes)?;
        push_table::<Q::Queue, DB>(&mut out, " FROM ")?;
        out.push_sql(" WHERE ");
        self.is_key.walk_ast(out)
    }
}

impl<Q: StoredIn<DB>, DB: QueueBackend> Statement<DB> for LeasedIn<Q> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let next = Q::Queue::COLUMNS.next_attempt_time;
        push_columns::<Q::Queue, DB>(&mut out, "SELECT {}", &[Q::Queue::COLUMNS.status])?;
        let walk = if matches!(self.lane, Lane::Queue) { Walk::Oldest } else { Walk::InLane(None) };
        walk.push_from::<Q::Queue, DB>(&mut out)?;
        push_columns::<Q::Queue, DB>(&mut out, "{} > ", &[next])?;
        out.push_sql(DB::STATEMENT_TIME);
        push_columns::<Q::Queue, DB>(&mut out, " AND {} <= ", &[next])?;
        let (before, after) = DB::STATEMENT_TIME_PLUS_MICROSECONDS;
        out.push_sql(before);
        out.push_sql(&self.longest.to_string());
        out.push_sql(after);
        push_lane::<Q::Queue, DB>(&mut out, &self.lane)?;
        out.push_sql(" AND ");
        StateCondition::In(&[Status::InProgress]).push::<Q::Queue, DB>(&mut out)?;
        push_exceptions(self.except.as_slice(), &mut out)?;
        self.limit.push(&mut out)
    }
}

/// Writes `SELECT`, and the value as text.
pub(crate) fn push_value_text<T: TableIn<DB>, DB: QueueBackend>(
    out: &mut AstPass<'_, '_, DB>,
    lanes: Lanes,
) -> QueryResult<()> {
    out.push_sql("SELECT ");
    for (i, part) in DB::value_text(lanes.of.kind).iter().enumerate() {
        if i > 0 {
            push_column::<T, DB>(out, lanes.column)?;
        }
        out.push_sql(part);
    }
    Ok(())
}

/// Writes ` AND column = value`, or what else picks the rows of a lane for a claim.
pub(crate) fn push_claimed_lane<'b, T, DB>(out: &mut AstPass<'_, 'b, DB>, lane: &'b Lane) -> QueryResult<()>
where
    T: TableIn<DB>,
    DB: QueueBackend,
{
    let (Lane::Value(value), Some(Lanes { column, of: LaneValues { kind, .. }, .. }), true) =
        (lane, T::OPTIONS.lanes, DB::LANE_IS_RANGE)
    else {
        return push_lane::<T, DB>(out, lane);
    };
    push_columns::<T, DB>(out, " AND {} >= ", &[column])?;
    push_bound(out, kind, &value.bound)?;
    if T::OPTIONS.order.is_some() {
        push_columns::<T, DB>(out, " AND {} <= ", &[column])?;
        return push_bound(out, kind, &value.bound);
    }
    // The walk ends at the first row that is not due.
    push_columns::<T, DB>(out, " AND ({}, {}) <= (", &[column, T::COLUMNS.next_attempt_time])?;
    push_bound(out, kind, &value.bound)?;
    [", ", DB::STATEMENT_TIME, ")"].iter().for_each(|part| out.push_sql(part));
    Ok(())
}

/// Writes ` AND column = value`, or what else picks the rows of a lane.
pub(crate) fn push_lane<'b, T, DB>(out: &mut AstPass<'_, 'b, DB>, lane: &'b Lane) -> QueryResult<()>
where
    T: TableIn<DB>,
    DB: QueueBackend,
{
    let Some(Lanes { column, of: LaneValues { kind, .. }, .. }) = T::OPTIONS.lanes else { return Ok(()) };
    match lane {
        Lane::Queue => Ok(()),
        Lane::NoValue => {
            out.push_sql(" AND ");
            push_within(out, DB::IS_IN_LANE, |out| push_columns::<T, DB>(out, "{} IS NULL", &[column]))
        }
        Lane::Value(value) => {
            out.push_sql(" AND ");
            push_within(out, DB::IS_IN_LANE, |out| {
                push_columns::<T, DB>(out, "{} = ", &[column])?;
                push_bound(out, kind, &value.bound)
            })
        }
    }
}

/// Writes ` AND place`, which takes one of the places of a lane.
pub(crate) fn push_place<'b, DB: QueueBackend>(
    out: &mut AstPass<'_, 'b, DB>,
    place: Option<&'b Place>,
) -> QueryResult<()> {
    let (Some(place), Some([start, queue, table, lane, end])) = (place, DB::PLACE_IN_CLAIM) else { return Ok(()) };
    out.push_sql(" AND ");
    out.push_sql(start);
    DB::bind_big_integer(out, &place.places)?;
    out.push_sql(queue);
    DB::bind_text(out, &place.queue)?;
    out.push_sql(table);
    DB::bind_text(out, &place.table)?;
    out.push_sql(lane);
    DB::bind_text(out, &place.lane)?;
    out.push_sql(end);
    out.push_sql(" IS NOT NULL");
    Ok(())
}

pub(crate) fn push_bound<'b, DB: QueueBackend>(
    out: &mut AstPass<'_, 'b, DB>,
    kind: ValueKind,
    value: &'b BoundValue,
) -> QueryResult<()> {
    push_within(out, DB::bound_value(kind), |out| match value {
        BoundValue::Integer(integer) => DB::bind_big_integer(out, integer),
        BoundValue::Text(text) => DB::bind_text(out, text),
        BoundValue::Binary(bytes) => DB::bind_bytes(out, bytes),
    })
}
