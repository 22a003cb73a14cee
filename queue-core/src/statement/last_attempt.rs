//! Reads when the last attempt of a row ended: it shows whose attempt that was if a COMMIT's answer was lost.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::names::{push_columns, push_table};
use crate::backend::{QueueBackend, Statement};
use crate::entity::KeyedRow;

/// Reads the time of the last attempt of the row with one key.
pub struct LastAttempt<DB: QueueBackend> {
    row: KeyedRow<DB>,
}

impl<DB: QueueBackend> LastAttempt<DB> {
    /// Reads the time for the row with this key.
    pub fn new(row: KeyedRow<DB>) -> Self {
        LastAttempt { row }
    }
}

impl<DB: QueueBackend> Statement<DB> for LastAttempt<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.row.queue;
        push_columns(queue, &mut out, "SELECT {}", &[queue.names.last_attempt_time])?;
        push_table(queue, &mut out, " FROM ")?;
        out.push_sql(" WHERE ");
        self.row.is_key.walk_ast(out.reborrow())?;
        out.push_sql(DB::ROW_LOCK);
        Ok(())
    }
}
