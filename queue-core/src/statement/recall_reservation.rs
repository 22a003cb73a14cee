//! Reads back the text that a group has written on its rows: it shows whether the group's transaction was committed
//! after all.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::names::{push_columns, push_table};
use crate::backend::{QueueBackend, Statement};
use crate::entity::KeyedRow;

/// Reads the text of the last failure of the row with one key, which may be a group's reservation.
pub struct RecallReservation<DB: QueueBackend> {
    row: KeyedRow<DB>,
}

impl<DB: QueueBackend> RecallReservation<DB> {
    /// Recalls the reservation of the row with this key.
    pub fn new(row: KeyedRow<DB>) -> Self {
        RecallReservation { row }
    }
}

impl<DB: QueueBackend> Statement<DB> for RecallReservation<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.row.queue;
        push_columns(queue, &mut out, "SELECT {}", &[queue.names.last_attempt_error_message])?;
        push_table(queue, &mut out, " FROM ")?;
        out.push_sql(" WHERE ");
        self.row.is_key.walk_ast(out.reborrow())?;
        out.push_sql(DB::ROW_LOCK);
        Ok(())
    }
}
