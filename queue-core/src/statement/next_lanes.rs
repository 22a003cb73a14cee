//! Finds the next lanes that have due rows, along the index of lanes. It passes over the backlogs of other lanes.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::lane::{LaneDueRows, push_bound, push_value_text};
use super::names::push_columns;
use super::walk::Walk;
use crate::backend::{LaneWalk, QueueBackend, Statement, TableName, pending_flag_of};
use crate::row::{LaneValue, Lanes, Options};

/// Reads the first values, after another one, that have due rows.
pub struct NextLanes<DB: QueueBackend> {
    due: LaneDueRows<DB>,
    after: Option<LaneValue>,
    limit: u32,
    walk: Option<LaneWalk>,
}

impl<DB: QueueBackend> NextLanes<DB> {
    /// Reads up to `limit` values, which begin after this one or at the lowest one.
    pub fn new(due: LaneDueRows<DB>, after: Option<LaneValue>, limit: u32) -> Self {
        let walk = lane_walk(&due).filter(|_| limit > 1);
        NextLanes { due, after, limit, walk }
    }

    /// Tells whether the database finds more than one lane in one statement.
    pub fn reads_many(due: &LaneDueRows<DB>) -> bool {
        lane_walk(due).is_some()
    }

    /// Writes ` FROM table WHERE column > after`.
    fn push_after<'b>(&'b self, out: &mut AstPass<'_, 'b, DB>, lanes: Lanes) -> QueryResult<()> {
        let queue = self.due.queue();
        Walk::InLane(None).push_from(queue, out)?;
        match &self.after {
            None => push_columns(queue, out, "{} IS NOT NULL", &[lanes.column]),
            Some(value) => {
                push_columns(queue, out, "{} > ", &[lanes.column])?;
                push_bound(out, lanes.of.kind, &value.bound)
            }
        }
    }

    /// Writes one lane after the other: each jumps over the rows of the one before.
    fn push_recursive<'b>(&'b self, out: &mut AstPass<'_, 'b, DB>, lanes: Lanes) -> QueryResult<()> {
        let queue = self.due.queue();
        let first = |out: &mut AstPass<'_, 'b, DB>| {
            out.push_sql(" AND ");
            self.due.push(out)?;
            push_columns(queue, out, " ORDER BY {} LIMIT 1)", &[lanes.column])
        };
        out.push_sql("WITH RECURSIVE queueable_lanes (lane, place) AS (SELECT (");
        push_columns(queue, out, "SELECT {}", &[lanes.column])?;
        self.push_after(out, lanes)?;
        first(out)?;
        out.push_sql(", 1 UNION ALL SELECT (");
        push_columns(queue, out, "SELECT {}", &[lanes.column])?;
        Walk::InLane(None).push_from(queue, out)?;
        push_columns(queue, out, "{} > queueable_lanes.lane", &[lanes.column])?;
        first(out)?;
        out.push_sql(", queueable_lanes.place + 1 FROM queueable_lanes WHERE queueable_lanes.lane IS NOT NULL");
        out.push_sql(&format!(" AND queueable_lanes.place < {}) SELECT ", self.limit));
        DB::value_text(lanes.of.kind).iter().enumerate().for_each(|(i, part)| {
            out.push_sql(if i > 0 { "queueable_lanes.lane" } else { "" });
            out.push_sql(part);
        });
        out.push_sql(" FROM queueable_lanes WHERE queueable_lanes.lane IS NOT NULL ORDER BY queueable_lanes.place");
        Ok(())
    }

    /// Writes the lanes whose earliest row is due: the index tells the earliest time of each. Only groups by all columns
    /// with which the index begins are found by jumps.
    fn push_grouped<'b>(&'b self, out: &mut AstPass<'_, 'b, DB>, lanes: Lanes) -> QueryResult<()> {
        let queue = self.due.queue();
        let next = queue.names.next_attempt_time;
        push_value_text(queue, out, lanes)?;
        self.push_after(out, lanes)?;
        let flag = pending_flag_of(&TableName::of(queue.table, out.backend())?, queue.names);
        let group = [flag.as_str(), lanes.column];
        push_columns(queue, out, " GROUP BY {}, {}", &group)?;
        push_columns(queue, out, " HAVING MIN({}) <= ", &[next])?;
        out.push_sql(DB::STATEMENT_TIME);
        push_columns(queue, out, " ORDER BY {}, {} LIMIT ", &group)?;
        out.push_sql(&self.limit.to_string());
        Ok(())
    }
}

/// Returns how the database finds more than one lane in one statement, if it does.
fn lane_walk<DB: QueueBackend>(due: &LaneDueRows<DB>) -> Option<LaneWalk> {
    let Options { order, conditional, .. } = due.queue().options;
    match DB::LANE_WALK {
        LaneWalk::Recursive => Some(LaneWalk::Recursive),
        // It looks only at the earliest time of a lane, which may be that of a row that no claim takes.
        LaneWalk::Grouped if order.is_none() && !conditional && !due.is_in_some_stages() => Some(LaneWalk::Grouped),
        LaneWalk::Grouped => None,
    }
}

impl<DB: QueueBackend> Statement<DB> for NextLanes<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.due.queue();
        let Some(lanes) = queue.options.lanes else { return Ok(()) };
        match self.walk {
            Some(LaneWalk::Recursive) => self.push_recursive(&mut out, lanes),
            Some(LaneWalk::Grouped) => self.push_grouped(&mut out, lanes),
            None => {
                push_value_text(queue, &mut out, lanes)?;
                self.push_after(&mut out, lanes)?;
                out.push_sql(" AND ");
                self.due.push(&mut out)?;
                push_columns(queue, &mut out, " ORDER BY {} LIMIT 1", &[lanes.column])
            }
        }
    }
}
