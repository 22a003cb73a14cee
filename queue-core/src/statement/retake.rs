//! Locks and reads one row again by its key, in the state in which it was claimed.

use diesel::Selectable;
use diesel::backend::Backend;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::claim::Claim;
use super::condition::push_fence;
use super::due::push_claim_condition;
use super::names::push_table;
use crate::backend::{QueueBackend, Statement};
use crate::entity::{Entity, SelectedIn};
use crate::row::Fence;

/// Reads the row with one key, if it is still in the fence's state; it need not be due. It waits for another session
/// that holds the row.
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

    /// Retakes it only if the condition of its claim still holds.
    pub fn if_condition_holds(self) -> Self {
        Retake { judges: true, ..self }
    }
}

impl<Q: SelectedIn<DB>, DB: QueueBackend> Statement<DB> for Retake<Q, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.claim.push_columns(out.reborrow())?;
        push_table::<Q::Queue, DB>(&mut out, " FROM ")?;
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
