//! The conditions of the statements: the fence, what is claimable, and the filter of an operation.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;
use diesel::serialize::ToSql;
use diesel::sql_types::{Integer, Text};

use super::claim::Fence;
use crate::backend::QueueBackend;
use crate::column::{
    ColumnKind, LastAttemptErrorMessage, LastAttemptTime, NextAttemptTime, QueueColumn, StatusText, TryCount,
};
use crate::entity::QueueTable;
use crate::instant::{Instant, TimestampUtc};
use crate::planted::planted;
use crate::status::Status;

/// Writes a queue column with its table's name.
pub(super) fn push_column<T, K, DB>(out: &mut AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: QueueTable,
    K: ColumnKind<T>,
    DB: Backend,
    T::Table: QueryFragment<DB>,
{
    const { &QueueColumn::<T, K>::new() }.walk_ast(out.reborrow())
}

/// Writes `status IN (..)` with every status that we know: a row with another one is never claimed.
pub(super) fn push_claimable<T, DB>(out: &mut AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: QueueTable,
    DB: QueueBackend,
    T::Table: QueryFragment<DB>,
{
    push_status_in::<T, DB>(out, " IN (", &Status::ALL)
}

/// Writes ` AND status = .. AND try_count = ..`, and, under a lease, when the attempt began.
pub(super) fn push_fence<'b, T, DB>(fence: &'b Fence, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
where
    T: QueueTable,
    DB: QueueBackend,
    T::Table: QueryFragment<DB>,
    Status: ToSql<Text, DB>,
    i32: ToSql<Integer, DB>,
    Instant: ToSql<TimestampUtc, DB>,
{
    if planted("no fence") || planted("a stale owner writes") {
        return Ok(());
    }
    out.push_sql(" AND ");
    push_column::<T, StatusText, DB>(&mut out)?;
    out.push_sql(" = ");
    out.push_bind_param::<Text, _>(&fence.status)?;
    if planted("a fence of the status alone") {
        return Ok(());
    }
    out.push_sql(" AND ");
    push_column::<T, TryCount, DB>(&mut out)?;
    out.push_sql(" = ");
    out.push_bind_param::<Integer, _>(&fence.try_count)?;
    if let Some(began) = &fence.began {
        out.push_sql(" AND ");
        push_column::<T, LastAttemptTime, DB>(&mut out)?;
        out.push_sql(" = ");
        out.push_bind_param::<TimestampUtc, _>(began)?;
    }
    Ok(())
}

/// A condition on a row's queue state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateCondition {
    /// Its status is one of these.
    In(&'static [Status]),
    /// Its status is none of these.
    NotIn(&'static [Status]),
    /// It has a next attempt time.
    Pending,
    /// It has none.
    NotPending,
    /// No worker holds a lease on it: its status is not `IN_PROGRESS`, or the lease has ended.
    NotLeased,
    /// Its next attempt time has come.
    Due,
    /// Its next attempt time lies in the future.
    Scheduled,
    /// It bears the text of a failure.
    WithErrorText,
    /// It bears no such text.
    WithoutErrorText,
    /// It bears the text of a failure, and not the one that [`Queue::stop`](crate::Queue::stop) writes on rows without one.
    WithFailure,
}

impl StateCondition {
    pub(super) fn push<T, DB>(self, out: &mut AstPass<'_, '_, DB>) -> QueryResult<()>
    where
        T: QueueTable,
        DB: QueueBackend,
        T::Table: QueryFragment<DB>,
    {
        match self {
            StateCondition::In(statuses) => push_status_in::<T, DB>(out, " IN (", statuses),
            StateCondition::NotIn(statuses) => push_status_in::<T, DB>(out, " NOT IN (", statuses),
            StateCondition::Pending => push_test::<T, NextAttemptTime, DB>(out, &[" IS NOT NULL"]),
            StateCondition::NotPending => push_test::<T, NextAttemptTime, DB>(out, &[" IS NULL"]),
            StateCondition::NotLeased => {
                out.push_sql("(");
                push_status_in::<T, DB>(out, " NOT IN (", &[Status::InProgress])?;
                out.push_sql(" OR ");
                push_test::<T, NextAttemptTime, DB>(out, &[" <= ", DB::STATEMENT_TIME])?;
                out.push_sql(")");
                Ok(())
            }
            StateCondition::Due => push_test::<T, NextAttemptTime, DB>(out, &[" <= ", DB::STATEMENT_TIME]),
            StateCondition::Scheduled => push_test::<T, NextAttemptTime, DB>(out, &[" > ", DB::STATEMENT_TIME]),
            StateCondition::WithErrorText => push_test::<T, LastAttemptErrorMessage, DB>(out, &[" IS NOT NULL"]),
            StateCondition::WithFailure => {
                // Null is unequal to nothing, so that rows without a text are left out.
                out.push_sql(DB::EXACTLY.0);
                push_column::<T, LastAttemptErrorMessage, DB>(out)?;
                out.push_sql(DB::EXACTLY.1);
                out.push_sql(" <> 'stopped'");
                Ok(())
            }
            StateCondition::WithoutErrorText => push_test::<T, LastAttemptErrorMessage, DB>(out, &[" IS NULL"]),
        }
    }
}

fn push_status_in<T, DB>(out: &mut AstPass<'_, '_, DB>, is: &str, statuses: &[Status]) -> QueryResult<()>
where
    T: QueueTable,
    DB: QueueBackend,
    T::Table: QueryFragment<DB>,
{
    out.push_sql(DB::EXACTLY.0);
    push_column::<T, StatusText, DB>(out)?;
    out.push_sql(DB::EXACTLY.1);
    out.push_sql(is);
    for (i, status) in statuses.iter().enumerate() {
        out.push_sql(if i == 0 { "'" } else { ", '" });
        out.push_sql(status.as_str());
        out.push_sql("'");
    }
    out.push_sql(")");
    Ok(())
}

fn push_test<T, K, DB>(out: &mut AstPass<'_, '_, DB>, test: &[&str]) -> QueryResult<()>
where
    T: QueueTable,
    K: ColumnKind<T>,
    DB: Backend,
    T::Table: QueryFragment<DB>,
{
    push_column::<T, K, DB>(out)?;
    test.iter().for_each(|part| out.push_sql(part));
    Ok(())
}

/// ` WHERE (filter) AND state AND ..`: the user's filter and the conditions on the queue's state.
#[derive(Debug, Clone, Copy)]
pub struct Condition<'a, T, F> {
    filter: Option<&'a F>,
    states: &'a [StateCondition],
    table: PhantomData<fn() -> T>,
}

impl<'a, T, F> Condition<'a, T, F> {
    /// Picks the rows for which the filter and all state conditions hold.
    pub fn new(filter: Option<&'a F>, states: &'a [StateCondition]) -> Self {
        Condition { filter, states, table: PhantomData }
    }

    pub(super) fn walk_ast<'b, DB>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
    where
        T: QueueTable,
        DB: QueueBackend,
        T::Table: QueryFragment<DB>,
        F: QueryFragment<DB>,
    {
        let mut separator = " WHERE ";
        if let Some(filter) = self.filter {
            out.push_sql(std::mem::replace(&mut separator, " AND "));
            out.push_sql("(");
            filter.walk_ast(out.reborrow())?;
            out.push_sql(")");
        }
        for state in self.states {
            out.push_sql(std::mem::replace(&mut separator, " AND "));
            state.push::<T, DB>(&mut out)?;
        }
        Ok(())
    }
}

/// A filter, if there is one; without one it always holds.
#[derive(Debug, Clone, Copy)]
pub struct IfAny<'a, F>(pub Option<&'a F>);

impl<F, DB> QueryFragment<DB> for IfAny<'_, F>
where
    DB: Backend,
    F: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        match self.0 {
            Some(filter) => filter.walk_ast(out),
            None => {
                out.push_sql("1 = 1");
                Ok(())
            }
        }
    }
}

/// Two filters that both must hold.
#[derive(Debug, Clone, Copy)]
pub struct And<A, B>(pub A, pub B);

impl<A, B, DB> QueryFragment<DB> for And<A, B>
where
    DB: Backend,
    A: QueryFragment<DB>,
    B: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.0.walk_ast(out.reborrow())?;
        out.push_sql(") AND (");
        self.1.walk_ast(out)
    }
}
