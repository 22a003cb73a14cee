//! Finds the lanes that have due rows, and counts the leased rows of a lane. The rows of one value of a domain column
//! are a lane.

use std::time::Duration;

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;
use diesel::sql_types::{Nullable, Text};

use super::condition::{StateCondition, push_exceptions};
use super::queue::ErasedQueue;
use super::walk::{Claimable, Scope, Walk};
use super::writer::{Writer, statement};
use crate::backend::{
    LaneWalk, Named, Place, QueueBackend, QueueConnection, Statement, load, load_first, statement_time,
    statement_time_plus,
};
use crate::entity::{IsKey, Key, KeyedRow, QueueSql};
use crate::row::{BoundValue, Lane, LaneValue, Lanes, Options, RowKey, Status, microseconds};

/// How many lanes a walk along their index reads at once.
const LANES_AHEAD: u32 = 32;

/// Reads the values of the rows that have been due longest, one for each row: at most so many.
pub fn due_lanes<DB: QueueBackend>(due: Claimable<DB>, limit: i64) -> impl Statement<DB> {
    statement(due.queue, (due, limit), |(due, limit), sql| {
        push_value_text(sql)?;
        due.push_rows(sql, Walk::OLDEST, &statement_time::<DB>(), limit)
    })
}

/// Reads the lane of the row with this key.
pub fn lane_of<DB: QueueBackend>(row: KeyedRow<DB>) -> impl Statement<DB> {
    statement(row.queue, row, |row, sql| {
        push_value_text(sql)?;
        sql.push_is_key(" FROM {table} WHERE ", &row.is_key)
    })
}

/// Reads the text of a value of the column of lanes, as the column's type and collation have it: no row needs to have it.
pub fn lane_value<'v, DB: QueueBackend>(
    queue: &'static QueueSql<DB>,
    value: &'v dyn QueryFragment<DB>,
) -> impl Statement<DB> + 'v {
    statement(queue, value, |value, sql| {
        let Some(lanes) = sql.queue.options.lanes else { return Ok(()) };
        let (before, after) = DB::indexed(lanes.of.kind.is_long(), sql.queue.options.long_columns());
        sql.push("SELECT ")?;
        sql.push_around(DB::value_text(lanes.of.kind), &[before, "queueable_values.lane", after].concat(), &[])?;
        sql.push_with(" FROM (SELECT {.} AS lane FROM {table} WHERE 1 = 0 UNION ALL SELECT ", &[lanes.column])?;
        sql.push_fragment(*value)?;
        sql.push(") AS queueable_values")
    })
}

/// Reads the statuses of the rows in a lane that workers hold under leases that have not ended, up to a `limit`, without the
/// row with the key `except`. Leases that end later than `longest` are not searched for; without it, all are.
pub fn leased_in<DB: QueueBackend>(
    queue: &'static QueueSql<DB>,
    lane: Lane,
    except: Option<IsKey<DB>>,
    limit: i64,
    longest: Option<Duration>,
) -> impl Statement<DB> {
    statement(queue, (lane, except, limit, longest), |(lane, except, limit, longest), sql| {
        sql.push("SELECT {.status}")?;
        let walk = if matches!(lane, Lane::Queue) { Walk::OLDEST } else { Walk::IN_LANE };
        walk.push_from(sql)?;
        sql.push("{.next_attempt_time} > {statement_time}")?;
        if let Some(longest) = longest {
            sql.push(" AND {.next_attempt_time} <= ")?;
            sql.out.push_sql(&statement_time_plus::<DB>(microseconds(*longest)));
        }
        push_lane(sql, lane)?;
        sql.push(" AND ")?;
        StateCondition::In(&[Status::InProgress]).push(sql)?;
        push_exceptions(sql, except.as_slice())?;
        sql.push_limit(limit)
    })
}

/// Reads the first values, after another one or from the lowest on, that have due rows: at most so many. It walks along the
/// index of lanes, and passes over the backlogs of other lanes.
pub fn next_lanes<DB: QueueBackend>(due: Claimable<DB>, after: Option<LaneValue>, limit: u32) -> impl Statement<DB> {
    statement(due.queue, NextLanes { due, after, limit }, |next, sql| {
        let Some(lanes) = sql.queue.options.lanes else { return Ok(()) };
        match lane_walk(&next.due).filter(|_| next.limit > 1) {
            Some(LaneWalk::Recursive) => next.push_recursive(sql, lanes),
            Some(LaneWalk::Grouped) => next.push_grouped(sql, lanes),
            None => {
                push_value_text(sql)?;
                next.push_after(sql, lanes)?;
                next.push_first(sql, lanes)
            }
        }
    })
}

struct NextLanes<DB: QueueBackend> {
    due: Claimable<DB>,
    after: Option<LaneValue>,
    limit: u32,
}

