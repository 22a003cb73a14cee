//! Claims the row that has been due longest, but none below the low-water mark.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::claim::{Claim, push_claim_lock};
use super::limit::Limit;
use super::scope::push_floor;
use super::walk::Walk;
use crate::backend::{QueueBackend, Statement};
use crate::row::Instant;

/// Claims one row that is not below the low-water mark. It is a statement of its own, prepared once like the
/// plain claim.
pub struct ClaimFrom<DB: QueueBackend> {
    claim: Claim<DB>,
    floor: Instant,
}

impl<DB: QueueBackend> Claim<DB> {
    /// Claims one row that is due at this time or later.
    pub fn from(self, floor: Instant) -> ClaimFrom<DB> {
        ClaimFrom { claim: self, floor }
    }
}

impl<DB: QueueBackend> Statement<DB> for ClaimFrom<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.claim.due.queue;
        self.claim.push_select(Walk::Oldest, DB::STATEMENT_TIME, out.reborrow())?;
        push_floor(queue, &mut out, &self.floor)?;
        Walk::Oldest.push_order(queue, &mut out, const { &Limit::ONE })?;
        push_claim_lock(&mut out);
        Ok(())
    }
}
