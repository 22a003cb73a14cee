//! Reads some rows for a look: the key and the state of each as they are, and the entity if it can be decoded.

use diesel::backend::Backend;
use diesel::expression::Expression;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::{RunQueryDsl, Selectable};

use super::claim::{CapturedKeyClaim, Claim};
use super::condition::Condition;
use crate::backend::{Captured, CapturedKey, QueueBackend};
use crate::entity::{Entity, QueueTable};
use crate::row::Instant;

/// The first rows that a condition picks, in the order of the primary key.
pub struct Sample<'a, Q: Entity + Selectable<DB>, F, DB: Backend> {
    row: Claim<Q, DB>,
    condition: Condition<'a, Q::Queue, F>,
    limit: usize,
}

/// A row as it is loaded. Unlike a claimed one, it may bear any status.
pub type SampleRow<Q> = (
    CapturedKey<<Q as Entity>::Key>,
    String,
    String,
    i32,
    Captured<(Option<Instant>, Option<Instant>, Option<String>, Q)>,
);

impl<'a, Q: Entity + Selectable<DB>, F, DB: QueueBackend> Sample<'a, Q, F, DB> {
    /// Reads at most `limit` rows.
    pub fn new(condition: Condition<'a, Q::Queue, F>, limit: usize) -> Self {
        Sample { row: Claim::new(), condition, limit }
    }
}

impl<Q, F, DB> QueryFragment<DB> for Sample<'_, Q, F, DB>
where
    Q: Entity + Selectable<DB>,
    DB: QueueBackend,
    Q::SelectExpression: QueryFragment<DB>,
    Q::KeyColumns: QueryFragment<DB>,
    <Q::Queue as QueueTable>::Table: QueryFragment<DB>,
    DB::QueryBuilder: Default,
    F: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.row.push_columns(out.reborrow())?;
        self.condition.push_from(out.reborrow())?;
        self.condition.walk_ast(out.reborrow())?;
        out.push_sql(" ORDER BY ");
        Q::KEY_COLUMNS.walk_ast(out.reborrow())?;
        out.push_sql(" LIMIT ");
        out.push_sql(&self.limit.to_string());
        Ok(())
    }
}

impl<Q, F, DB> Query for Sample<'_, Q, F, DB>
where
    Q: Entity + Selectable<DB>,
    DB: Backend,
    Q::KeyColumns: Expression,
    Q::SelectExpression: Expression,
{
    type SqlType = CapturedKeyClaim<Q, DB>;
}

impl<Q: Entity + Selectable<DB>, F, DB: Backend> QueryId for Sample<'_, Q, F, DB> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<Q: Entity + Selectable<DB>, F, DB: Backend, C> RunQueryDsl<C> for Sample<'_, Q, F, DB> {}