impl<DB: QueueBackend> NextLanes<DB> {
    /// Writes ` FROM table WHERE column > after`.
    fn push_after<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>, lanes: Lanes) -> QueryResult<()> {
        Walk::IN_LANE.push_from(sql)?;
        match &self.after {
            None => {
                push_column(sql, lanes)?;
                sql.push(" IS NOT NULL")
            }
            Some(value) => push_compared(sql, lanes, " > ", value),
        }
    }

    /// Writes the end of a search for the first lane after another one.
    fn push_first<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>, lanes: Lanes) -> QueryResult<()> {
        sql.push(" AND ")?;
        self.due.push_due(sql, &statement_time::<DB>())?;
        sql.push(" ORDER BY ")?;
        push_column(sql, lanes)?;
        sql.push(" LIMIT 1")
    }

    /// Writes one lane after the other: each jumps over the rows of the one before.
    fn push_recursive<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>, lanes: Lanes) -> QueryResult<()> {
        sql.push("WITH RECURSIVE queueable_lanes (lane, place) AS (SELECT (SELECT ")?;
        push_column(sql, lanes)?;
        self.push_after(sql, lanes)?;
        self.push_first(sql, lanes)?;
        sql.push("), 1 UNION ALL SELECT (SELECT ")?;
        push_column(sql, lanes)?;
        Walk::IN_LANE.push_from(sql)?;
        push_column(sql, lanes)?;
        sql.push(" > queueable_lanes.lane")?;
        self.push_first(sql, lanes)?;
        sql.push("), queueable_lanes.place + 1 FROM queueable_lanes WHERE queueable_lanes.lane IS NOT NULL")?;
        sql.push_with(&format!(" AND queueable_lanes.place < {}) SELECT ", self.limit), &[])?;
        sql.push_around(DB::value_text(lanes.of.kind), "queueable_lanes.lane", &[])?;
        sql.push(" FROM queueable_lanes WHERE queueable_lanes.lane IS NOT NULL ORDER BY queueable_lanes.place")
    }

    /// Writes the lanes whose earliest row is due: the index tells the earliest time of each. Only groups by all columns
    /// with which the index begins are found by jumps.
    fn push_grouped<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>, lanes: Lanes) -> QueryResult<()> {
        push_value_text(sql)?;
        self.push_after(sql, lanes)?;
        let flag = sql.queue.name_of(Named::PendingFlag)?;
        let group = [flag.as_str(), lanes.column];
        sql.push_with(" GROUP BY {.}, {.} HAVING MIN({.next_attempt_time}) <= {statement_time}", &group)?;
        sql.push_with(&format!(" ORDER BY {{.}}, {{.}} LIMIT {}", self.limit), &group)
    }
}

/// Returns how the database finds more than one lane in one statement, if it does.
fn lane_walk<DB: QueueBackend>(due: &Claimable<DB>) -> Option<LaneWalk> {
    let Options { order, conditional, .. } = due.queue.options;
    match DB::LANE_WALK {
        LaneWalk::Recursive => Some(LaneWalk::Recursive),
        // It looks only at the earliest time of a lane, which may be that of a row that no claim takes.
        LaneWalk::Grouped if order.is_none() && !conditional && due.stages.is_none() => Some(LaneWalk::Grouped),
        LaneWalk::Grouped => None,
    }
}

/// Writes the value by which the rows are scheduled, as text; null if they are not.
pub(super) fn push_lane_text<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    let Some(lanes) = sql.queue.options.lanes else { return sql.push("NULL") };
    let (before, after) = DB::indexed(lanes.of.kind.is_long(), sql.queue.options.long_columns());
    sql.push_around(DB::value_text(lanes.of.kind), &[before, "{.}", after].concat(), &[lanes.column])
}

/// Writes `SELECT`, and the value as text.
fn push_value_text<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    sql.push("SELECT ")?;
    push_lane_text(sql)
}

/// Writes the value, as the index of lanes has it.
fn push_column<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>, Lanes { column, of, .. }: Lanes) -> QueryResult<()> {
    sql.push_indexed(column, of.kind.is_long())
}

/// Writes ` AND column = value`, or what else picks the rows of a lane for a claim.
pub(crate) fn push_claimed_lane<'b, DB: QueueBackend>(
    sql: &mut Writer<'_, 'b, DB>,
    walk: Walk,
    lane: &'b Lane,
) -> QueryResult<()> {
    let (Lane::Value(value), Some(lanes), true) = (lane, sql.queue.options.lanes, DB::LANE_IS_RANGE && !walk.sorts())
    else {
        return push_lane(sql, lane);
    };
    sql.push(" AND ")?;
    push_compared(sql, lanes, " >= ", value)?;
    if sql.queue.options.order.is_some() {
        sql.push(" AND ")?;
        return push_compared(sql, lanes, " <= ", value);
    }
    // The walk ends at the first row that is not due.
    sql.push(" AND (")?;
    push_column(sql, lanes)?;
    sql.push(", {.next_attempt_time}) <= (")?;
    push_bound(sql, lanes, value)?;
    sql.push(", {statement_time})")
}

