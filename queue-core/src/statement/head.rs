//! Finds the first row of an exclusive queue: the first pending one, due or not.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::condition::{StateCondition, push_claimable, push_exceptions};
use super::due::Claimable;
use super::key_text::push_select_key;
use super::walk::{push_hint, push_index_hint, push_order_columns, push_pending_flag};
use super::writer::Writer;
use crate::backend::{QueueBackend, Statement, ordered_index_of};
use crate::entity::{IsKey, QueueSql};
use crate::row::Status;

/// Reads the primary key, and its text, of the first pending row by its order, then by its key. It passes over a
/// row whose condition is false, because that row is not work now.
pub struct Head<DB: QueueBackend>(pub Claimable<DB>);

/// Reads the status of a row that a worker holds under a lease, but not of the one with this key.
pub struct AnotherIsLeased<DB: QueueBackend>(pub &'static QueueSql<DB>, pub Option<IsKey<DB>>);

impl<DB: QueueBackend> Statement<DB> for Head<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.0.queue, out);
        push_select_key(&mut sql)?;
        push_head(&self.0, &mut sql)
    }
}

impl<DB: QueueBackend> Statement<DB> for AnotherIsLeased<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.0, out);
        sql.push("SELECT {.status} FROM {table}")?;
        push_index_hint(&mut sql, DB::INDEX_HINT)?;
        // However far away the end of the lease is: another version of the application may have longer leases.
        sql.push(" WHERE {.next_attempt_time} > {statement_time} AND ")?;
        StateCondition::In(&[Status::InProgress]).push(&mut sql)?;
        push_exceptions(&mut sql, self.1.as_slice())?;
        sql.push(" LIMIT 1")
    }
}

/// Writes ` FROM table WHERE next_attempt_time IS NOT NULL AND status IN (..) ORDER BY .. LIMIT 1`.
fn push_head<'b, DB: QueueBackend>(due: &'b Claimable<DB>, sql: &mut Writer<'_, 'b, DB>) -> QueryResult<()> {
    sql.push(" FROM {table}")?;
    push_hint(sql, DB::ORDERED_INDEX_HINT, ordered_index_of)?;
    sql.push(" WHERE ")?;
    push_pending_flag(sql)?;
    sql.push("{.next_attempt_time} IS NOT NULL AND ")?;
    push_claimable(sql)?;
    due.push_stages(sql)?;
    due.push_condition(sql)?;
    sql.push(" ORDER BY ")?;
    push_order_columns(sql, sql.queue.options.order)?;
    sql.push("{key} LIMIT 1")
}

/// Writes ` FROM (SELECT next_attempt_time ..) AS queueable_head WHERE next_attempt_time <= until`.
pub(crate) fn push_due_head<'b, DB: QueueBackend>(
    due: &'b Claimable<DB>,
    sql: &mut Writer<'_, 'b, DB>,
    until: &str,
) -> QueryResult<()> {
    sql.push(" FROM (SELECT {.next_attempt_time}")?;
    push_head(due, sql)?;
    sql.push(") AS queueable_head WHERE {next_attempt_time} <= ")?;
    sql.out.push_sql(until);
    Ok(())
}
