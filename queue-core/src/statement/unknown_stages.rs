//! Finds stages that an entity does not know: rows in them are pending, and no worker claims them.

use std::marker::PhantomData;

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::names::{push_columns, push_names, push_table};
use super::scope::push_stage_in;
use crate::backend::{QueueBackend, Statement};
use crate::entity::{Entity, QueueTable, StoredIn};
use crate::error::refused;

/// Reads the stages of pending rows of `Q` that `Q` does not have: some of them, in order.
pub struct UnknownStages<Q>(PhantomData<fn() -> Q>);

impl<Q: Entity> UnknownStages<Q> {
    /// Makes the statement.
    #[expect(clippy::new_without_default, reason = "a statement has no default")]
    pub fn new() -> Self {
        UnknownStages(PhantomData)
    }
}

impl<Q: StoredIn<DB>, DB: QueueBackend> Statement<DB> for UnknownStages<Q> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let names = Q::Queue::COLUMNS;
        let Some(stages) = Q::Queue::OPTIONS.stages else {
            return Err(refused("an entity without stages has no unknown stages".to_owned()));
        };
        push_names(&mut out, "SELECT DISTINCT {}", &[stages.column])?;
        push_table::<Q::Queue, DB>(&mut out, " FROM ")?;
        push_columns::<Q::Queue, DB>(&mut out, " WHERE {} IS NOT NULL AND ", &[names.next_attempt_time])?;
        push_stage_in::<Q::Queue, DB>(&mut out, stages, " NOT IN (", stages.names)?;
        out.push_sql(" ORDER BY 1 LIMIT 5");
        Ok(())
    }
}
