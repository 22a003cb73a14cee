//! Removes rows: a claimed one, fenced, or all that a condition picks.

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::condition::{Condition, StateCondition, push_fence, push_same_content};
use super::names::push_table;
use crate::backend::{QueueBackend, Statement};
use crate::entity::{Entity, StoredIn, TableIn};
use crate::row::Fence;

/// Removes one row, fenced.
pub struct Remove<Q: Entity> {
    is_key: Q::IsKey,
    fence: Fence,
    if_due: bool,
}

impl<Q: Entity> Remove<Q> {
    /// Removes the row with this key if it is still in the fence's state, with the content that it had at the claim.
    pub fn new(key: &Q::Key, fence: Fence) -> Self {
        Remove { is_key: Q::is_key(key.clone()), fence, if_due: false }
    }

    /// Removes the row only if it is due, as it was when it was claimed.
    pub fn if_due(self) -> Self {
        Remove { if_due: true, ..self }
    }
}

impl<Q: StoredIn<DB>, DB: QueueBackend> Statement<DB> for Remove<Q> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_table::<Q::Queue, DB>(&mut out, "DELETE FROM ")?;
        out.push_sql(" WHERE ");
        self.is_key.walk_ast(out.reborrow())?;
        push_fence::<Q::Queue, DB>(&self.fence, out.reborrow())?;
        push_same_content::<Q::Queue, DB>(&self.fence, out.reborrow())?;
        if self.if_due {
            out.push_sql(" AND ");
            StateCondition::Due.push::<Q::Queue, DB>(&mut out)?;
        }
        Ok(())
    }
}

/// Removes all rows that a condition picks.
pub struct RemoveAll<'a, T, F>(pub Condition<'a, T, F>);

impl<T: TableIn<DB>, F: QueryFragment<DB>, DB: QueueBackend> Statement<DB> for RemoveAll<'_, T, F> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_table::<T, DB>(&mut out, "DELETE FROM ")?;
        self.0.walk_ast(out)
    }
}
