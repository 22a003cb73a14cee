//! Finds the next lanes that have due rows, along the index of lanes. It passes over the backlogs of other lanes.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::due::Claimable;
use super::lane::{push_bound, push_value_text};
use super::walk::Walk;
use super::writer::Writer;
use crate::backend::{LaneWalk, QueueBackend, Statement, TableName, pending_flag_of};
use crate::row::{LaneValue, Lanes, Options};

/// Reads the first values, after another one, that have due rows.
pub struct NextLanes<DB: QueueBackend> {
    /// The due rows.
    pub due: Claimable<DB>,
    /// The value that they come after; without one, they begin at the lowest.
    pub after: Option<LaneValue>,
    /// The largest number of values.
    pub limit: u32,
}

impl<DB: QueueBackend> NextLanes<DB> {
    /// Writes ` FROM table WHERE column > after`.
    fn push_after<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>, lanes: Lanes) -> QueryResult<()> {
        Walk::IN_LANE.push_from(sql)?;
        match &self.after {
            None => sql.push_with("{.} IS NOT NULL", &[lanes.column]),
            Some(value) => {
                sql.push_with("{.} > ", &[lanes.column])?;
                push_bound(sql, lanes.of.kind, &value.bound)
            }
        }
    }

    /// Writes the end of a search for the first lane after another one.
    fn push_first<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>, lanes: Lanes) -> QueryResult<()> {
        sql.push(" AND ")?;
        self.due.push_due(sql, DB::STATEMENT_TIME)?;
        sql.push_with(" ORDER BY {.} LIMIT 1", &[lanes.column])
    }

    /// Writes one lane after the other: each jumps over the rows of the one before.
    fn push_recursive<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>, lanes: Lanes) -> QueryResult<()> {
        sql.push_with("WITH RECURSIVE queueable_lanes (lane, place) AS (SELECT (SELECT {.}", &[lanes.column])?;
        self.push_after(sql, lanes)?;
        self.push_first(sql, lanes)?;
        sql.push_with("), 1 UNION ALL SELECT (SELECT {.}", &[lanes.column])?;
        Walk::IN_LANE.push_from(sql)?;
        sql.push_with("{.} > queueable_lanes.lane", &[lanes.column])?;
        self.push_first(sql, lanes)?;
        sql.push("), queueable_lanes.place + 1 FROM queueable_lanes WHERE queueable_lanes.lane IS NOT NULL")?;
        sql.push(&format!(" AND queueable_lanes.place < {}) SELECT ", self.limit))?;
        sql.push_around(DB::value_text(lanes.of.kind), "queueable_lanes.lane", &[])?;
        sql.push(" FROM queueable_lanes WHERE queueable_lanes.lane IS NOT NULL ORDER BY queueable_lanes.place")
    }

    /// Writes the lanes whose earliest row is due: the index tells the earliest time of each. Only groups by all columns
    /// with which the index begins are found by jumps.
    fn push_grouped<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>, lanes: Lanes) -> QueryResult<()> {
        push_value_text(sql, lanes)?;
        self.push_after(sql, lanes)?;
        let flag = pending_flag_of(&TableName::of(sql.queue.table, sql.out.backend())?, sql.queue.names);
        let group = [flag.as_str(), lanes.column];
        sql.push_with(" GROUP BY {.}, {.} HAVING MIN({.next_attempt_time}) <= {statement_time}", &group)?;
        sql.push_with(&format!(" ORDER BY {{.}}, {{.}} LIMIT {}", self.limit), &group)
    }
}

/// Returns how the database finds more than one lane in one statement, if it does.
pub(crate) fn lane_walk<DB: QueueBackend>(due: &Claimable<DB>) -> Option<LaneWalk> {
    let Options { order, conditional, .. } = due.queue.options;
    match DB::LANE_WALK {
        LaneWalk::Recursive => Some(LaneWalk::Recursive),
        // It looks only at the earliest time of a lane, which may be that of a row that no claim takes.
        LaneWalk::Grouped if order.is_none() && !conditional && due.stages.is_none() => Some(LaneWalk::Grouped),
        LaneWalk::Grouped => None,
    }
}

impl<DB: QueueBackend> Statement<DB> for NextLanes<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.due.queue, out);
        let Some(lanes) = sql.queue.options.lanes else { return Ok(()) };
        match lane_walk(&self.due).filter(|_| self.limit > 1) {
            Some(LaneWalk::Recursive) => self.push_recursive(&mut sql, lanes),
            Some(LaneWalk::Grouped) => self.push_grouped(&mut sql, lanes),
            None => {
                push_value_text(&mut sql, lanes)?;
                self.push_after(&mut sql, lanes)?;
                self.push_first(&mut sql, lanes)
            }
        }
    }
}
