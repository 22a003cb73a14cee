//! The conditions that make a row due.

use std::borrow::Cow;
use std::time::Duration;

use diesel::query_builder::QueryFragment;
use diesel::result::QueryResult;

use super::condition::{push_claimable, push_exceptions, statement_time_plus};
use super::limit::{keep_if_few, padded};
use super::walk::Walk;
use super::writer::Writer;
use crate::backend::QueueBackend;
use crate::entity::{ClaimCondition, IsKey, QueueSql};
use crate::row::{Instant, Stages, microseconds};

/// The rows of a queue that may be claimed: those in some stages, if the entity has stages, for which the condition of
/// `claim_if` holds, that are not below the low-water mark, and that are not excepted.
pub struct Claimable<DB: QueueBackend> {
    pub(crate) queue: &'static QueueSql<DB>,
    claim_if: Option<ClaimCondition<DB>>,
    pub(crate) stages: Option<Vec<&'static str>>,
    floor: Option<Instant>,
    excepted: Vec<IsKey<DB>>,
}

impl<DB: QueueBackend> Claimable<DB> {
    /// Returns the rows in these stages, or in all of the entity's.
    pub fn new(queue: &'static QueueSql<DB>, stages: Option<&[&'static str]>) -> Self {
        let (claim_if, stages) = ((queue.claim_condition)(), stages.map(<[_]>::to_vec));
        Claimable { queue, claim_if, stages, floor: None, excepted: Vec::new() }
    }

    /// Leaves out rows that are due earlier than this.
    pub fn not_below(self, floor: Option<Instant>) -> Self {
        Claimable { floor, ..self }
    }

    /// Leaves out the rows with these keys.
    pub fn except(self, keys: Vec<IsKey<DB>>) -> Self {
        Claimable { excepted: padded(keys), ..self }
    }

    /// Writes ` FROM table WHERE .. ORDER BY .. LIMIT ..`: the rows that are due until then, along a walk.
    pub(crate) fn push_rows<'b>(
        &'b self,
        sql: &mut Writer<'_, 'b, DB>,
        walk: Walk,
        until: &str,
        limit: &'b i64,
    ) -> QueryResult<()> {
        walk.push_from(sql)?;
        self.push_due(sql, until)?;
        walk.push_order(sql, limit)
    }

    /// Writes `next_attempt_time <= until AND status IN (..)`, the stages, the condition, the floor and the exceptions.
    pub(crate) fn push_due<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>, until: &str) -> QueryResult<()> {
        keep_if_few(&mut sql.out, self.excepted.len());
        self.push_due_from_any(sql, until)?;
        if let Some(floor) = &self.floor {
            sql.push(" AND {.next_attempt_time} >= ")?;
            DB::bind_time(&mut sql.out, floor)?;
        }
        push_exceptions(sql, &self.excepted)
    }

    /// Writes the same without the floor and the exceptions.
    pub(crate) fn push_due_from_any<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>, until: &str) -> QueryResult<()> {
        sql.push("{.next_attempt_time} <= ")?;
        sql.out.push_sql(until);
        sql.push(" AND ")?;
        push_claimable(sql)?;
        self.push_stages(sql)?;
        self.push_condition(sql)
    }

    /// Writes ` AND stage IN (..)` for an entity that has stages. A row in a stage that it does not know is never
    /// claimed.
    pub(crate) fn push_stages<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>) -> QueryResult<()> {
        let Some(known) = self.queue.options.stages else { return Ok(()) };
        sql.push(" AND ")?;
        push_stage_in(sql, known, " IN (", self.stages.as_deref().unwrap_or(known.names))
    }

    /// Writes ` AND (claim_if)`, if there is one.
    pub(crate) fn push_condition<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>) -> QueryResult<()> {
        let Some(claim_if) = &self.claim_if else { return Ok(()) };
        sql.within((" AND (", ")"), |sql| claim_if.walk_ast(sql.out.reborrow()))
    }
}

/// Writes `stage IN (..)`.
pub(crate) fn push_stage_in<'b, DB: QueueBackend>(
    sql: &mut Writer<'_, 'b, DB>,
    Stages { column, .. }: Stages,
    is: &str,
    stages: &'b [&'static str],
) -> QueryResult<()> {
    sql.within(DB::EXACTLY, |sql| sql.push_with("{.}", &[column]))?;
    sql.push(is)?;
    sql.each(stages, ", ", |sql, stage| DB::bind_text(&mut sql.out, stage))?;
    sql.push(")")
}

/// Returns the time up to which rows are due: now, or so long ago.
pub(crate) fn until<DB: QueueBackend>(age: Option<Duration>) -> Cow<'static, str> {
    age.map_or(DB::STATEMENT_TIME.into(), |age| statement_time_plus::<DB>(-microseconds(age)).into())
}