/// Writes ` AND column = value`, or what else picks the rows of a lane.
pub(crate) fn push_lane<'b, DB: QueueBackend>(sql: &mut Writer<'_, 'b, DB>, lane: &'b Lane) -> QueryResult<()> {
    let Some(lanes) = sql.queue.options.lanes else { return Ok(()) };
    if *lane == Lane::Queue {
        return Ok(());
    }
    sql.push(" AND ")?;
    sql.within(DB::IS_IN_LANE, |sql| match lane.value() {
        None => {
            push_column(sql, lanes)?;
            sql.push(" IS NULL")
        }
        Some(value) => push_compared(sql, lanes, " = ", value),
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

/// Writes a condition that compares a row's value with this one.
fn push_compared<'b, DB: QueueBackend>(
    sql: &mut Writer<'_, 'b, DB>,
    lanes: Lanes,
    compared: &'static str,
    value: &'b LaneValue,
) -> QueryResult<()> {
    push_column(sql, lanes)?;
    sql.push(compared)?;
    push_bound(sql, lanes, value)
}

fn push_bound<'b, DB: QueueBackend>(
    sql: &mut Writer<'_, 'b, DB>,
    lanes: Lanes,
    value: &'b LaneValue,
) -> QueryResult<()> {
    sql.within(DB::bound_value(lanes.of.kind), |sql| match &value.bound {
        BoundValue::Integer(integer) => DB::bind_big_integer(&mut sql.out, integer),
        BoundValue::Text(text) => DB::bind_text(&mut sql.out, text),
        BoundValue::Binary(bytes) => DB::bind_bytes(&mut sql.out, bytes),
    })
}

/// Reads a lane as the statements select it.
pub(crate) fn read_lane<DB: QueueBackend>(queue: &QueueSql<DB>, text: Option<String>) -> Lane {
    match (text, queue.options.lanes) {
        (Some(text), Some(lanes)) => Lane::Value(LaneValue::read(lanes.of.kind, text, DB::TEXT_HAS_IDENTITY)),
        _ => Lane::NoValue,
    }
}

impl<K: Key, C: QueueConnection> ErasedQueue<K, C> {
    fn lane_due_rows(&self, scope: Scope<'_, K>) -> Claimable<C::Backend> {
        let floor = scope.floor().filter(|_| self.sql.options.order.is_none());
        Claimable::new(self.sql, scope.stages).not_below(floor).except(self.rows(scope.except))
    }

    /// Reads the lanes of up to `limit` rows that have been due longest, one for each row, without a lock.
    pub fn due_lanes(&self, connection: &mut C, scope: Scope<'_, K>, limit: u32) -> QueryResult<Vec<Lane>> {
        let due = due_lanes(self.lane_due_rows(scope), limit.into());
        let texts: Vec<Option<String>> = load::<Nullable<Text>, _, _>(connection, &due)?;
        Ok(texts.into_iter().map(|text| read_lane(self.sql, text)).collect())
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
        let next = next_lanes(self.lane_due_rows(scope), after, limit);
        let texts: Vec<Option<String>> = load::<Nullable<Text>, _, _>(connection, &next)?;
        Ok(texts.into_iter().filter_map(|text| read_lane(self.sql, text).value().cloned()).collect())
    }

    /// Reads the lane of the row with this key. `None`: there is no such row.
    pub fn lane_of(&self, connection: &mut C, key: &RowKey<K>) -> QueryResult<Option<Lane>> {
        let text: Option<Option<String>> = load_first::<Nullable<Text>, _, _>(connection, &lane_of(self.row(key)))?;
        Ok(text.map(|text| read_lane(self.sql, text)))
    }

    /// Counts the rows of a lane, up to `limit`, that are under leases which have not ended, without the row with this
    /// key.
    pub fn leased_in(
        &self,
        connection: &mut C,
        lane: &Lane,
        except: Option<&RowKey<K>>,
        limit: u32,
        longest: Option<Duration>,
    ) -> QueryResult<u32> {
        let except = except.map(|key| self.row(key).is_key);
        let leased = leased_in(self.sql, lane.clone(), except, limit.into(), longest);
        let leased = load::<Text, String, _>(connection, &leased)?;
        Ok(u32::try_from(leased.len()).unwrap_or(u32::MAX))
    }
}
