//! Reads a row again, under its lock: some columns, which show what happened if a COMMIT's answer was lost, or all of it,
//! in the state in which it was claimed.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::claim::Claim;
use super::condition::push_fence;
use super::writer::Writer;
use crate::backend::{QueueBackend, Statement};
use crate::entity::KeyedRow;
use crate::row::Fence;

/// Reads columns of the row with one key.
pub struct Recall<DB: QueueBackend> {
    row: KeyedRow<DB>,
    columns: &'static str,
    waits: bool,
    state: Option<Fence>,
}

impl<DB: QueueBackend> Recall<DB> {
    /// Reads the status and the try count.
    pub fn new(row: KeyedRow<DB>) -> Self {
        Recall { row, columns: "{.status}, {.try_count}", waits: true, state: None }
    }

    /// Reads the time of the last attempt, which shows whose attempt that was.
    pub fn last_attempt(row: KeyedRow<DB>) -> Self {
        Recall { columns: "{.last_attempt_time}", ..Recall::new(row) }
    }

    /// Reads the text of the last failure, which may be a group's reservation: it shows whether the group's transaction
    /// was committed after all.
    pub fn reservation(row: KeyedRow<DB>) -> Self {
        Recall { columns: "{.last_attempt_error_message}", ..Recall::new(row) }
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
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.row.queue, out);
        sql.push("SELECT ")?;
        sql.push(self.columns)?;
        sql.push_is_key(" FROM {table} WHERE ", &self.row.is_key)?;
        if let Some(state) = &self.state {
            push_fence(&mut sql, state)?;
        }
        sql.push(if self.waits { "{row_lock}" } else { "{claim_lock}" })
    }
}

/// Reads the row with one key, if it is still in the fence's state; it need not be due. It waits for another session
/// that holds the row.
pub struct Retake<DB: QueueBackend> {
    /// What is read of the row.
    pub claim: Claim<DB>,
    /// The row.
    pub row: KeyedRow<DB>,
    /// Its state.
    pub fence: Fence,
    /// Whether the condition of its claim must still hold.
    pub judges: bool,
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
