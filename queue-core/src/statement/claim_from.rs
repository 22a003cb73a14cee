//! Claims the row that is due longest, but none below the low-water mark.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, Text};
use diesel::{RunQueryDsl, Selectable};

use super::claim::Claim;
use super::limit::Limit;
use super::scope::push_floor;
use super::walk::Walk;
use crate::backend::QueueBackend;
use crate::entity::{Entity, QueueTable};
use crate::fault::claim_lock;
use crate::row::{Instant, TimestampUtc};

/// The claim of one row of `Q` that is not below the low-water mark. It is a statement of its own, prepared once like the
/// plain claim.
pub struct ClaimFrom<Q: Selectable<DB>, DB: Backend> {
    claim: Claim<Q, DB>,
    floor: Instant,
}

impl<Q: Entity + Selectable<DB>, DB: QueueBackend> Claim<Q, DB> {
    /// The claim of one row that is due at this time or later.
    pub fn from(self, floor: Instant) -> ClaimFrom<Q, DB> {
        ClaimFrom { claim: self, floor }
    }
}

impl<Q, DB> QueryFragment<DB> for ClaimFrom<Q, DB>
where
    Q: Entity + Selectable<DB>,
    DB: QueueBackend,
    Q::SelectExpression: QueryFragment<DB>,
    Q::KeyColumns: QueryFragment<DB>,
    <Q::Queue as QueueTable>::Table: QueryFragment<DB>,
    DB::QueryBuilder: Default,
    str: ToSql<Text, DB>,
    Instant: ToSql<TimestampUtc, DB>,
    i64: ToSql<BigInt, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.claim.push_select(Walk::Oldest, DB::STATEMENT_TIME, out.reborrow())?;
        push_floor::<Q::Queue, DB>(&mut out, &self.floor)?;
        Walk::Oldest.push_order::<Q::Queue, DB>(&mut out, const { &Limit::ONE })?;
        out.push_sql(claim_lock(DB::CLAIM_LOCK));
        Ok(())
    }
}

impl<Q: Selectable<DB>, DB: Backend> Query for ClaimFrom<Q, DB>
where
    Claim<Q, DB>: Query,
{
    type SqlType = <Claim<Q, DB> as Query>::SqlType;
}

impl<Q, DB> QueryId for ClaimFrom<Q, DB>
where
    Q: Entity + Selectable<DB> + 'static,
    DB: Backend + 'static,
    Claim<Q, DB>: QueryId,
{
    type QueryId = (PhantomData<fn() -> ClaimFrom<Q, DB>>, <Claim<Q, DB> as QueryId>::QueryId);

    const HAS_STATIC_QUERY_ID: bool = Claim::<Q, DB>::HAS_STATIC_QUERY_ID;
}

impl<Q: Selectable<DB>, DB: Backend, C> RunQueryDsl<C> for ClaimFrom<Q, DB> {}
