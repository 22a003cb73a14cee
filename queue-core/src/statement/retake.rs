//! Locks and reads one row again by its key, in the state in which it was claimed.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::claim::Claim;
use super::condition::push_fence;
use super::writer::Writer;
use crate::backend::{QueueBackend, Statement};
use crate::entity::KeyedRow;
use crate::row::Fence;

/// Reads the row with one key, if it is still in the fence's state; it need not be due. It waits for another session
/// that holds the row.
pub struct Retake<DB: QueueBackend> {
    claim: Claim<DB>,
    row: KeyedRow<DB>,
    fence: Fence,
    judges: bool,
}

impl<DB: QueueBackend> Retake<DB> {
    /// Retakes the row with this key.
    pub fn new(claim: Claim<DB>, row: KeyedRow<DB>, fence: Fence) -> Self {
        Retake { claim, row, fence, judges: false }
    }

    /// Retakes it only if the condition of its claim still holds.
    pub fn if_condition_holds(self) -> Self {
        Retake { judges: true, ..self }
    }
}

impl<DB: QueueBackend> Statement<DB> for Retake<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.row.queue, out);
        self.claim.push_columns(&mut sql)?;
        sql.push_is_key(" FROM {table} WHERE ", &self.row.is_key)?;
        push_fence(&mut sql, &self.fence)?;
        if self.judges {
            self.claim.due.push_condition(&mut sql)?;
        }
        sql.push("{row_lock}")
    }
}
