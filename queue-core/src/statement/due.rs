//! The conditions that make a row due.

use std::time::Duration;

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::condition::push_claimable;
use super::names::push_columns;
use super::scope::push_stages;
use super::walk::Walk;
use crate::backend::QueueBackend;
use crate::entity::{ClaimCondition, QueueSql};
use crate::row::microseconds;

/// The rows of a queue that may be claimed: those in some stages, if the entity has stages, for which the condition of
/// `claim_if` holds.
pub(crate) struct Claimable<DB: QueueBackend> {
    pub(crate) queue: &'static QueueSql<DB>,
    claim_if: Option<ClaimCondition<DB>>,
    pub(crate) stages: Option<Vec<&'static str>>,
}

impl<DB: QueueBackend> Claimable<DB> {
    /// Returns the rows in these stages, or in all of the entity's.
    pub(crate) fn new(queue: &'static QueueSql<DB>, stages: Option<&[&'static str]>) -> Self {
        Claimable { queue, claim_if: (queue.claim_condition)(), stages: stages.map(<[_]>::to_vec) }
    }

    /// Writes ` FROM table WHERE next_attempt_time <= until AND status IN (..)`, the stages and the condition.
    pub(crate) fn push_from<'b>(&'b self, out: &mut AstPass<'_, 'b, DB>, until: &str) -> QueryResult<()> {
        Walk::Oldest.push_from(self.queue, out)?;
        self.push_due(out, until)
    }

    /// Writes `next_attempt_time <= until AND status IN (..)`, the stages and the condition.
    pub(crate) fn push_due<'b>(&'b self, out: &mut AstPass<'_, 'b, DB>, until: &str) -> QueryResult<()> {
        push_columns(self.queue, out, "{} <= ", &[self.queue.names.next_attempt_time])?;
        out.push_sql(until);
        out.push_sql(" AND ");
        push_claimable(self.queue, out)?;
        self.push_stages(out)?;
        self.push_condition(out)
    }

    /// Writes ` AND stage IN (..)`, if the entity has stages.
    pub(crate) fn push_stages<'b>(&'b self, out: &mut AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_stages(self.queue, out, self.stages.as_deref())
    }

    /// Writes ` AND (claim_if)`, if there is one.
    pub(crate) fn push_condition<'b>(&'b self, out: &mut AstPass<'_, 'b, DB>) -> QueryResult<()> {
        if let Some(claim_if) = &self.claim_if {
            out.push_sql(" AND (");
            claim_if.walk_ast(out.reborrow())?;
            out.push_sql(")");
        }
        Ok(())
    }
}

/// Writes the time of the statement minus this age.
pub(crate) fn time_ago<DB: QueueBackend>(age: Duration) -> String {
    let (before, after) = DB::STATEMENT_TIME_PLUS_MICROSECONDS;
    format!("{before}-{}{after}", microseconds(age))
}
