//! Settles a success, and commits it, in one prepared statement: a block of several statements. MariaDB has such
//! blocks.

use std::marker::PhantomData;

use diesel::query_builder::{AstPass, QueryId};
use diesel::result::QueryResult;

use super::condition::push_fence;
use super::finish::push_occasion;
use super::names::{push_names, push_table};
use crate::backend::{QueueBackend, Statement};
use crate::entity::KeyedRow;
use crate::row::{Fence, Status};

/// `RELEASE`, the update of [`Finish`](super::finish::Finish), `COMMIT`. It ends at the first statement that fails:
/// then nothing is committed, and the transaction is still open.
pub struct FinishBlock<DB: QueueBackend> {
    row: KeyedRow<DB>,
    fence: Fence,
    tries: i32,
}

impl<DB: QueueBackend> FinishBlock<DB> {
    /// The server's message if not exactly one row is in the fence's state.
    pub const NOT_ONE_ROW: &'static str = "queueable: the row is not as it was claimed";

    /// Settles the row with this key. The fence must have no lease, and must contain when the row was due.
    pub fn new(row: KeyedRow<DB>, fence: Fence, tries: i32) -> Self {
        FinishBlock { row, fence, tries }
    }
}

/// Finds the prepared block of the entity `Q`.
pub(crate) struct FinishBlockId<Q>(PhantomData<fn() -> Q>);

// A message whose fence has a lease, or no due time, does not end so: the text is always the same.
impl<Q: 'static> QueryId for FinishBlockId<Q> {
    type QueryId = Self;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl<DB: QueueBackend> Statement<DB> for FinishBlock<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.row.queue;
        let names = queue.names;
        out.push_sql("BEGIN NOT ATOMIC ");
        push_settings_check(&mut out);
        push_table(queue, &mut out, "RELEASE SAVEPOINT queueable_handler; UPDATE ")?;
        push_names(&mut out, " SET {} = '", &[names.status])?;
        out.push_sql(Status::Success.as_str());
        push_names(&mut out, "', {} = NULL, {} = ", &[names.next_attempt_time, names.try_count])?;
        DB::bind_integer(&mut out, &self.tries)?;
        push_names(&mut out, ", {} = ", &[names.last_attempt_time])?;
        out.push_sql(DB::NOW);
        out.push_sql(", ");
        push_occasion(queue, &mut out)?;
        push_names(&mut out, "{} = NULL WHERE ", &[names.last_attempt_error_message])?;
        self.row.is_key.walk_ast(out.reborrow())?;
        push_fence(queue, &self.fence, out.reborrow())?;
        out.push_sql("; IF ROW_COUNT() <> 1 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '");
        out.push_sql(Self::NOT_ONE_ROW);
        out.push_sql("'; END IF; COMMIT; END");
        Ok(())
    }
}

/// Writes the statement that ends a block before it has done anything, if the session's settings have changed.
pub(crate) fn push_settings_check<DB: QueueBackend>(out: &mut AstPass<'_, '_, DB>) {
    if let Some((settings, says)) = DB::OTHER_SETTINGS {
        out.push_sql("IF NOT (");
        out.push_sql(settings);
        out.push_sql(" <=> @queueable_settings) THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '");
        out.push_sql(says);
        out.push_sql("'; END IF; ");
    }
}
