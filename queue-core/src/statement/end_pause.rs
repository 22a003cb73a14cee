//! Ends a pause in the control table.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::names::push_names;
use crate::backend::{CONTROL_TABLE, QueueBackend, Statement};

/// Ends the pause of a queue or of a part of it. The row stays: it may say more about the queue than the pause.
pub struct EndPause<'a> {
    /// The queue's name.
    pub queue: &'a str,
    /// The part of the queue; empty for the whole.
    pub scope: &'a str,
}

impl<DB: QueueBackend> Statement<DB> for EndPause<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_names(
            &mut out,
            "UPDATE {} SET {} = NULL, {} = NULL, {} = NULL, {} = NULL WHERE {} IS NOT NULL AND {} = ",
            &[CONTROL_TABLE, "paused_at", "paused_until", "paused_by", "pause_reason", "paused_at", "queue"],
        )?;
        DB::bind_text(&mut out, self.queue)?;
        push_names(&mut out, " AND {} = ", &["scope"])?;
        DB::bind_text(&mut out, self.scope)
    }
}
