//! Settles a message by prepared statements that a text runs. The text can contain other statements too, so the end of
//! a message is one round trip. So is the beginning of the transaction that applies a lease's answer.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::query_builder::{AstPass, QueryBuilder, QueryFragment};
use diesel::result::QueryResult;

use super::change::push_next_occasion;
use super::condition::{push_column, push_is_due_at};
use super::literal::has_literals;
use crate::backend::{QueueBackend, QueueConnection, RoundTrips, Sql, Statement};
use crate::entity::{Entity, LastAttemptTime, QueueTable, StatusText, StoredIn, TryCount};

/// The update that settles a success. `$1` is the key, `$2` the new status and `$3` the new number of tries, `$4` and
/// `$5` the status and the tries as claimed. `$6` is when the row was due, or under a lease when the attempt began. It
/// returns the rows that it has changed.
pub struct Finish<Q> {
    leased: bool,
    entity: PhantomData<fn() -> Q>,
}

impl<Q: Entity> Finish<Q> {
    /// Makes the update.
    #[expect(clippy::new_without_default, reason = "a statement has no default")]
    pub fn new() -> Self {
        Finish { leased: false, entity: PhantomData }
    }

    /// Makes it the update of a row under a lease.
    pub fn leased(self) -> Self {
        Finish { leased: true, ..self }
    }
}

/// Locks a row that is under a lease, and waits for another session that holds its lock. `$1` is the key, `$2` and `$3`
/// the status and the tries as claimed, `$4` when the attempt began. It returns one row for each that it has locked.
pub struct LockLeased<Q>(PhantomData<fn() -> Q>);

impl<Q: Entity> LockLeased<Q> {
    /// Makes the statement.
    #[expect(clippy::new_without_default, reason = "a statement has no default")]
    pub fn new() -> Self {
        LockLeased(PhantomData)
    }
}

impl<Q, DB> Statement<DB> for Finish<Q>
where
    Q: StoredIn<DB>,
    DB: QueueBackend,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let names = <Q::Queue as QueueTable>::COLUMNS;
        out.push_sql("UPDATE ");
        <Q::Queue as QueueTable>::TABLE.walk_ast(out.reborrow())?;
        out.push_sql(" SET ");
        out.push_identifier(names.status)?;
        out.push_sql(" = $2, ");
        out.push_identifier(names.next_attempt_time)?;
        out.push_sql(" = NULL, ");
        out.push_identifier(names.try_count)?;
        out.push_sql(" = $3, ");
        out.push_identifier(names.last_attempt_time)?;
        out.push_sql(" = ");
        out.push_sql(DB::NOW);
        out.push_sql(", ");
        push_occasion::<Q::Queue, DB>(&mut out)?;
        out.push_identifier(names.last_attempt_error_message)?;
        out.push_sql(" = NULL WHERE ");
        Q::KEY_COLUMNS.walk_ast(out.reborrow())?;
        out.push_sql(" = $1 AND ");
        push_column::<Q::Queue, StatusText, DB>(&mut out)?;
        out.push_sql(" = $4 AND ");
        push_column::<Q::Queue, TryCount, DB>(&mut out)?;
        out.push_sql(" = $5 AND ");
        if self.leased {
            push_column::<Q::Queue, LastAttemptTime, DB>(&mut out)?;
            out.push_sql(" = ");
        } else {
            push_is_due_at::<Q::Queue, DB>(&mut out)?;
        }
        out.push_sql("$6 RETURNING 1");
        Ok(())
    }
}

impl<Q, DB> Statement<DB> for LockLeased<Q>
where
    Q: StoredIn<DB>,
    DB: QueueBackend,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT 1 FROM ");
        <Q::Queue as QueueTable>::TABLE.walk_ast(out.reborrow())?;
        out.push_sql(" WHERE ");
        Q::KEY_COLUMNS.walk_ast(out.reborrow())?;
        out.push_sql(" = $1 AND ");
        push_column::<Q::Queue, StatusText, DB>(&mut out)?;
        out.push_sql(" = $2 AND ");
        push_column::<Q::Queue, TryCount, DB>(&mut out)?;
        out.push_sql(" = $3 AND ");
        push_column::<Q::Queue, LastAttemptTime, DB>(&mut out)?;
        out.push_sql(" = $4");
        out.push_sql(DB::ROW_LOCK);
        Ok(())
    }
}

/// Writes `occasion = occasion + 1, ` if the entity counts occasions, because a success ends one.
pub(crate) fn push_occasion<T: QueueTable, DB: QueueBackend>(out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
    if let Some(occasion) = T::OPTIONS.occasion {
        out.push_identifier(occasion)?;
        out.push_sql(" = ");
        push_next_occasion(occasion, out)?;
        out.push_sql(", ");
    }
    Ok(())
}

/// Tells whether a text that contains other statements too can settle a success of this entity.
pub(crate) fn ends_at_once<Q: Entity, C: QueueConnection>() -> bool {
    C::Backend::FINISHES_AT_ONCE
        && <Q::Queue as QueueTable>::OPTIONS.ends_plainly()
        && (C::Backend::FINISHES_IN_A_BLOCK || has_literals::<Q::Key>())
}

/// Returns the text of a statement without binds.
pub(crate) fn text_of<C: QueueConnection>(statement: &dyn Statement<C::Backend>) -> QueryResult<String> {
    let mut builder = <C::Backend as Backend>::QueryBuilder::default();
    Sql::new(statement).to_sql(&mut builder, &C::Backend::default())?;
    Ok(builder.finish())
}
