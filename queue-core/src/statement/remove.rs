//! Removes rows: a claimed one, fenced, or all that a condition picks.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::condition::{Condition, StateCondition, push_fence, push_same_content};
use super::names::push_table;
use crate::backend::{QueueBackend, Statement};
use crate::entity::KeyedRow;
use crate::row::Fence;

/// Removes one row, fenced.
pub struct Remove<DB: QueueBackend> {
    row: KeyedRow<DB>,
    fence: Fence,
    if_due: bool,
}

impl<DB: QueueBackend> Remove<DB> {
    /// Removes the row with this key if it is still in the fence's state, with the content that it had at the claim.
    pub fn new(row: KeyedRow<DB>, fence: Fence) -> Self {
        Remove { row, fence, if_due: false }
    }

    /// Removes the row only if it is due, as it was when it was claimed.
    pub fn if_due(self) -> Self {
        Remove { if_due: true, ..self }
    }
}

impl<DB: QueueBackend> Statement<DB> for Remove<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.row.queue;
        push_table(queue, &mut out, "DELETE FROM ")?;
        out.push_sql(" WHERE ");
        self.row.is_key.walk_ast(out.reborrow())?;
        push_fence(queue, &self.fence, out.reborrow())?;
        push_same_content(queue, &self.fence, out.reborrow())?;
        if self.if_due {
            out.push_sql(" AND ");
            StateCondition::Due.push(queue, &mut out)?;
        }
        Ok(())
    }
}

/// Removes all rows that a condition picks.
pub struct RemoveAll<'a, DB: QueueBackend>(pub Condition<'a, DB>);

impl<DB: QueueBackend> Statement<DB> for RemoveAll<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_table(self.0.queue, &mut out, "DELETE FROM ")?;
        self.0.walk_ast(out)
    }
}
