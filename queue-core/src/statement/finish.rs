//! Settles a message by prepared statements that a text runs. The text can contain other statements too, so the end of
//! a message is one round trip. So is the beginning of the transaction that applies a lease's answer.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::query_builder::{AstPass, QueryBuilder, QueryFragment};
use diesel::result::QueryResult;

use super::change::push_next_occasion;
use super::condition::push_is_due_at;
use super::literal::has_literals;
use super::names::{push_columns, push_names, push_table};
use crate::backend::{QueueBackend, QueueConnection, RoundTrips, Sql, Statement};
use crate::entity::{Entity, QueueTable, StoredIn};

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

impl<Q: StoredIn<DB>, DB: QueueBackend> Statement<DB> for Finish<Q> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let names = Q::Queue::COLUMNS;
        push_table::<Q::Queue, DB>(&mut out, "UPDATE ")?;
        push_names(
            &mut out,
            " SET {} = $2, {} = NULL, {} = $3, {} = ",
            &[names.status, names.next_attempt_time, names.try_count, names.last_attempt_time],
        )?;
        out.push_sql(DB::NOW);
        out.push_sql(", ");
        push_occasion::<Q::Queue, DB>(&mut out)?;
        push_names(&mut out, "{} = NULL WHERE ", &[names.last_attempt_error_message])?;
        Q::KEY_COLUMNS.walk_ast(out.reborrow())?;
        push_columns::<Q::Queue, DB>(&mut out, " = $1 AND {} = $4 AND {} = $5 AND ", &[names.status, names.try_count])?;
        if self.leased {
            push_columns::<Q::Queue, DB>(&mut out, "{} = ", &[names.last_attempt_time])?;
        } else {
            push_is_due_at::<Q::Queue, DB>(&mut out)?;
        }
        out.push_sql("$6 RETURNING 1");
        Ok(())
    }
}

impl<Q: StoredIn<DB>, DB: QueueBackend> Statement<DB> for LockLeased<Q> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let names = Q::Queue::COLUMNS;
        push_table::<Q::Queue, DB>(&mut out, "SELECT 1 FROM ")?;
        out.push_sql(" WHERE ");
        Q::KEY_COLUMNS.walk_ast(out.reborrow())?;
        push_columns::<Q::Queue, DB>(
            &mut out,
            " = $1 AND {} = $2 AND {} = $3 AND {} = $4",
            &[names.status, names.try_count, names.last_attempt_time],
        )?;
        out.push_sql(DB::ROW_LOCK);
        Ok(())
    }
}

/// Writes `occasion = occasion + 1, ` if the entity counts occasions, because a success ends one.
pub(crate) fn push_occasion<T: QueueTable, DB: QueueBackend>(out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
    if let Some(occasion) = T::OPTIONS.occasion {
        push_names(out, "{} = ", &[occasion])?;
        push_next_occasion(occasion, out)?;
        out.push_sql(", ");
    }
    Ok(())
}

/// Tells whether a text that contains other statements too can settle a success of this entity.
pub(crate) fn ends_at_once<Q: Entity, C: QueueConnection>() -> bool {
    C::Backend::FINISHES_AT_ONCE
        && Q::Queue::OPTIONS.ends_plainly()
        && (C::Backend::FINISHES_IN_A_BLOCK || has_literals::<Q::Key>())
}

/// Returns the text of a statement without binds.
pub(crate) fn text_of<C: QueueConnection>(statement: &dyn Statement<C::Backend>) -> QueryResult<String> {
    let mut builder = <C::Backend as Backend>::QueryBuilder::default();
    Sql::new(statement).to_sql(&mut builder, &C::Backend::default())?;
    Ok(builder.finish())
}
