//! Settles a message by prepared statements that a text runs. The text can contain other statements too, so the end of
//! a message is one round trip. So is the beginning of the transaction that applies a lease's answer.

use std::any::Any;

use diesel::backend::Backend;
use diesel::query_builder::{AstPass, QueryBuilder, QueryFragment};
use diesel::result::QueryResult;

use super::condition::push_is_due_at;
use super::literal::has_literals;
use super::writer::Writer;
use crate::backend::{QueueBackend, QueueConnection, RoundTrips, Sql, Statement};
use crate::entity::QueueSql;
use crate::row::Options;

/// The update that settles a success. `$1` is the key, `$2` the new status and `$3` the new number of tries, `$4` and
/// `$5` the status and the tries as claimed. `$6` is when the row was due, or under a lease when the attempt began. It
/// returns the rows that it has changed.
pub struct Finish<DB: QueueBackend> {
    /// The queue.
    pub queue: &'static QueueSql<DB>,
    /// Whether it is the update of a row under a lease.
    pub leased: bool,
}

/// Locks a row that is under a lease, and waits for another session that holds its lock. `$1` is the key, `$2` and `$3`
/// the status and the tries as claimed, `$4` when the attempt began. It returns one row for each that it has locked.
pub struct LockLeased<DB: QueueBackend>(pub &'static QueueSql<DB>);

impl<DB: QueueBackend> Statement<DB> for Finish<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.queue, out);
        sql.push("UPDATE {table} SET {status} = $2, {next_attempt_time} = NULL, {try_count} = $3")?;
        push_end(&mut sql)?;
        sql.push("{key} = $1 AND {.status} = $4 AND {.try_count} = $5 AND ")?;
        if self.leased {
            sql.push("{.last_attempt_time} = ")?;
        } else {
            push_is_due_at(&mut sql)?;
        }
        sql.push("$6 RETURNING 1")
    }
}

impl<DB: QueueBackend> Statement<DB> for LockLeased<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.0, out);
        sql.push("SELECT 1 FROM {table} WHERE {key} = $1 AND {.status} = $2 AND {.try_count} = $3")?;
        sql.push(" AND {.last_attempt_time} = $4{row_lock}")
    }
}

/// Writes `, last_attempt_time = .., occasion = occasion + 1, last_attempt_error_message = NULL WHERE `. The occasion, if
/// the entity counts them, ends with the success.
pub(crate) fn push_end<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    sql.push(", {last_attempt_time} = {now}, ")?;
    if let Some(occasion) = sql.queue.options.occasion {
        sql.push_with("{} = {} + 1, ", &[occasion])?;
    }
    sql.push("{last_attempt_error_message} = NULL WHERE ")
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
