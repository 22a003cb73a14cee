//! Settles a message, together with the statements before and after it, in one prepared statement: a block. MariaDB has
//! such blocks.

use std::marker::PhantomData;

use diesel::query_builder::{AstPass, QueryId};
use diesel::result::QueryResult;

use super::condition::push_fence;
use super::finish::push_end;
use super::settle::Settle;
use super::writer::Writer;
use crate::backend::{QueueBackend, Statement};
use crate::entity::KeyedRow;
use crate::row::Fence;

/// `RELEASE`, the update of [`Finish`](super::finish::Finish), `COMMIT`. It ends at the first statement that fails:
/// then nothing is committed, and the transaction is still open.
pub struct FinishBlock<DB: QueueBackend> {
    /// The row.
    pub row: KeyedRow<DB>,
    /// Its state. It must have no lease, and must contain when the row was due.
    pub fence: Fence,
    /// The new number of tries.
    pub tries: i32,
}

impl<DB: QueueBackend> FinishBlock<DB> {
    /// The server's message if not exactly one row is in the fence's state.
    pub const NOT_ONE_ROW: &'static str = "queueable: the row is not as it was claimed";
}

/// Finds the prepared block of the entity `Q`.
pub(crate) struct FinishBlockId<Q>(PhantomData<fn() -> Q>);

// A message whose fence has a lease, or no due time, does not end so: the text is always the same.
impl<Q: 'static> QueryId for FinishBlockId<Q> {
    type QueryId = Self;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl<DB: QueueBackend> Statement<DB> for FinishBlock<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.row.queue, out);
        sql.push("BEGIN NOT ATOMIC ")?;
        push_settings_check(&mut sql)?;
        sql.push("RELEASE SAVEPOINT queueable_handler; UPDATE {table} SET {status} = 'SUCCESS'")?;
        sql.push(", {next_attempt_time} = NULL, {try_count} = ")?;
        DB::bind_integer(&mut sql.out, &self.tries)?;
        push_end(&mut sql)?;
        sql.push_is_key("", &self.row.is_key)?;
        push_fence(&mut sql, &self.fence)?;
        push_unless_one_row(&mut sql, Self::NOT_ONE_ROW)?;
        sql.push("COMMIT; END")
    }
}

/// The text in the error of a settlement that has not changed exactly one row.
pub(crate) const PASSED_NOT_ONE: &str = "queueable: not one row was changed";

/// The step from one message of a group to the next: it releases the sentinel, settles, and sets the sentinel anew.
pub struct PassOn<'a, DB: QueueBackend>(pub Settle<'a, DB>);

impl<DB: QueueBackend> Statement<DB> for PassOn<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.0.queue, out);
        sql.push("BEGIN NOT ATOMIC ")?;
        push_settings_check(&mut sql)?;
        sql.push("RELEASE SAVEPOINT queueable_handler; ")?;
        self.0.walk_ast(sql.out.reborrow())?;
        push_unless_one_row(&mut sql, PASSED_NOT_ONE)?;
        sql.push("SAVEPOINT queueable_handler; END")
    }
}

/// Writes the statement that ends a block before it has done anything, if the session's settings have changed.
fn push_settings_check<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    let Some((settings, says)) = DB::OTHER_SETTINGS else { return Ok(()) };
    sql.within(("IF NOT (", " <=> @queueable_settings) "), |sql| sql.push(settings))?;
    push_error(sql, says)
}

/// Writes the statement that ends a block after an update that has not changed exactly one row.
fn push_unless_one_row<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>, says: &str) -> QueryResult<()> {
    sql.push("; IF ROW_COUNT() <> 1 ")?;
    push_error(sql, says)
}

fn push_error<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>, says: &str) -> QueryResult<()> {
    sql.within(("THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '", "'; END IF; "), |sql| sql.push(says))
}
