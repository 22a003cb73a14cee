//! Locks and reads one row again by its key, in the state in which it was claimed.

use diesel::backend::Backend;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::serialize::ToSql;
use diesel::sql_types::{Integer, Text};
use diesel::{RunQueryDsl, Selectable};

use super::claim::Claim;
use super::condition::push_fence;
use super::due::push_claim_condition;
use crate::backend::QueueBackend;
use crate::entity::{Entity, QueueTable};
use crate::row::{Fence, Instant, Status, TimestampUtc};

/// The row with one key, if it is still in the fence's state; it need not be due. It waits for whoever holds the row.
pub struct Retake<Q: Entity + Selectable<DB>, DB: Backend> {
    claim: Claim<Q, DB>,
    is_key: Q::IsKey,
    fence: Fence,
    judges: bool,
}

impl<Q: Entity + Selectable<DB>, DB: QueueBackend> Retake<Q, DB> {
    /// Retakes the row with this key.
    pub fn new(key: &Q::Key, fence: Fence) -> Self {
        Retake { claim: Claim::new(), is_key: Q::is_key(key.clone()), fence, judges: false }
    }

    /// Retakes it only if the condition of its claim holds still.
    pub fn if_condition_holds(self) -> Self {
        Retake { judges: true, ..self }
    }
}

impl<Q, DB> QueryFragment<DB> for Retake<Q, DB>
where
    Q: Entity + Selectable<DB>,
    DB: QueueBackend,
    Q::SelectExpression: QueryFragment<DB>,
    Q::KeyColumns: QueryFragment<DB>,
    Q::IsKey: QueryFragment<DB>,
    <Q::Queue as QueueTable>::Table: QueryFragment<DB>,
    Status: ToSql<Text, DB>,
    i32: ToSql<Integer, DB>,
    Instant: ToSql<TimestampUtc, DB>,
    DB::QueryBuilder: Default,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.claim.push_columns(out.reborrow())?;
        out.push_sql(" FROM ");
        <Q::Queue as QueueTable>::TABLE.walk_ast(out.reborrow())?;
        out.push_sql(" WHERE ");
        self.is_key.walk_ast(out.reborrow())?;
        push_fence::<Q::Queue, DB>(&self.fence, out.reborrow())?;
        if self.judges {
            push_claim_condition(&mut out, self.claim.claim_if.as_ref())?;
        }
        out.push_sql(DB::ROW_LOCK);
        Ok(())
    }
}

impl<Q: Entity + Selectable<DB>, DB: Backend> Query for Retake<Q, DB>
where
    Claim<Q, DB>: Query,
{
    type SqlType = <Claim<Q, DB> as Query>::SqlType;
}

impl<Q: Entity + Selectable<DB>, DB: Backend> QueryId for Retake<Q, DB> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<Q: Entity + Selectable<DB>, DB: Backend, C> RunQueryDsl<C> for Retake<Q, DB> {}
