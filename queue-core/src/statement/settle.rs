//! Writes the result of a row: `UPDATE .. WHERE key AND status AND try_count`, and the same for many rows by a filter.

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::change::Change;
use super::condition::{Condition, StateCondition, push_fence, push_same_content};
use super::limit::{keep_if_few, padded};
use super::names::push_table;
use super::walk::push_index_hint;
use crate::backend::{QueueBackend, Statement};
use crate::entity::{Entity, StoredIn, TableIn};
use crate::row::Fence;

/// Changes one row, fenced.
pub struct Settle<'a, Q: Entity> {
    is_key: Q::IsKey,
    fence: Fence,
    change: &'a Change,
    if_due: bool,
}

impl<'a, Q: Entity> Settle<'a, Q> {
    /// Changes the row with this key if it is still in the fence's state.
    pub fn new(key: &Q::Key, fence: Fence, change: &'a Change) -> Self {
        Settle { is_key: Q::is_key(key.clone()), fence, change, if_due: false }
    }

    /// Changes the row only if it is due, as it was when it was claimed.
    pub fn if_due(self) -> Self {
        Settle { if_due: true, ..self }
    }
}

impl<Q: StoredIn<DB>, DB: QueueBackend> Statement<DB> for Settle<'_, Q> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_table::<Q::Queue, DB>(&mut out, "UPDATE ")?;
        self.change.push_set::<Q::Queue, DB>(out.reborrow())?;
        out.push_sql(" WHERE ");
        self.is_key.walk_ast(out.reborrow())?;
        push_fence::<Q::Queue, DB>(&self.fence, out.reborrow())?;
        if self.change.of_content {
            push_same_content::<Q::Queue, DB>(&self.fence, out.reborrow())?;
        }
        if self.if_due {
            out.push_sql(" AND ");
            StateCondition::Due.push::<Q::Queue, DB>(&mut out)?;
        }
        Ok(())
    }
}

/// Changes several rows at once, fenced.
pub struct SettleMany<'a, Q: Entity> {
    rows: Vec<(Q::IsKey, Fence)>,
    change: &'a Change,
}

impl<'a, Q: Entity> SettleMany<'a, Q> {
    /// Changes those of the rows that are still in their fence's state. There must be at least one.
    pub fn new<'k>(rows: impl IntoIterator<Item = (&'k Q::Key, Fence)>, change: &'a Change) -> Self
    where
        Q::Key: 'k,
    {
        let rows = padded(rows.into_iter().collect());
        let mut fenced = Vec::with_capacity(rows.len());
        for (key, fence) in rows {
            fenced.push((Q::is_key(key.clone()), fence));
        }
        SettleMany { rows: fenced, change }
    }
}

impl<Q: StoredIn<DB>, DB: QueueBackend> Statement<DB> for SettleMany<'_, Q> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_table::<Q::Queue, DB>(&mut out, "UPDATE ")?;
        self.change.push_set::<Q::Queue, DB>(out.reborrow())?;
        keep_if_few(&mut out, self.rows.len());
        let mut separator = " WHERE (";
        for (is_key, fence) in &self.rows {
            out.push_sql(std::mem::replace(&mut separator, ") OR ("));
            is_key.walk_ast(out.reborrow())?;
            push_fence::<Q::Queue, DB>(fence, out.reborrow())?;
            if self.change.of_content {
                push_same_content::<Q::Queue, DB>(fence, out.reborrow())?;
            }
        }
        out.push_sql(")");
        Ok(())
    }
}

/// Changes all rows that a condition picks.
pub struct ChangeAll<'a, T, F> {
    condition: Condition<'a, T, F>,
    change: &'a Change,
    keep_off_index: bool,
}

impl<'a, T, F> ChangeAll<'a, T, F> {
    /// Changes the rows. With `keep_off_index` the statement avoids the queue's index. That is right in a transaction
    /// of its own at READ COMMITTED; at REPEATABLE READ it would lock the whole table without the index.
    pub fn new(condition: Condition<'a, T, F>, change: &'a Change, keep_off_index: bool) -> Self {
        ChangeAll { condition, change, keep_off_index }
    }
}

impl<T: TableIn<DB>, F: QueryFragment<DB>, DB: QueueBackend> Statement<DB> for ChangeAll<'_, T, F> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_table::<T, DB>(&mut out, "UPDATE ")?;
        push_index_hint::<T, DB>(&mut out, DB::IGNORE_INDEX.filter(|_| self.keep_off_index))?;
        self.change.push_set::<T, DB>(out.reborrow())?;
        self.condition.walk_ast(out)
    }
}
