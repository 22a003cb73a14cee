//! Finds stages that an entity does not know: rows in them are pending, and no worker claims them.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::names::{push_columns, push_names, push_table};
use super::scope::push_stage_in;
use crate::backend::{QueueBackend, Statement};
use crate::entity::QueueSql;
use crate::error::refused;

/// Reads the stages of pending rows that the entity does not have: some of them, in order.
pub struct UnknownStages<DB: QueueBackend> {
    queue: &'static QueueSql<DB>,
}

impl<DB: QueueBackend> UnknownStages<DB> {
    /// Makes the statement.
    pub fn new(queue: &'static QueueSql<DB>) -> Self {
        UnknownStages { queue }
    }
}

impl<DB: QueueBackend> Statement<DB> for UnknownStages<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.queue;
        let names = queue.names;
        let Some(stages) = queue.options.stages else {
            return Err(refused("an entity without stages has no unknown stages".to_owned()));
        };
        push_names(&mut out, "SELECT DISTINCT {}", &[stages.column])?;
        push_table(queue, &mut out, " FROM ")?;
        push_columns(queue, &mut out, " WHERE {} IS NOT NULL AND ", &[names.next_attempt_time])?;
        push_stage_in(queue, &mut out, stages, " NOT IN (", stages.names)?;
        out.push_sql(" ORDER BY 1 LIMIT 5");
        Ok(())
    }
}
