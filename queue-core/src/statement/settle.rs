//! Writes the result of a row: `UPDATE .. WHERE key AND status AND try_count`, and the same for many rows by a filter.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::change::Change;
use super::condition::{Condition, StateCondition, push_fence, push_same_content};
use super::limit::{keep_if_few, padded};
use super::names::push_table;
use super::walk::push_index_hint;
use crate::backend::{QueueBackend, Statement};
use crate::entity::{IsKey, KeyedRow, QueueSql};
use crate::row::Fence;

/// Changes one row, fenced.
pub struct Settle<'a, DB: QueueBackend> {
    row: KeyedRow<DB>,
    fence: Fence,
    change: &'a Change,
    if_due: bool,
}

impl<'a, DB: QueueBackend> Settle<'a, DB> {
    /// Changes the row with this key if it is still in the fence's state.
    pub fn new(row: KeyedRow<DB>, fence: Fence, change: &'a Change) -> Self {
        Settle { row, fence, change, if_due: false }
    }

    /// Changes the row only if it is due, as it was when it was claimed.
    pub fn if_due(self) -> Self {
        Settle { if_due: true, ..self }
    }
}

impl<DB: QueueBackend> Statement<DB> for Settle<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.row.queue;
        push_table(queue, &mut out, "UPDATE ")?;
        self.change.push_set(queue, out.reborrow())?;
        out.push_sql(" WHERE ");
        self.row.is_key.walk_ast(out.reborrow())?;
        push_fence(queue, &self.fence, out.reborrow())?;
        if self.change.of_content {
            push_same_content(queue, &self.fence, out.reborrow())?;
        }
        if self.if_due {
            out.push_sql(" AND ");
            StateCondition::Due.push(queue, &mut out)?;
        }
        Ok(())
    }
}

/// Changes several rows at once, fenced.
pub struct SettleMany<'a, DB: QueueBackend> {
    queue: &'static QueueSql<DB>,
    rows: Vec<(IsKey<DB>, Fence)>,
    change: &'a Change,
}

impl<'a, DB: QueueBackend> SettleMany<'a, DB> {
    /// Changes those of the rows that are still in their fence's state. There must be at least one.
    pub fn new(queue: &'static QueueSql<DB>, rows: &[(IsKey<DB>, Fence)], change: &'a Change) -> Self {
        SettleMany { queue, rows: padded(rows.to_vec()), change }
    }
}

impl<DB: QueueBackend> Statement<DB> for SettleMany<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.queue;
        push_table(queue, &mut out, "UPDATE ")?;
        self.change.push_set(queue, out.reborrow())?;
        keep_if_few(&mut out, self.rows.len());
        let mut separator = " WHERE (";
        for (is_key, fence) in &self.rows {
            out.push_sql(std::mem::replace(&mut separator, ") OR ("));
            is_key.walk_ast(out.reborrow())?;
            push_fence(queue, fence, out.reborrow())?;
            if self.change.of_content {
                push_same_content(queue, fence, out.reborrow())?;
            }
        }
        out.push_sql(")");
        Ok(())
    }
}

/// Changes all rows that a condition picks.
pub struct ChangeAll<'a, DB: QueueBackend> {
    condition: Condition<'a, DB>,
    change: &'a Change,
    keep_off_index: bool,
}

impl<'a, DB: QueueBackend> ChangeAll<'a, DB> {
    /// Changes the rows. With `keep_off_index` the statement avoids the queue's index. That is right in a transaction
    /// of its own at READ COMMITTED; at REPEATABLE READ it would lock the whole table without the index.
    pub fn new(condition: Condition<'a, DB>, change: &'a Change, keep_off_index: bool) -> Self {
        ChangeAll { condition, change, keep_off_index }
    }
}

impl<DB: QueueBackend> Statement<DB> for ChangeAll<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.condition.queue;
        push_table(queue, &mut out, "UPDATE ")?;
        push_index_hint(queue, &mut out, DB::IGNORE_INDEX.filter(|_| self.keep_off_index))?;
        self.change.push_set(queue, out.reborrow())?;
        self.condition.walk_ast(out)
    }
}
