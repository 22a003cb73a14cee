//! Finds the lanes that have due rows, and counts the leased rows of a lane. The rows of one value of a domain column
//! are a lane.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::condition::{StateCondition, push_exceptions};
use super::due::Claimable;
use super::limit::{Limit, keep_if_few, padded};
use super::names::{push_column, push_columns, push_table, push_within};
use super::scope::push_floor;
use super::walk::{Walk, push_oldest};
use crate::backend::{Place, QueueBackend, Statement};
use crate::entity::{IsKey, KeyedRow, QueueSql};
use crate::row::{BoundValue, Instant, Lane, LaneValues, Lanes, Status, ValueKind, microseconds};

/// Reads the values of the rows that have been due longest: one for each row.
pub struct DueLanes<DB: QueueBackend> {
    due: LaneDueRows<DB>,
    limit: Limit,
}

impl<DB: QueueBackend> DueLanes<DB> {
    /// Reads at most `limit` of these rows.
    pub fn new(due: LaneDueRows<DB>, limit: u32) -> Self {
        DueLanes { due, limit: Limit::of(limit) }
    }
}

/// Reads the lanes of rows with these keys.
pub struct LanesOf<DB: QueueBackend> {
    row: KeyedRow<DB>,
}

impl<DB: QueueBackend> LanesOf<DB> {
    /// Reads the lane of the row with this key.
    pub fn new(row: KeyedRow<DB>) -> Self {
        LanesOf { row }
    }
}

/// Reads the statuses of the rows in a lane that workers hold under leases that have not ended, up to a number of them.
pub struct LeasedIn<DB: QueueBackend> {
    queue: &'static QueueSql<DB>,
    lane: Lane,
    except: Option<IsKey<DB>>,
    limit: Limit,
    longest: i64,
}

impl<DB: QueueBackend> LeasedIn<DB> {
    /// Reads up to `limit` rows, but not the one with this key. Leases that end later than in `longest` are not
    /// searched for.
    pub fn new(
        queue: &'static QueueSql<DB>,
        lane: Lane,
        except: Option<IsKey<DB>>,
        limit: u32,
        longest: std::time::Duration,
    ) -> Self {
        LeasedIn { queue, lane, except, limit: Limit::of(limit), longest: microseconds(longest) }
    }
}

/// The due rows of a scope.
pub struct LaneDueRows<DB: QueueBackend> {
    due: Claimable<DB>,
    excepted: Vec<IsKey<DB>>,
    floor: Option<Instant>,
}

impl<DB: QueueBackend> LaneDueRows<DB> {
    /// Returns the due rows in these stages, except some, and from `floor` on if they are claimed by due time.
    pub fn new(
        queue: &'static QueueSql<DB>,
        stages: Option<&[&'static str]>,
        excepted: Vec<IsKey<DB>>,
        floor: Option<Instant>,
    ) -> Self {
        let floor = floor.filter(|_| queue.options.order.is_none());
        LaneDueRows { due: Claimable::new(queue, stages), excepted: padded(excepted), floor }
    }

    pub(crate) fn queue(&self) -> &'static QueueSql<DB> {
        self.due.queue
    }

    /// Tells whether they are the rows in some of the entity's stages.
    pub(crate) fn is_in_some_stages(&self) -> bool {
        self.due.stages.is_some()
    }

    pub(crate) fn push<'b>(&'b self, out: &mut AstPass<'_, 'b, DB>) -> QueryResult<()> {
        keep_if_few(out, self.excepted.len());
        self.due.push_due(out, DB::STATEMENT_TIME)?;
        if let Some(floor) = &self.floor {
            push_floor(self.due.queue, out, floor)?;
        }
        push_exceptions(&self.excepted, out)
    }
}

impl<DB: QueueBackend> Statement<DB> for DueLanes<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.due.queue();
        let Some(lanes) = queue.options.lanes else { return Ok(()) };
        push_value_text(queue, &mut out, lanes)?;
        Walk::Oldest.push_from(queue, &mut out)?;
        self.due.push(&mut out)?;
        push_oldest(queue, &mut out, &[], &self.limit)
    }
}

