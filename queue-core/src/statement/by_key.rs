//! Reads the keys of the rows that have been due longest, without a lock, and claims one of them by its key. The claim
//! checks the condition again under the lock.

use std::marker::PhantomData;

use diesel::Selectable;
use diesel::backend::Backend;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::result::QueryResult;

use super::claim::{Claim, push_claim_lock};
use super::condition::push_keys;
use super::due::{push_due, push_due_rows};
use super::key_text::push_key_text;
use super::limit::{Limit, is_keys};
use super::names::push_table;
use super::scope::push_floor;
use super::walk::{push_index_hint, push_oldest};
use crate::backend::{QueueBackend, Statement};
use crate::entity::{Entity, SelectedIn, StoredIn};
use crate::row::Instant;

/// Reads the keys of the rows of `Q` that have been due longest, each with its text.
pub struct DueKeys<Q> {
    limit: Limit,
    floor: Option<Instant>,
    entity: PhantomData<fn() -> Q>,
}

impl<Q: Entity> DueKeys<Q> {
    /// Reads at most `limit` keys.
    pub fn new(limit: u32) -> Self {
        DueKeys { limit: Limit::of(limit), floor: None, entity: PhantomData }
    }

    /// Leaves out rows that are due earlier than this.
    pub fn not_below(self, floor: Option<Instant>) -> Self {
        DueKeys { floor, ..self }
    }
}

/// Claims one row of `Q` by its key, if it is still due. The statement is prepared once and for all.
pub struct ClaimKey<Q: Entity + Selectable<DB>, DB: Backend> {
    claim: Claim<Q, DB>,
    is_key: Q::IsKey,
}

impl<Q: Entity + Selectable<DB>, DB: QueueBackend> ClaimKey<Q, DB> {
    /// Claims the row with this key.
    pub fn new(key: &Q::Key) -> Self {
        ClaimKey { claim: Claim::new(), is_key: Q::is_key(key.clone()) }
    }
}

/// Claims several rows of `Q` by their keys, those of them that are still due.
pub struct ClaimKeys<Q: Entity + Selectable<DB>, DB: Backend> {
    claim: Claim<Q, DB>,
    keys: Vec<Q::IsKey>,
    number: usize,
    limit: Option<Limit>,
}

impl<Q: Entity + Selectable<DB>, DB: QueueBackend> ClaimKeys<Q, DB> {
    /// Claims the rows with these keys, in no order.
    pub fn new<'k>(keys: impl IntoIterator<Item = &'k Q::Key>) -> Self
    where
        Q::Key: 'k,
    {
        let keys: Vec<_> = keys.into_iter().collect();
        ClaimKeys { claim: Claim::new(), number: keys.len(), keys: is_keys::<Q>(keys), limit: None }
    }

    /// Claims at most `limit` of them, and leaves the others unlocked.
    pub fn at_most(self, limit: u32) -> Self {
        ClaimKeys { limit: Some(limit).filter(|limit| self.number > *limit as usize).map(Limit::of), ..self }
    }
}

impl<Q: StoredIn<DB>, DB: QueueBackend> Statement<DB> for DueKeys<Q> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        Q::KEY_COLUMNS.walk_ast(out.reborrow())?;
        out.push_sql(", ");
        push_key_text::<Q, DB>(&mut out)?;
        push_due::<Q::Queue, DB>(&mut out, DB::STATEMENT_TIME, None, None)?;
        if let Some(floor) = &self.floor {
            push_floor::<Q::Queue, DB>(&mut out, floor)?;
        }
        push_oldest::<Q::Queue, DB>(&mut out, &[], &self.limit)
    }
}

impl<Q: SelectedIn<DB> + 'static, DB: QueueBackend + 'static> QueryId for ClaimKey<Q, DB> {
    type QueryId = PhantomData<fn() -> ClaimKey<Q, DB>>;

    // The condition on the key is of one shape for all keys.
    const HAS_STATIC_QUERY_ID: bool = Claim::<Q, DB>::HAS_STATIC_QUERY_ID;
}

impl<Q: SelectedIn<DB>, DB: QueueBackend> Statement<DB> for ClaimKey<Q, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.claim.push_columns(out.reborrow())?;
        push_table::<Q::Queue, DB>(&mut out, " FROM ")?;
        out.push_sql(" WHERE ");
        self.is_key.walk_ast(out.reborrow())?;
        out.push_sql(" AND ");
        push_due_rows::<Q::Queue, DB>(&mut out, DB::STATEMENT_TIME, None, None)?;
        push_claim_lock(&mut out);
        Ok(())
    }
}

impl<Q: SelectedIn<DB>, DB: QueueBackend> Statement<DB> for ClaimKeys<Q, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.claim.push_columns(out.reborrow())?;
        push_table::<Q::Queue, DB>(&mut out, " FROM ")?;
        // MySQL would rather walk the index, and lock every row on the way. It would do the same for an order.
        push_index_hint::<Q::Queue, DB>(&mut out, DB::IGNORE_INDEX)?;
        out.push_sql(" WHERE ");
        push_keys(&self.keys, &mut out)?;
        out.push_sql(" AND ");
        push_due_rows::<Q::Queue, DB>(&mut out, DB::STATEMENT_TIME, None, None)?;
        if let Some(limit) = &self.limit {
            limit.push(&mut out)?;
        }
        push_claim_lock(&mut out);
        Ok(())
    }
}
