//! Reads the keys of the rows that have been due longest, without a lock, and claims one of them by its key. The claim
//! checks the condition again under the lock.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::claim::Claim;
use super::condition::push_keys;
use super::due::Claimable;
use super::key_text::push_select_key;
use super::walk::{Walk, push_index_hint};
use super::writer::Writer;
use crate::backend::{QueueBackend, Statement};
use crate::entity::{IsKey, KeyedRow};

/// Reads the keys of the rows that have been due longest, each with its text: at most so many.
pub struct DueKeys<DB: QueueBackend>(pub Claimable<DB>, pub i64);

/// Claims one row by its key, if it is still due. The statement is prepared once and for all.
pub struct ClaimKey<DB: QueueBackend>(pub Claim<DB>, pub KeyedRow<DB>);

/// Claims several rows by their keys, those of them that are still due, in no order.
pub struct ClaimKeys<DB: QueueBackend> {
    /// The claim.
    pub claim: Claim<DB>,
    /// The keys.
    pub keys: Vec<IsKey<DB>>,
    /// The largest number of rows that are claimed, if not all. The others stay unlocked.
    pub limit: Option<i64>,
}

impl<DB: QueueBackend> Statement<DB> for DueKeys<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.0.queue, out);
        push_select_key(&mut sql)?;
        self.0.push_rows(&mut sql, Walk::OLDEST, DB::STATEMENT_TIME, &self.1)
    }
}

impl<DB: QueueBackend> Statement<DB> for ClaimKey<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let ClaimKey(claim, row) = self;
        let mut sql = Writer::new(row.queue, out);
        claim.push_columns(&mut sql)?;
        sql.push_is_key(" FROM {table} WHERE ", &row.is_key)?;
        sql.push(" AND ")?;
        claim.due.push_due(&mut sql, DB::STATEMENT_TIME)?;
        sql.push("{claim_lock}")
    }
}

impl<DB: QueueBackend> Statement<DB> for ClaimKeys<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.claim.due.queue, out);
        self.claim.push_columns(&mut sql)?;
        sql.push(" FROM {table}")?;
        // MySQL would rather walk the index, and lock every row on the way. It would do the same for an order.
        push_index_hint(&mut sql, DB::IGNORE_INDEX)?;
        sql.push(" WHERE ")?;
        push_keys(&mut sql, &self.keys)?;
        sql.push(" AND ")?;
        self.claim.due.push_due(&mut sql, DB::STATEMENT_TIME)?;
        if let Some(limit) = &self.limit {
            sql.push_limit(limit)?;
        }
        sql.push("{claim_lock}")
    }
}
