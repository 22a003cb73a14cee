//! Reads rows for an operation: how many, how many of each status, or the rows themselves.

use diesel::Selectable;
use diesel::backend::Backend;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::condition::Condition;
use super::names::{push_column, push_columns, push_table};
use crate::backend::{QueueBackend, Statement};
use crate::entity::{Entity, QueueStateColumns, SelectedIn, TableIn, queue_state};

/// Counts the rows that a condition picks.
pub struct Count<'a, T, F>(pub Condition<'a, T, F>);

/// Counts the rows of each status that a condition picks.
pub struct CountByStatus<'a, T, F>(pub Condition<'a, T, F>);

/// Loads the rows that a condition picks, each with its queue state, ordered by primary key.
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

impl<T: TableIn<DB>, F: QueryFragment<DB>, DB: QueueBackend> Statement<DB> for Count<'_, T, F> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT COUNT(*)");
        self.0.push_from(out.reborrow())?;
        self.0.walk_ast(out)
    }
}

impl<T: TableIn<DB>, F: QueryFragment<DB>, DB: QueueBackend> Statement<DB> for CountByStatus<'_, T, F> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_columns::<T, DB>(&mut out, "SELECT {}", &[T::COLUMNS.status])?;
        push_table::<T, DB>(&mut out, ", COUNT(*) FROM ")?;
        self.0.walk_ast(out.reborrow())?;
        out.push_sql(" GROUP BY ");
        push_column::<T, DB>(&mut out, T::COLUMNS.status)
    }
}

impl<Q: SelectedIn<DB>, F: QueryFragment<DB>, DB: QueueBackend> Statement<DB> for Load<'_, Q, F, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        Q::push_selection(&self.selection, out.reborrow())?;
        out.push_sql(", ");
        self.state.walk_ast(out.reborrow())?;
        push_table::<Q::Queue, DB>(&mut out, " FROM ")?;
        self.condition.walk_ast(out.reborrow())?;
        out.push_sql(" ORDER BY ");
        Q::KEY_COLUMNS.walk_ast(out.reborrow())?;
        if let Some(limit) = &self.limit {
            out.push_sql(" LIMIT ");
            DB::bind_big_integer(&mut out, limit)?;
        }
        Ok(())
    }
}
