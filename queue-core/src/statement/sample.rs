//! Reads some rows to show: the key and the state of each as they are, and the entity if it can be decoded.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::claim::Claim;
use super::condition::Condition;
use crate::backend::{QueueBackend, Statement};

/// Reads the first rows that a condition picks, in the order of the primary key.
pub struct Sample<'a, DB: QueueBackend> {
    row: Claim<DB>,
    condition: Condition<'a, DB>,
    limit: usize,
}

impl<'a, DB: QueueBackend> Sample<'a, DB> {
    /// Reads at most `limit` rows.
    pub fn new(row: Claim<DB>, condition: Condition<'a, DB>, limit: usize) -> Self {
        Sample { row, condition, limit }
    }
}

impl<DB: QueueBackend> Statement<DB> for Sample<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.condition.queue;
        self.row.push_columns(out.reborrow())?;
        self.condition.push_from(out.reborrow())?;
        self.condition.walk_ast(out.reborrow())?;
        out.push_sql(" ORDER BY ");
        queue.key_columns.walk_ast(out.reborrow())?;
        out.push_sql(" LIMIT ");
        out.push_sql(&self.limit.to_string());
        Ok(())
    }
}
