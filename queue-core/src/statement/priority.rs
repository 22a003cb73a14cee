//! Sets the priority of the rows that a condition picks.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::condition::Condition;
use super::walk::{push_hint, push_index_hint};
use super::writer::Writer;
use crate::backend::{QueueBackend, Statement, ordered_index_of};
use crate::error::refused;

/// Changes the priority of many rows, and nothing else: an attempt's fence does not contain it.
pub struct SetPriority<'a, DB: QueueBackend> {
    /// The condition.
    pub condition: Condition<'a, DB>,
    /// The priority.
    pub priority: i32,
    /// As for [`ChangeAll`](super::settle::ChangeAll).
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
        sql.push_updated(", ", "")?;
        self.condition.push(&mut sql)
    }
}
