//! Reads rows for an operation: how many, how many of each status, or the rows themselves.

use diesel::backend::Backend;
use diesel::dsl::SqlTypeOf;
use diesel::expression::Expression;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, Text};
use diesel::{RunQueryDsl, Selectable};

use super::condition::{Condition, push_column};
use crate::backend::QueueBackend;
use crate::entity::{Entity, QueueStateColumns, QueueTable, StatusText, queue_state};

/// How many rows a condition picks.
pub struct Count<'a, T, F>(pub Condition<'a, T, F>);

/// How many rows of each status a condition picks.
pub struct CountByStatus<'a, T, F>(pub Condition<'a, T, F>);

/// The rows that a condition picks, each with its queue state, ordered by primary key.
pub struct Load<'a, Q: Entity + Selectable<DB>, F, DB: Backend> {
    selection: Q::SelectExpression,
    state: QueueStateColumns<Q::Queue>,
    condition: Condition<'a, Q::Queue, F>,
    limit: Option<i64>,
}

impl<'a, Q: Entity + Selectable<DB>, F, DB: Backend> Load<'a, Q, F, DB> {
    /// Loads the rows, at most `limit` of them.
    pub fn new(condition: Condition<'a, Q::Queue, F>, limit: Option<i64>) -> Self {
        Load { selection: Q::construct_selection(), state: queue_state(), condition, limit }
    }
}

impl<T, F, DB> QueryFragment<DB> for Count<'_, T, F>
where
    T: QueueTable,
    DB: QueueBackend,
    T::Table: QueryFragment<DB>,
    F: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT COUNT(*)");
        self.0.push_from(out.reborrow())?;
        self.0.walk_ast(out)
    }
}

impl<T, F, DB> QueryFragment<DB> for CountByStatus<'_, T, F>
where
    T: QueueTable,
    DB: QueueBackend,
    T::Table: QueryFragment<DB>,
    F: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        push_column::<T, StatusText, DB>(&mut out)?;
        out.push_sql(", COUNT(*) FROM ");
        T::TABLE.walk_ast(out.reborrow())?;
        self.0.walk_ast(out.reborrow())?;
        out.push_sql(" GROUP BY ");
        push_column::<T, StatusText, DB>(&mut out)
    }
}

impl<Q, F, DB> QueryFragment<DB> for Load<'_, Q, F, DB>
where
    Q: Entity + Selectable<DB>,
    DB: QueueBackend,
    Q::SelectExpression: QueryFragment<DB>,
    Q::KeyColumns: QueryFragment<DB>,
    <Q::Queue as QueueTable>::Table: QueryFragment<DB>,
    F: QueryFragment<DB>,
    i64: ToSql<BigInt, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        self.selection.walk_ast(out.reborrow())?;
        out.push_sql(", ");
        self.state.walk_ast(out.reborrow())?;
        out.push_sql(" FROM ");
        <Q::Queue as QueueTable>::TABLE.walk_ast(out.reborrow())?;
        self.condition.walk_ast(out.reborrow())?;
        out.push_sql(" ORDER BY ");
        Q::KEY_COLUMNS.walk_ast(out.reborrow())?;
        if let Some(limit) = &self.limit {
            out.push_sql(" LIMIT ");
            out.push_bind_param::<BigInt, _>(limit)?;
        }
        Ok(())
    }
}

impl<T, F> Query for Count<'_, T, F> {
    type SqlType = BigInt;
}

impl<T, F> Query for CountByStatus<'_, T, F> {
    type SqlType = (Text, BigInt);
}

impl<Q, F, DB> Query for Load<'_, Q, F, DB>
where
    Q: Entity + Selectable<DB>,
    DB: Backend,
    Q::SelectExpression: Expression,
{
    type SqlType = (SqlTypeOf<Q::SelectExpression>, SqlTypeOf<QueueStateColumns<Q::Queue>>);
}

impl<T, F> QueryId for Count<'_, T, F> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<T, F> QueryId for CountByStatus<'_, T, F> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<Q: Entity + Selectable<DB>, F, DB: Backend> QueryId for Load<'_, Q, F, DB> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<T, F, C> RunQueryDsl<C> for Count<'_, T, F> {}

impl<T, F, C> RunQueryDsl<C> for CountByStatus<'_, T, F> {}

impl<Q: Entity + Selectable<DB>, F, DB: Backend, C> RunQueryDsl<C> for Load<'_, Q, F, DB> {}
