//! Sets the priority of the rows that a condition picks.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::condition::Condition;
use super::names::{push_names, push_table, push_updated};
use super::walk::{push_index_hint, push_ordered_index_hint};
use crate::backend::{QueueBackend, Statement};
use crate::error::refused;

/// Changes the priority of many rows, and nothing else: an attempt's fence does not contain it.
pub struct SetPriority<'a, DB: QueueBackend> {
    condition: Condition<'a, DB>,
    priority: i32,
    keep_off_index: bool,
}

impl<'a, DB: QueueBackend> SetPriority<'a, DB> {
    /// Sets the priority. `keep_off_index` works as for [`ChangeAll`](super::settle::ChangeAll).
    pub fn new(condition: Condition<'a, DB>, priority: i32, keep_off_index: bool) -> Self {
        SetPriority { condition, priority, keep_off_index }
    }
}

impl<DB: QueueBackend> Statement<DB> for SetPriority<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.condition.queue;
        let Some(column) = queue.options.priority else {
            return Err(refused("the queue has no priority: add #[queue(priority)] to the entity".to_owned()));
        };
        push_table(queue, &mut out, "UPDATE ")?;
        let ignore = DB::IGNORE_INDEX.filter(|_| self.keep_off_index);
        push_index_hint(queue, &mut out, ignore)?;
        push_ordered_index_hint(queue, &mut out, ignore)?;
        push_names(&mut out, " SET {} = ", &[column])?;
        DB::bind_integer(&mut out, &self.priority)?;
        push_updated(queue, &mut out, ", ", "")?;
        self.condition.walk_ast(out)
    }
}
