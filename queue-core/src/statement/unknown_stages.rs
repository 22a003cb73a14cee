//! Finds stages that an entity does not know: rows in them are pending, and no worker claims them.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::due::push_stage_in;
use super::writer::Writer;
use crate::backend::{QueueBackend, Statement};
use crate::entity::QueueSql;
use crate::error::refused;

/// Reads the stages of pending rows that the entity does not have: some of them, in order.
pub struct UnknownStages<DB: QueueBackend>(pub &'static QueueSql<DB>);

impl<DB: QueueBackend> Statement<DB> for UnknownStages<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.0, out);
        let Some(stages) = sql.queue.options.stages else {
            return Err(refused("an entity without stages has no unknown stages".to_owned()));
        };
        sql.push_with("SELECT DISTINCT {} FROM {table} WHERE {.next_attempt_time} IS NOT NULL AND ", &[stages.column])?;
        push_stage_in(&mut sql, stages, " NOT IN (", stages.names)?;
        sql.push(" ORDER BY 1 LIMIT 5")
    }
}
