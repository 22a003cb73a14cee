//! The conditions that make a row due.

use std::time::Duration;

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::condition::push_claimable;
use super::names::push_columns;
use super::scope::push_stages;
use super::walk::Walk;
use crate::backend::QueueBackend;
use crate::entity::{ClaimCondition, TableIn};
use crate::row::microseconds;

/// Writes ` FROM table WHERE next_attempt_time <= until AND status IN (..)`, the stages and the condition.
pub(crate) fn push_due<'b, T, DB>(
    out: &mut AstPass<'_, 'b, DB>,
    until: &str,
    claim_if: Option<&'b ClaimCondition<DB>>,
    stages: Option<&'b [&'static str]>,
) -> QueryResult<()>
where
    T: TableIn<DB>,
    DB: QueueBackend,
{
    Walk::Oldest.push_from::<T, DB>(out)?;
    push_due_rows::<T, DB>(out, until, claim_if, stages)
}

/// Writes `next_attempt_time <= until AND status IN (..)`, the stages and the condition.
pub(crate) fn push_due_rows<'b, T, DB>(
    out: &mut AstPass<'_, 'b, DB>,
    until: &str,
    claim_if: Option<&'b ClaimCondition<DB>>,
    stages: Option<&'b [&'static str]>,
) -> QueryResult<()>
where
    T: TableIn<DB>,
    DB: QueueBackend,
{
    push_columns::<T, DB>(out, "{} <= ", &[T::COLUMNS.next_attempt_time])?;
    out.push_sql(until);
    out.push_sql(" AND ");
    push_claimable::<T, DB>(out)?;
    push_stages::<T, DB>(out, stages)?;
    push_claim_condition(out, claim_if)
}

/// Writes ` AND (claim_if)`, if there is one.
pub(crate) fn push_claim_condition<'b, DB: QueueBackend>(
    out: &mut AstPass<'_, 'b, DB>,
    claim_if: Option<&'b ClaimCondition<DB>>,
) -> QueryResult<()> {
    if let Some(claim_if) = claim_if {
        out.push_sql(" AND (");
        claim_if.walk_ast(out.reborrow())?;
        out.push_sql(")");
    }
    Ok(())
}

/// Writes the time of the statement minus this age.
pub(crate) fn time_ago<DB: QueueBackend>(age: Duration) -> String {
    let (before, after) = DB::STATEMENT_TIME_PLUS_MICROSECONDS;
    format!("{before}-{}{after}", microseconds(age))
}
