//! Claims the row that has been due longest, but none below the low-water mark.

use std::marker::PhantomData;

use diesel::Selectable;
use diesel::backend::Backend;
use diesel::query_builder::{AstPass, QueryId};
use diesel::result::QueryResult;

use super::claim::{Claim, push_claim_lock};
use super::limit::Limit;
use super::scope::push_floor;
use super::walk::Walk;
use crate::backend::{QueueBackend, Statement};
use crate::entity::{Entity, SelectedIn};
use crate::row::Instant;

/// Claims one row of `Q` that is not below the low-water mark. It is a statement of its own, prepared once like the
/// plain claim.
pub struct ClaimFrom<Q: Selectable<DB>, DB: Backend> {
    claim: Claim<Q, DB>,
    floor: Instant,
}

impl<Q: Entity + Selectable<DB>, DB: QueueBackend> Claim<Q, DB> {
    /// Claims one row that is due at this time or later.
    pub fn from(self, floor: Instant) -> ClaimFrom<Q, DB> {
        ClaimFrom { claim: self, floor }
    }
}

impl<Q: SelectedIn<DB> + 'static, DB: QueueBackend + 'static> QueryId for ClaimFrom<Q, DB> {
    type QueryId = PhantomData<fn() -> ClaimFrom<Q, DB>>;

    const HAS_STATIC_QUERY_ID: bool = Claim::<Q, DB>::HAS_STATIC_QUERY_ID;
}

impl<Q: SelectedIn<DB>, DB: QueueBackend> Statement<DB> for ClaimFrom<Q, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.claim.push_select(Walk::Oldest, DB::STATEMENT_TIME, out.reborrow())?;
        push_floor::<Q::Queue, DB>(&mut out, &self.floor)?;
        Walk::Oldest.push_order::<Q::Queue, DB>(&mut out, const { &Limit::ONE })?;
        push_claim_lock(&mut out);
        Ok(())
    }
}
