//! Writes the result of a row: `UPDATE .. WHERE key AND status AND try_count`, and the same for many rows by a filter.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::change::Change;
use super::condition::{Condition, push_fence, push_same_content};
use super::limit::{keep_if_few, padded};
use super::walk::{push_hint, push_index_hint};
use super::writer::Writer;
use crate::backend::{QueueBackend, Statement, ordered_index_of};
use crate::entity::{IsKey, KeyedRow, QueueSql};
use crate::error::refused;
use crate::row::Fence;

/// Changes or removes rows, fenced.
pub struct Settle<'a, DB: QueueBackend> {
    pub(crate) queue: &'static QueueSql<DB>,
    rows: Vec<(IsKey<DB>, Fence)>,
    change: Option<&'a Change>,
    if_due: bool,
}

impl<'a, DB: QueueBackend> Settle<'a, DB> {
    /// Changes the row with this key if it is still in the fence's state.
    pub fn new(row: KeyedRow<DB>, fence: Fence, change: &'a Change) -> Self {
        Settle { change: Some(change), ..Settle::remove(row, fence) }
    }

    /// Changes those of the rows that are still in their fence's state. There must be at least one.
    pub fn many(queue: &'static QueueSql<DB>, rows: &[(IsKey<DB>, Fence)], change: &'a Change) -> Self {
        Settle { queue, rows: padded(rows.to_vec()), change: Some(change), if_due: false }
    }

    /// Removes the row with this key if it is still in the fence's state, with the content that it had at the claim.
    pub fn remove(row: KeyedRow<DB>, fence: Fence) -> Self {
        Settle { queue: row.queue, rows: vec![(row.is_key, fence)], change: None, if_due: false }
    }

    /// Settles one row only if it is due, as it was when it was claimed.
    pub fn if_due(self, if_due: bool) -> Self {
        Settle { if_due, ..self }
    }
}

impl<DB: QueueBackend> Statement<DB> for Settle<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.queue, out);
        match self.change {
            Some(change) => {
                sql.push("UPDATE {table}")?;
                change.push_set(&mut sql)?;
            }
            None => sql.push("DELETE FROM {table}")?,
        }
        keep_if_few(&mut sql.out, self.rows.len());
        let (before, after) = if self.rows.len() == 1 { (" WHERE ", "") } else { (" WHERE (", ")") };
        sql.push(before)?;
        sql.each(&self.rows, ") OR (", |sql, (is_key, fence)| {
            sql.push_is_key("", is_key)?;
            push_fence(sql, fence)?;
            let of_content = self.change.is_none_or(|change| change.of_content);
            if of_content { push_same_content(sql, fence) } else { Ok(()) }
        })?;
        sql.push(after)?;
        sql.push(if self.if_due { " AND {.next_attempt_time} <= {statement_time}" } else { "" })
    }
}

/// Changes all rows that a condition picks.
pub struct ChangeAll<'a, DB: QueueBackend> {
    /// The condition.
    pub condition: Condition<'a, DB>,
    /// The change.
    pub change: &'a Change,
    /// Whether the statement avoids the queue's index. That is right in a transaction of its own at READ COMMITTED; at
    /// REPEATABLE READ it would lock the whole table without the index.
    pub keep_off_index: bool,
}

impl<DB: QueueBackend> Statement<DB> for ChangeAll<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.condition.queue, out);
        sql.push("UPDATE {table}")?;
        push_index_hint(&mut sql, DB::IGNORE_INDEX.filter(|_| self.keep_off_index))?;
        self.change.push_set(&mut sql)?;
        self.condition.push(&mut sql)
    }
}

/// Removes all rows that a condition picks, from the queue's table or from an archive.
pub struct RemoveAll<'a, DB: QueueBackend>(pub Condition<'a, DB>);

impl<DB: QueueBackend> Statement<DB> for RemoveAll<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.0.queue, out);
        sql.push("DELETE")?;
        if let Some(archive) = self.0.archive.filter(|_| DB::DELETE_NAMES_ALIAS) {
            sql.push_with(" {}", &[&archive.alias])?;
        }
        self.0.push_from(&mut sql)?;
        self.0.push(&mut sql)
    }
}

/// Changes the priority of many rows, and nothing else: an attempt's fence does not contain it.
pub struct SetPriority<'a, DB: QueueBackend> {
    /// The condition.
    pub condition: Condition<'a, DB>,
    /// The priority.
    pub priority: i32,
    /// As for [`ChangeAll`].
    pub keep_off_index: bool,
}

impl<DB: QueueBackend> Statement<DB> for SetPriority<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.condition.queue, out);
        let Some(column) = sql.queue.options.priority else {
            return Err(refused("the queue has no priority: add #[queue(priority)] to the entity".to_owned()));
        };
        sql.push("UPDATE {table}")?;
        let ignore = DB::IGNORE_INDEX.filter(|_| self.keep_off_index);
        push_index_hint(&mut sql, ignore)?;
        push_hint(&mut sql, ignore, ordered_index_of)?;
        sql.push_with(" SET {} = ", &[column])?;
        DB::bind_integer(&mut sql.out, &self.priority)?;
        sql.push_updated()?;
        self.condition.push(&mut sql)
    }
}
