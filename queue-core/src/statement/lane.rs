//! Finds the lanes that have due rows, and counts the leased rows of a lane. The rows of one value of a domain column
//! are a lane.

use std::time::Duration;

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::condition::{StateCondition, push_exceptions, statement_time_plus};
use super::due::Claimable;
use super::walk::Walk;
use super::writer::Writer;
use crate::backend::{Place, QueueBackend, Statement};
use crate::entity::{IsKey, KeyedRow, QueueSql};
use crate::row::{BoundValue, Lane, LaneValues, Lanes, Status, ValueKind, microseconds};

/// Reads the values of the rows that have been due longest, one for each row: at most so many.
pub struct DueLanes<DB: QueueBackend>(pub Claimable<DB>, pub i64);

/// Reads the lane of the row with this key.
pub struct LanesOf<DB: QueueBackend>(pub KeyedRow<DB>);

/// Reads the statuses of the rows in a lane that workers hold under leases that have not ended, up to a number of them.
pub struct LeasedIn<DB: QueueBackend> {
    /// The queue.
    pub queue: &'static QueueSql<DB>,
    /// The lane.
    pub lane: Lane,
    /// The key of a row that does not count.
    pub except: Option<IsKey<DB>>,
    /// The largest number of rows.
    pub limit: i64,
    /// Leases that end later than this are not searched for.
    pub longest: Duration,
}

impl<DB: QueueBackend> Statement<DB> for DueLanes<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.0.queue, out);
        let Some(lanes) = sql.queue.options.lanes else { return Ok(()) };
        push_value_text(&mut sql, lanes)?;
        self.0.push_rows(&mut sql, Walk::OLDEST, DB::STATEMENT_TIME, &self.1)
    }
}

impl<DB: QueueBackend> Statement<DB> for LanesOf<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.0.queue, out);
        let Some(lanes) = sql.queue.options.lanes else { return Ok(()) };
        push_value_text(&mut sql, lanes)?;
        sql.push_is_key(" FROM {table} WHERE ", &self.0.is_key)
    }
}

impl<DB: QueueBackend> Statement<DB> for LeasedIn<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.queue, out);
        sql.push("SELECT {.status}")?;
        let walk = if matches!(self.lane, Lane::Queue) { Walk::OLDEST } else { Walk::IN_LANE };
        walk.push_from(&mut sql)?;
        sql.push("{.next_attempt_time} > {statement_time} AND {.next_attempt_time} <= ")?;
        sql.out.push_sql(&statement_time_plus::<DB>(microseconds(self.longest)));
        push_lane(&mut sql, &self.lane)?;
        sql.push(" AND ")?;
        StateCondition::In(&[Status::InProgress]).push(&mut sql)?;
        push_exceptions(&mut sql, self.except.as_slice())?;
        sql.push_limit(&self.limit)
    }
}

/// Writes `SELECT`, and the value as text.
pub(crate) fn push_value_text<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>, lanes: Lanes) -> QueryResult<()> {
    sql.push("SELECT ")?;
    sql.push_around(DB::value_text(lanes.of.kind), "{.}", &[lanes.column])
}

/// Writes ` AND column = value`, or what else picks the rows of a lane for a claim.
pub(crate) fn push_claimed_lane<'b, DB: QueueBackend>(sql: &mut Writer<'_, 'b, DB>, lane: &'b Lane) -> QueryResult<()> {
    let (Lane::Value(value), Some(Lanes { column, of: LaneValues { kind, .. }, .. }), true) =
        (lane, sql.queue.options.lanes, DB::LANE_IS_RANGE)
    else {
        return push_lane(sql, lane);
    };
    sql.push_with(" AND {.} >= ", &[column])?;
    push_bound(sql, kind, &value.bound)?;
    if sql.queue.options.order.is_some() {
        sql.push_with(" AND {.} <= ", &[column])?;
        return push_bound(sql, kind, &value.bound);
    }
    // The walk ends at the first row that is not due.
    sql.push_with(" AND ({.}, {.next_attempt_time}) <= (", &[column])?;
    push_bound(sql, kind, &value.bound)?;
    sql.push(", {statement_time})")
}

/// Writes ` AND column = value`, or what else picks the rows of a lane.
pub(crate) fn push_lane<'b, DB: QueueBackend>(sql: &mut Writer<'_, 'b, DB>, lane: &'b Lane) -> QueryResult<()> {
    let Some(Lanes { column, of: LaneValues { kind, .. }, .. }) = sql.queue.options.lanes else { return Ok(()) };
    if *lane == Lane::Queue {
        return Ok(());
    }
    sql.push(" AND ")?;
    sql.within(DB::IS_IN_LANE, |sql| match lane.value() {
        None => sql.push_with("{.} IS NULL", &[column]),
        Some(value) => {
            sql.push_with("{.} = ", &[column])?;
            push_bound(sql, kind, &value.bound)
        }
    })
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
    for (before, text) in [(queue, &place.queue), (table, &place.table), (lane, &place.lane)] {
        out.push_sql(before);
        DB::bind_text(out, text)?;
    }
    out.push_sql(end);
    out.push_sql(" IS NOT NULL");
    Ok(())
}

pub(crate) fn push_bound<'b, DB: QueueBackend>(
    sql: &mut Writer<'_, 'b, DB>,
    kind: ValueKind,
    value: &'b BoundValue,
) -> QueryResult<()> {
    sql.within(DB::bound_value(kind), |sql| match value {
        BoundValue::Integer(integer) => DB::bind_big_integer(&mut sql.out, integer),
        BoundValue::Text(text) => DB::bind_text(&mut sql.out, text),
        BoundValue::Binary(bytes) => DB::bind_bytes(&mut sql.out, bytes),
    })
}
