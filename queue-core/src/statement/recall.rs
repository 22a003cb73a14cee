//! Reads a row's state again, under its lock: it shows what happened if a COMMIT's answer was lost.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::condition::push_fence;
use super::names::{push_columns, push_table};
use crate::backend::{QueueBackend, Statement};
use crate::entity::KeyedRow;
use crate::row::Fence;

/// Reads the status and the try count of the row with one key.
pub struct Recall<DB: QueueBackend> {
    row: KeyedRow<DB>,
    waits: bool,
    state: Option<Fence>,
}

impl<DB: QueueBackend> Recall<DB> {
    /// Recalls the row with this key.
    pub fn new(row: KeyedRow<DB>) -> Self {
        Recall { row, waits: true, state: None }
    }

    /// Finds only a row in this state.
    pub fn in_state(self, state: Fence) -> Self {
        Recall { state: Some(state), ..self }
    }

    /// Finds no row if another session holds its lock, instead of waiting.
    pub fn unless_locked(self) -> Self {
        Recall { waits: false, ..self }
    }
}

impl<DB: QueueBackend> Statement<DB> for Recall<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.row.queue;
        let names = queue.names;
        push_columns(queue, &mut out, "SELECT {}, {}", &[names.status, names.try_count])?;
        push_table(queue, &mut out, " FROM ")?;
        out.push_sql(" WHERE ");
        self.row.is_key.walk_ast(out.reborrow())?;
        if let Some(state) = &self.state {
            push_fence(queue, state, out.reborrow())?;
        }
        out.push_sql(if self.waits { DB::ROW_LOCK } else { DB::CLAIM_LOCK });
        Ok(())
    }
}

/// Returns the state that was read, if it is a known one.
pub(crate) fn state((status, try_count): (String, i32)) -> Option<Fence> {
    Some(Fence::new(status.parse().ok()?, try_count))
}
