//! Reads the keys of the rows that have been due longest, without a lock, and claims one of them by its key. The claim
//! checks the condition again under the lock.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::claim::{Claim, push_claim_lock};
use super::condition::push_keys;
use super::due::Claimable;
use super::key_text::push_key_text;
use super::limit::{Limit, padded};
use super::names::push_table;
use super::scope::push_floor;
use super::walk::{push_index_hint, push_oldest};
use crate::backend::{QueueBackend, Statement};
use crate::entity::{IsKey, KeyedRow, QueueSql};
use crate::row::Instant;

/// Reads the keys of the rows that have been due longest, each with its text.
pub struct DueKeys<DB: QueueBackend> {
    limit: Limit,
    floor: Option<Instant>,
    due: Claimable<DB>,
}

impl<DB: QueueBackend> DueKeys<DB> {
    /// Reads at most `limit` keys.
    pub fn new(queue: &'static QueueSql<DB>, limit: u32) -> Self {
        DueKeys { limit: Limit::of(limit), floor: None, due: Claimable::new(queue, None) }
    }

    /// Leaves out rows that are due earlier than this.
    pub fn not_below(self, floor: Option<Instant>) -> Self {
        DueKeys { floor, ..self }
    }
}

/// Claims one row by its key, if it is still due. The statement is prepared once and for all.
pub struct ClaimKey<DB: QueueBackend> {
    claim: Claim<DB>,
    row: KeyedRow<DB>,
}

impl<DB: QueueBackend> ClaimKey<DB> {
    /// Claims the row with this key.
    pub fn new(claim: Claim<DB>, row: KeyedRow<DB>) -> Self {
        ClaimKey { claim, row }
    }
}

/// Claims several rows by their keys, those of them that are still due.
pub struct ClaimKeys<DB: QueueBackend> {
    claim: Claim<DB>,
    keys: Vec<IsKey<DB>>,
    limit: Option<Limit>,
}

impl<DB: QueueBackend> ClaimKeys<DB> {
    /// Claims the rows with these keys, in no order.
    pub fn new(claim: Claim<DB>, keys: Vec<IsKey<DB>>) -> Self {
        ClaimKeys { claim, keys: padded(keys), limit: None }
    }

    /// Claims at most `limit` of them, and leaves the others unlocked.
    pub fn at_most(self, limit: u32) -> Self {
        ClaimKeys { limit: Some(Limit::of(limit)), ..self }
    }
}

impl<DB: QueueBackend> Statement<DB> for DueKeys<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.due.queue;
        out.push_sql("SELECT ");
        queue.key_columns.walk_ast(out.reborrow())?;
        out.push_sql(", ");
        push_key_text(queue, &mut out)?;
        self.due.push_from(&mut out, DB::STATEMENT_TIME)?;
        if let Some(floor) = &self.floor {
            push_floor(queue, &mut out, floor)?;
        }
        push_oldest(queue, &mut out, &[], &self.limit)
    }
}

impl<DB: QueueBackend> Statement<DB> for ClaimKey<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.claim.due.queue;
        self.claim.push_columns(out.reborrow())?;
        push_table(queue, &mut out, " FROM ")?;
        out.push_sql(" WHERE ");
        self.row.is_key.walk_ast(out.reborrow())?;
        out.push_sql(" AND ");
        self.claim.due.push_due(&mut out, DB::STATEMENT_TIME)?;
        push_claim_lock(&mut out);
        Ok(())
    }
}

impl<DB: QueueBackend> Statement<DB> for ClaimKeys<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.claim.due.queue;
        self.claim.push_columns(out.reborrow())?;
        push_table(queue, &mut out, " FROM ")?;
        // MySQL would rather walk the index, and lock every row on the way. It would do the same for an order.
        push_index_hint(queue, &mut out, DB::IGNORE_INDEX)?;
        out.push_sql(" WHERE ");
        push_keys(&self.keys, &mut out)?;
        out.push_sql(" AND ");
        self.claim.due.push_due(&mut out, DB::STATEMENT_TIME)?;
        if let Some(limit) = &self.limit {
            limit.push(&mut out)?;
        }
        push_claim_lock(&mut out);
        Ok(())
    }
}
