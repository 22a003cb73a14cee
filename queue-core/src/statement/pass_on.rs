//! The step from one message of a group to the next in one round trip: it releases the sentinel, settles, and sets the
//! sentinel anew.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::change::Change;
use super::finish_block::push_settings_check;
use super::settle::Settle;
use crate::backend::{QueueBackend, Statement};
use crate::entity::{Entity, StoredIn};
use crate::row::Fence;

/// The compound statement. MariaDB supports it, and prepares it once and for all.
pub struct PassOn<'a, Q: Entity> {
    settle: Settle<'a, Q>,
}

impl<'a, Q: Entity> PassOn<'a, Q> {
    /// The text in the error of a settlement that has not changed exactly one row.
    pub const NOT_ONE_ROW: &'static str = "queueable: not one row was changed";

    /// Settles the row with this key if it is still in the fence's state, between two savepoints.
    pub fn new(key: &Q::Key, fence: Fence, change: &'a Change) -> Self {
        PassOn { settle: Settle::new(key, fence, change) }
    }
}

impl<Q: StoredIn<DB>, DB: QueueBackend> Statement<DB> for PassOn<'_, Q> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("BEGIN NOT ATOMIC ");
        push_settings_check(&mut out);
        out.push_sql("RELEASE SAVEPOINT queueable_handler; ");
        self.settle.walk_ast(out.reborrow())?;
        out.push_sql("; IF ROW_COUNT() <> 1 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '");
        out.push_sql(Self::NOT_ONE_ROW);
        out.push_sql("'; END IF; SAVEPOINT queueable_handler; END");
        Ok(())
    }
}
