//! Removes rows: the one that was claimed, fenced, or all that a condition picks.

use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, Integer, Text};

use super::condition::{Condition, StateCondition, push_fence, push_same_content};
use crate::backend::QueueBackend;
use crate::entity::{Entity, QueueTable};
use crate::row::{Fence, Instant, Status, TimestampUtc};

/// The fenced removal of one row.
pub struct Remove<Q: Entity> {
    is_key: Q::IsKey,
    fence: Fence,
    if_due: bool,
}

impl<Q: Entity> Remove<Q> {
    /// Removes the row with this key if it is still in the fence's state, with the content that was claimed.
    pub fn new(key: &Q::Key, fence: Fence) -> Self {
        Remove { is_key: Q::is_key(key.clone()), fence, if_due: false }
    }

    /// Removes the row only if it is due, as it was when it was claimed.
    pub fn if_due(self) -> Self {
        Remove { if_due: true, ..self }
    }
}

impl<Q, DB> QueryFragment<DB> for Remove<Q>
where
    Q: Entity,
    DB: QueueBackend,
    Q::IsKey: QueryFragment<DB>,
    <Q::Queue as QueueTable>::Table: QueryFragment<DB>,
    Status: ToSql<Text, DB>,
    i32: ToSql<Integer, DB>,
    Instant: ToSql<TimestampUtc, DB>,
    i64: ToSql<BigInt, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("DELETE FROM ");
        <Q::Queue as QueueTable>::TABLE.walk_ast(out.reborrow())?;
        out.push_sql(" WHERE ");
        self.is_key.walk_ast(out.reborrow())?;
        push_fence::<Q::Queue, DB>(&self.fence, out.reborrow())?;
        push_same_content::<Q::Queue, DB>(&self.fence, out.reborrow())?;
        if self.if_due {
            out.push_sql(" AND ");
            StateCondition::Due.push::<Q::Queue, DB>(&mut out)?;
        }
        Ok(())
    }
}

impl<Q: Entity> QueryId for Remove<Q> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

/// The removal of all rows that a condition picks.
pub struct RemoveAll<'a, T, F>(pub Condition<'a, T, F>);

impl<T, F, DB> QueryFragment<DB> for RemoveAll<'_, T, F>
where
    T: QueueTable,
    DB: QueueBackend,
    T::Table: QueryFragment<DB>,
    F: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("DELETE FROM ");
        T::TABLE.walk_ast(out.reborrow())?;
        self.0.walk_ast(out)
    }
}

impl<T, F> QueryId for RemoveAll<'_, T, F> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}
