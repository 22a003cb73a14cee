//! The step from one message of a group to the next in one round trip: it releases the sentinel, settles, and sets the
//! sentinel anew.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::change::Change;
use super::finish_block::push_settings_check;
use super::settle::Settle;
use crate::backend::{QueueBackend, Statement};
use crate::entity::KeyedRow;
use crate::row::Fence;

/// The text in the error of a settlement that has not changed exactly one row.
pub(crate) const PASSED_NOT_ONE: &str = "queueable: not one row was changed";

/// The compound statement. MariaDB supports it, and prepares it once and for all.
pub struct PassOn<'a, DB: QueueBackend> {
    settle: Settle<'a, DB>,
}

impl<'a, DB: QueueBackend> PassOn<'a, DB> {
    /// Settles the row with this key if it is still in the fence's state, between two savepoints.
    pub fn new(row: KeyedRow<DB>, fence: Fence, change: &'a Change) -> Self {
        PassOn { settle: Settle::new(row, fence, change) }
    }
}

impl<DB: QueueBackend> Statement<DB> for PassOn<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("BEGIN NOT ATOMIC ");
        push_settings_check(&mut out);
        out.push_sql("RELEASE SAVEPOINT queueable_handler; ");
        self.settle.walk_ast(out.reborrow())?;
        out.push_sql("; IF ROW_COUNT() <> 1 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '");
        out.push_sql(PASSED_NOT_ONE);
        out.push_sql("'; END IF; SAVEPOINT queueable_handler; END");
        Ok(())
    }
}
