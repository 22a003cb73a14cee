//! Finds the first row of an exclusive queue: the first pending one, due or not.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::condition::{StateCondition, push_claimable, push_exceptions};
use super::due::Claimable;
use super::key_text::push_key_text;
use super::names::{push_columns, push_names, push_table};
use super::walk::{push_index_hint, push_order_columns, push_ordered_index_hint, push_pending_flag};
use crate::backend::{QueueBackend, Statement};
use crate::entity::{IsKey, QueueSql};
use crate::row::Status;

/// Reads the primary key, and its text, of the first pending row by its order, then by its key. It passes over a
/// row whose condition is false, because that row is not work now.
pub struct Head<DB: QueueBackend> {
    due: Claimable<DB>,
}

impl<DB: QueueBackend> Head<DB> {
    /// Finds the first row in these stages, or in all of the entity's.
    pub fn new(queue: &'static QueueSql<DB>, stages: Option<&[&'static str]>) -> Self {
        Head { due: Claimable::new(queue, stages) }
    }
}

/// Reads the status of a row that a worker holds under a lease, but not of the one with this key.
pub struct AnotherIsLeased<DB: QueueBackend> {
    queue: &'static QueueSql<DB>,
    except: Option<IsKey<DB>>,
}

impl<DB: QueueBackend> AnotherIsLeased<DB> {
    /// Finds a row under a lease with another key than this.
    pub fn new(queue: &'static QueueSql<DB>, except: Option<IsKey<DB>>) -> Self {
        AnotherIsLeased { queue, except }
    }
}

impl<DB: QueueBackend> Statement<DB> for Head<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.due.queue;
        out.push_sql("SELECT ");
        queue.key_columns.walk_ast(out.reborrow())?;
        out.push_sql(", ");
        push_key_text(queue, &mut out)?;
        push_head(&self.due, &mut out)
    }
}

impl<DB: QueueBackend> Statement<DB> for AnotherIsLeased<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.queue;
        push_columns(queue, &mut out, "SELECT {}", &[queue.names.status])?;
        push_table(queue, &mut out, " FROM ")?;
        push_index_hint(queue, &mut out, DB::INDEX_HINT)?;
        out.push_sql(" WHERE ");
        StateCondition::Scheduled.push(queue, &mut out)?;
        // However far away the end of the lease is: another version of the application may have longer leases.
        out.push_sql(" AND ");
        StateCondition::In(&[Status::InProgress]).push(queue, &mut out)?;
        push_exceptions(self.except.as_slice(), &mut out)?;
        out.push_sql(" LIMIT 1");
        Ok(())
    }
}

/// Writes ` FROM table WHERE next_attempt_time IS NOT NULL AND status IN (..) ORDER BY .. LIMIT 1`.
pub(crate) fn push_head<'b, DB: QueueBackend>(
    due: &'b Claimable<DB>,
    out: &mut AstPass<'_, 'b, DB>,
) -> QueryResult<()> {
    let queue = due.queue;
    push_table(queue, out, " FROM ")?;
    push_ordered_index_hint(queue, out, DB::ORDERED_INDEX_HINT)?;
    out.push_sql(" WHERE ");
    push_pending_flag(queue, out)?;
    StateCondition::Pending.push(queue, out)?;
    out.push_sql(" AND ");
    push_claimable(queue, out)?;
    due.push_stages(out)?;
    due.push_condition(out)?;
    out.push_sql(" ORDER BY ");
    if let Some(order) = queue.options.order {
        push_order_columns(queue, out, order.columns)?;
    }
    queue.key_columns.walk_ast(out.reborrow())?;
    out.push_sql(" LIMIT 1");
    Ok(())
}

/// Writes ` FROM (SELECT next_attempt_time ..) AS queueable_head WHERE next_attempt_time <= until`.
pub(crate) fn push_due_head<'b, DB: QueueBackend>(
    due: &'b Claimable<DB>,
    out: &mut AstPass<'_, 'b, DB>,
    until: &str,
) -> QueryResult<()> {
    let queue = due.queue;
    push_columns(queue, out, " FROM (SELECT {}", &[queue.names.next_attempt_time])?;
    push_head(due, out)?;
    push_names(out, ") AS queueable_head WHERE {} <= ", &[queue.names.next_attempt_time])?;
    out.push_sql(until);
    Ok(())
}
