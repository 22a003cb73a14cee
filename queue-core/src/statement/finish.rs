//! Settles a message by prepared statements that a text runs. The text can contain other statements too, so the end of
//! a message is one round trip. So is the beginning of the transaction that applies a lease's answer.

use std::any::Any;

use diesel::backend::Backend;
use diesel::query_builder::{AstPass, QueryBuilder, QueryFragment};
use diesel::result::QueryResult;

use super::change::push_next_occasion;
use super::condition::push_is_due_at;
use super::literal::has_literals;
use super::names::{push_columns, push_names, push_table};
use crate::backend::{QueueBackend, QueueConnection, RoundTrips, Sql, Statement};
use crate::entity::QueueSql;
use crate::row::Options;

/// The update that settles a success. `$1` is the key, `$2` the new status and `$3` the new number of tries, `$4` and
/// `$5` the status and the tries as claimed. `$6` is when the row was due, or under a lease when the attempt began. It
/// returns the rows that it has changed.
pub struct Finish<DB: QueueBackend> {
    leased: bool,
    queue: &'static QueueSql<DB>,
}

impl<DB: QueueBackend> Finish<DB> {
    /// Makes the update.
    pub fn new(queue: &'static QueueSql<DB>) -> Self {
        Finish { leased: false, queue }
    }

    /// Makes it the update of a row under a lease.
    pub fn leased(self) -> Self {
        Finish { leased: true, ..self }
    }
}

/// Locks a row that is under a lease, and waits for another session that holds its lock. `$1` is the key, `$2` and `$3`
/// the status and the tries as claimed, `$4` when the attempt began. It returns one row for each that it has locked.
pub struct LockLeased<DB: QueueBackend> {
    queue: &'static QueueSql<DB>,
}

impl<DB: QueueBackend> LockLeased<DB> {
    /// Makes the statement.
    pub fn new(queue: &'static QueueSql<DB>) -> Self {
        LockLeased { queue }
    }
}

impl<DB: QueueBackend> Statement<DB> for Finish<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.queue;
        let names = queue.names;
        push_table(queue, &mut out, "UPDATE ")?;
        push_names(
            &mut out,
            " SET {} = $2, {} = NULL, {} = $3, {} = ",
            &[names.status, names.next_attempt_time, names.try_count, names.last_attempt_time],
        )?;
        out.push_sql(DB::NOW);
        out.push_sql(", ");
        push_occasion(queue, &mut out)?;
        push_names(&mut out, "{} = NULL WHERE ", &[names.last_attempt_error_message])?;
        queue.key_columns.walk_ast(out.reborrow())?;
        push_columns(queue, &mut out, " = $1 AND {} = $4 AND {} = $5 AND ", &[names.status, names.try_count])?;
        if self.leased {
            push_columns(queue, &mut out, "{} = ", &[names.last_attempt_time])?;
        } else {
            push_is_due_at(queue, &mut out)?;
        }
        out.push_sql("$6 RETURNING 1");
        Ok(())
    }
}

impl<DB: QueueBackend> Statement<DB> for LockLeased<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.queue;
        let names = queue.names;
        push_table(queue, &mut out, "SELECT 1 FROM ")?;
        out.push_sql(" WHERE ");
        queue.key_columns.walk_ast(out.reborrow())?;
        push_columns(
            queue,
            &mut out,
            " = $1 AND {} = $2 AND {} = $3 AND {} = $4",
            &[names.status, names.try_count, names.last_attempt_time],
        )?;
        out.push_sql(DB::ROW_LOCK);
        Ok(())
    }
}

/// Writes `occasion = occasion + 1, ` if the entity counts occasions, because a success ends one.
pub(crate) fn push_occasion<DB: QueueBackend>(queue: &QueueSql<DB>, out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
    if let Some(occasion) = queue.options.occasion {
        push_names(out, "{} = ", &[occasion])?;
        push_next_occasion(occasion, out)?;
        out.push_sql(", ");
    }
    Ok(())
}

/// Tells whether a text that contains other statements too can settle a success of this entity.
pub(crate) fn ends_at_once<K: Any, C: QueueConnection>(options: &Options) -> bool {
    C::Backend::FINISHES_AT_ONCE && options.ends_plainly() && (C::Backend::FINISHES_IN_A_BLOCK || has_literals::<K>())
}

/// Returns the text of a statement without binds.
pub(crate) fn text_of<C: QueueConnection>(statement: &dyn Statement<C::Backend>) -> QueryResult<String> {
    let mut builder = <C::Backend as Backend>::QueryBuilder::default();
    Sql::new(statement).to_sql(&mut builder, &C::Backend::default())?;
    Ok(builder.finish())
}
