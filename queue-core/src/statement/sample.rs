//! Reads some rows to show: the key and the state of each as they are, and the entity if it can be decoded.

use diesel::Selectable;
use diesel::backend::Backend;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::claim::Claim;
use super::condition::Condition;
use crate::backend::{QueueBackend, Statement};
use crate::entity::{Entity, SelectedIn};

/// Reads the first rows that a condition picks, in the order of the primary key.
pub struct Sample<'a, Q: Entity + Selectable<DB>, F, DB: Backend> {
    row: Claim<Q, DB>,
    condition: Condition<'a, Q::Queue, F>,
    limit: usize,
}

impl<'a, Q: Entity + Selectable<DB>, F, DB: QueueBackend> Sample<'a, Q, F, DB> {
    /// Reads at most `limit` rows.
    pub fn new(condition: Condition<'a, Q::Queue, F>, limit: usize) -> Self {
        Sample { row: Claim::new(), condition, limit }
    }
}

impl<Q: SelectedIn<DB>, F: QueryFragment<DB>, DB: QueueBackend> Statement<DB> for Sample<'_, Q, F, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.row.push_columns(out.reborrow())?;
        self.condition.push_from(out.reborrow())?;
        self.condition.walk_ast(out.reborrow())?;
        out.push_sql(" ORDER BY ");
        Q::KEY_COLUMNS.walk_ast(out.reborrow())?;
        out.push_sql(" LIMIT ");
        out.push_sql(&self.limit.to_string());
        Ok(())
    }
}
