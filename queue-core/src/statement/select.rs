//! Reads rows for an operation: how many, how many of each status, or the rows themselves.

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::condition::Condition;
use super::names::{push_column, push_columns, push_table};
use crate::backend::{QueueBackend, Statement};
use crate::entity::{SelectedIn, queue_state};

/// Counts the rows that a condition picks.
pub struct Count<'a, DB: QueueBackend>(pub Condition<'a, DB>);

/// Counts the rows of each status that a condition picks.
pub struct CountByStatus<'a, DB: QueueBackend>(pub Condition<'a, DB>);

/// Loads the rows that a condition picks, each with its queue state, ordered by primary key.
pub struct Load<'a, DB: QueueBackend> {
    selection: Box<dyn QueryFragment<DB>>,
    state: Box<dyn QueryFragment<DB>>,
    condition: Condition<'a, DB>,
    limit: Option<i64>,
}

impl<'a, DB: QueueBackend> Load<'a, DB> {
    /// Loads the rows, at most `limit` of them.
    pub fn new<Q: SelectedIn<DB>>(condition: Condition<'a, DB>, limit: Option<i64>) -> Self {
        Load { selection: Q::selection(), state: Box::new(queue_state::<Q::Queue>()), condition, limit }
    }
}

impl<DB: QueueBackend> Statement<DB> for Count<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT COUNT(*)");
        self.0.push_from(out.reborrow())?;
        self.0.walk_ast(out)
    }
}

impl<DB: QueueBackend> Statement<DB> for CountByStatus<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.0.queue;
        push_columns(queue, &mut out, "SELECT {}", &[queue.names.status])?;
        push_table(queue, &mut out, ", COUNT(*) FROM ")?;
        self.0.walk_ast(out.reborrow())?;
        out.push_sql(" GROUP BY ");
        push_column(queue, &mut out, queue.names.status)
    }
}

impl<DB: QueueBackend> Statement<DB> for Load<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.condition.queue;
        out.push_sql("SELECT ");
        self.selection.walk_ast(out.reborrow())?;
        out.push_sql(", ");
        self.state.walk_ast(out.reborrow())?;
        push_table(queue, &mut out, " FROM ")?;
        self.condition.walk_ast(out.reborrow())?;
        out.push_sql(" ORDER BY ");
        queue.key_columns.walk_ast(out.reborrow())?;
        if let Some(limit) = &self.limit {
            out.push_sql(" LIMIT ");
            DB::bind_big_integer(&mut out, limit)?;
        }
        Ok(())
    }
}
