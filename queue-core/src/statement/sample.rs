//! Reads some rows to show: the key and the state of each as they are, and the entity if it can be decoded.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::claim::Claim;
use super::condition::Condition;
use super::writer::Writer;
use crate::backend::{QueueBackend, Statement};

/// Reads the first rows that a condition picks, in the order of the primary key.
pub struct Sample<'a, DB: QueueBackend> {
    /// What is read of each row.
    pub row: Claim<DB>,
    /// The condition.
    pub condition: Condition<'a, DB>,
    /// The largest number of rows.
    pub limit: usize,
}

impl<DB: QueueBackend> Statement<DB> for Sample<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.condition.queue, out);
        self.row.push_columns(&mut sql)?;
        self.condition.push_from(&mut sql)?;
        self.condition.push(&mut sql)?;
        sql.push(&format!(" ORDER BY {{key}} LIMIT {}", self.limit))
    }
}
