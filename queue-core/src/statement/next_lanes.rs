//! Finds the next lanes that have due rows, along the index of lanes. It passes over the backlogs of other lanes.

use diesel::backend::Backend;
use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::lane::{LaneDueRows, push_bound, push_value_text};
use super::names::push_columns;
use super::scope::Scope;
use super::walk::Walk;
use crate::backend::{LaneWalk, QueueBackend, Statement, TableName, pending_flag_of};
use crate::entity::{Entity, QueueTable, StoredIn};
use crate::row::{LaneValue, Lanes, Options};

/// Reads the first values, after another one, that have due rows of `Q`.
pub struct NextLanes<Q: Entity, DB: Backend> {
    due: LaneDueRows<Q, DB>,
    after: Option<LaneValue>,
    limit: u32,
    walk: Option<LaneWalk>,
}

impl<Q: Entity, DB: QueueBackend> NextLanes<Q, DB> {
    /// Reads up to `limit` values, which begin after this one or at the lowest one.
    pub fn new(scope: Scope<'_, Q::Key>, after: Option<LaneValue>, limit: u32) -> Self {
        let walk = Self::walk(scope).filter(|_| limit > 1);
        NextLanes { due: LaneDueRows::new(scope), after, limit, walk }
    }

    /// Tells whether the database finds more than one lane in one statement.
    pub fn reads_many(scope: Scope<'_, Q::Key>) -> bool {
        Self::walk(scope).is_some()
    }

    fn walk(scope: Scope<'_, Q::Key>) -> Option<LaneWalk> {
        let Options { order, conditional, .. } = Q::Queue::OPTIONS;
        match DB::LANE_WALK {
            LaneWalk::Recursive => Some(LaneWalk::Recursive),
            // It looks only at the earliest time of a lane, which may be that of a row that no claim takes.
            LaneWalk::Grouped if order.is_none() && !conditional && scope.stages.is_none() => Some(LaneWalk::Grouped),
            LaneWalk::Grouped => None,
        }
    }
}

impl<Q: StoredIn<DB>, DB: QueueBackend> NextLanes<Q, DB> {
    /// Writes ` FROM table WHERE column > after`.
    fn push_after<'b>(&'b self, out: &mut AstPass<'_, 'b, DB>, lanes: Lanes) -> QueryResult<()> {
        Walk::InLane(None).push_from::<Q::Queue, DB>(out)?;
        match &self.after {
            None => push_columns::<Q::Queue, DB>(out, "{} IS NOT NULL", &[lanes.column]),
            Some(value) => {
                push_columns::<Q::Queue, DB>(out, "{} > ", &[lanes.column])?;
                push_bound(out, lanes.of.kind, &value.bound)
            }
        }
    }

    /// Writes one lane after the other: each jumps over the rows of the one before.
    fn push_recursive<'b>(&'b self, out: &mut AstPass<'_, 'b, DB>, lanes: Lanes) -> QueryResult<()> {
        let first = |out: &mut AstPass<'_, 'b, DB>| {
            out.push_sql(" AND ");
            self.due.push(out)?;
            push_columns::<Q::Queue, DB>(out, " ORDER BY {} LIMIT 1)", &[lanes.column])
        };
        out.push_sql("WITH RECURSIVE queueable_lanes (lane, place) AS (SELECT (");
        push_columns::<Q::Queue, DB>(out, "SELECT {}", &[lanes.column])?;
        self.push_after(out, lanes)?;
        first(out)?;
        out.push_sql(", 1 UNION ALL SELECT (");
        push_columns::<Q::Queue, DB>(out, "SELECT {}", &[lanes.column])?;
        Walk::InLane(None).push_from::<Q::Queue, DB>(out)?;
        push_columns::<Q::Queue, DB>(out, "{} > queueable_lanes.lane", &[lanes.column])?;
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
        let next = Q::Queue::COLUMNS.next_attempt_time;
        push_value_text::<Q::Queue, DB>(out, lanes)?;
        self.push_after(out, lanes)?;
        let flag = pending_flag_of(&TableName::of(Q::Queue::TABLE, out.backend())?, Q::Queue::COLUMNS);
        let group = [flag.as_str(), lanes.column];
        push_columns::<Q::Queue, DB>(out, " GROUP BY {}, {}", &group)?;
        push_columns::<Q::Queue, DB>(out, " HAVING MIN({}) <= ", &[next])?;
        out.push_sql(DB::STATEMENT_TIME);
        push_columns::<Q::Queue, DB>(out, " ORDER BY {}, {} LIMIT ", &group)?;
        out.push_sql(&self.limit.to_string());
        Ok(())
    }
}

impl<Q: StoredIn<DB>, DB: QueueBackend> Statement<DB> for NextLanes<Q, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let Some(lanes) = Q::Queue::OPTIONS.lanes else { return Ok(()) };
        match self.walk {
            Some(LaneWalk::Recursive) => self.push_recursive(&mut out, lanes),
            Some(LaneWalk::Grouped) => self.push_grouped(&mut out, lanes),
            None => {
                push_value_text::<Q::Queue, DB>(&mut out, lanes)?;
                self.push_after(&mut out, lanes)?;
                out.push_sql(" AND ");
                self.due.push(&mut out)?;
                push_columns::<Q::Queue, DB>(&mut out, " ORDER BY {} LIMIT 1", &[lanes.column])
            }
        }
    }
}
