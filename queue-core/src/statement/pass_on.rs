//! The step from one message of a group to the next in one round trip: it releases the sentinel, settles, and sets the
//! sentinel anew.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::finish_block::{push_settings_check, push_unless_one_row};
use super::settle::Settle;
use super::writer::Writer;
use crate::backend::{QueueBackend, Statement};

/// The text in the error of a settlement that has not changed exactly one row.
pub(crate) const PASSED_NOT_ONE: &str = "queueable: not one row was changed";

/// The compound statement: it settles a row between two savepoints. MariaDB supports it, and prepares it once and for
/// all.
pub struct PassOn<'a, DB: QueueBackend>(pub Settle<'a, DB>);

impl<DB: QueueBackend> Statement<DB> for PassOn<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.0.row.queue, out);
        sql.push("BEGIN NOT ATOMIC ")?;
        push_settings_check(&mut sql)?;
        sql.push("RELEASE SAVEPOINT queueable_handler; ")?;
        self.0.walk_ast(sql.out.reborrow())?;
        push_unless_one_row(&mut sql, PASSED_NOT_ONE)?;
        sql.push("SAVEPOINT queueable_handler; END")
    }
}