impl<DB: QueueBackend> Statement<DB> for LanesOf<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.row.queue;
        let Some(lanes) = queue.options.lanes else { return Ok(()) };
        push_value_text(queue, &mut out, lanes)?;
        push_table(queue, &mut out, " FROM ")?;
        out.push_sql(" WHERE ");
        self.row.is_key.walk_ast(out)
    }
}

impl<DB: QueueBackend> Statement<DB> for LeasedIn<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.queue;
        let next = queue.names.next_attempt_time;
        push_columns(queue, &mut out, "SELECT {}", &[queue.names.status])?;
        let walk = if matches!(self.lane, Lane::Queue) { Walk::Oldest } else { Walk::InLane(None) };
        walk.push_from(queue, &mut out)?;
        push_columns(queue, &mut out, "{} > ", &[next])?;
        out.push_sql(DB::STATEMENT_TIME);
        push_columns(queue, &mut out, " AND {} <= ", &[next])?;
        let (before, after) = DB::STATEMENT_TIME_PLUS_MICROSECONDS;
        out.push_sql(before);
        out.push_sql(&self.longest.to_string());
        out.push_sql(after);
        push_lane(queue, &mut out, &self.lane)?;
        out.push_sql(" AND ");
        StateCondition::In(&[Status::InProgress]).push(queue, &mut out)?;
        push_exceptions(self.except.as_slice(), &mut out)?;
        self.limit.push(&mut out)
    }
}

/// Writes `SELECT`, and the value as text.
pub(crate) fn push_value_text<DB: QueueBackend>(
    queue: &QueueSql<DB>,
    out: &mut AstPass<'_, '_, DB>,
    lanes: Lanes,
) -> QueryResult<()> {
    out.push_sql("SELECT ");
    for (i, part) in DB::value_text(lanes.of.kind).iter().enumerate() {
        if i > 0 {
            push_column(queue, out, lanes.column)?;
        }
        out.push_sql(part);
    }
    Ok(())
}

/// Writes ` AND column = value`, or what else picks the rows of a lane for a claim.
pub(crate) fn push_claimed_lane<'b, DB: QueueBackend>(
    queue: &QueueSql<DB>,
    out: &mut AstPass<'_, 'b, DB>,
    lane: &'b Lane,
) -> QueryResult<()> {
    let (Lane::Value(value), Some(Lanes { column, of: LaneValues { kind, .. }, .. }), true) =
        (lane, queue.options.lanes, DB::LANE_IS_RANGE)
    else {
        return push_lane(queue, out, lane);
    };
    push_columns(queue, out, " AND {} >= ", &[column])?;
    push_bound(out, kind, &value.bound)?;
    if queue.options.order.is_some() {
        push_columns(queue, out, " AND {} <= ", &[column])?;
        return push_bound(out, kind, &value.bound);
    }
    // The walk ends at the first row that is not due.
    push_columns(queue, out, " AND ({}, {}) <= (", &[column, queue.names.next_attempt_time])?;
    push_bound(out, kind, &value.bound)?;
    [", ", DB::STATEMENT_TIME, ")"].iter().for_each(|part| out.push_sql(part));
    Ok(())
}

/// Writes ` AND column = value`, or what else picks the rows of a lane.
pub(crate) fn push_lane<'b, DB: QueueBackend>(
    queue: &QueueSql<DB>,
    out: &mut AstPass<'_, 'b, DB>,
    lane: &'b Lane,
) -> QueryResult<()> {
    let Some(Lanes { column, of: LaneValues { kind, .. }, .. }) = queue.options.lanes else { return Ok(()) };
    match lane {
        Lane::Queue => Ok(()),
        Lane::NoValue => {
            out.push_sql(" AND ");
            push_within(out, DB::IS_IN_LANE, |out| push_columns(queue, out, "{} IS NULL", &[column]))
        }
        Lane::Value(value) => {
            out.push_sql(" AND ");
            push_within(out, DB::IS_IN_LANE, |out| {
                push_columns(queue, out, "{} = ", &[column])?;
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
