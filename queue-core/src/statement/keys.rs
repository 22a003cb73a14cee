//! Reads the primary keys of an operation's rows in portions, locks the rows, and changes rows by their keys. An
//! operation on very many rows does this in small transactions.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::change::Change;
use super::condition::{Condition, push_keys};
use super::limit::padded;
use super::names::push_table;
use crate::backend::{QueueBackend, Statement};
use crate::entity::{IsKey, QueueSql};

/// Reads the keys of the rows that a condition picks, in their order.
pub struct Keys<'a, DB: QueueBackend> {
    condition: Condition<'a, DB>,
    among: Option<Vec<IsKey<DB>>>,
    limit: Option<(i64, i64)>,
    lock: Option<bool>,
}

impl<'a, DB: QueueBackend> Keys<'a, DB> {
    /// Reads at most `limit` keys, after the first `offset` of them.
    pub fn some(condition: Condition<'a, DB>, limit: usize, offset: usize) -> Self {
        Keys { condition, among: None, limit: Some((bound(limit), bound(offset))), lock: None }
    }

    /// Locks those of these rows that the condition picks. It either passes over rows that others hold, or waits for
    /// them.
    pub fn lock(condition: Condition<'a, DB>, keys: Vec<IsKey<DB>>, passes_over: bool) -> Self {
        Keys { condition, among: Some(padded(keys)), limit: None, lock: Some(passes_over) }
    }
}

fn bound(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl<DB: QueueBackend> Statement<DB> for Keys<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.condition.queue;
        out.push_sql("SELECT ");
        queue.key_columns.walk_ast(out.reborrow())?;
        self.condition.push_from(out.reborrow())?;
        let separator = self.condition.push_where(out.reborrow())?;
        if let Some(keys) = &self.among {
            out.push_sql(separator);
            push_keys(keys, &mut out)?;
        }
        out.push_sql(" ORDER BY ");
        queue.key_columns.walk_ast(out.reborrow())?;
        if let Some((limit, offset)) = &self.limit {
            out.push_sql(" LIMIT ");
            DB::bind_big_integer(&mut out, limit)?;
            out.push_sql(" OFFSET ");
            DB::bind_big_integer(&mut out, offset)?;
        }
        match self.lock {
            Some(true) => out.push_sql(DB::CLAIM_LOCK),
            Some(false) => out.push_sql(DB::ROW_LOCK),
            None => {}
        }
        Ok(())
    }
}

/// Counts how many of the rows with some keys a condition still picks.
pub struct CountAmong<'a, DB: QueueBackend> {
    condition: Condition<'a, DB>,
    keys: Vec<IsKey<DB>>,
}

impl<'a, DB: QueueBackend> CountAmong<'a, DB> {
    /// Counts the rows with these keys.
    pub fn new(condition: Condition<'a, DB>, keys: Vec<IsKey<DB>>) -> Self {
        CountAmong { condition, keys: padded(keys) }
    }
}

impl<DB: QueueBackend> Statement<DB> for CountAmong<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT COUNT(*)");
        self.condition.push_from(out.reborrow())?;
        let separator = self.condition.push_where(out.reborrow())?;
        out.push_sql(separator);
        push_keys(&self.keys, &mut out)
    }
}

/// Changes the rows with some keys.
pub struct ChangeKeys<'a, DB: QueueBackend> {
    queue: &'static QueueSql<DB>,
    keys: Vec<IsKey<DB>>,
    change: &'a Change,
}

impl<'a, DB: QueueBackend> ChangeKeys<'a, DB> {
    /// Changes the rows with these keys.
    pub fn new(queue: &'static QueueSql<DB>, keys: Vec<IsKey<DB>>, change: &'a Change) -> Self {
        ChangeKeys { queue, keys: padded(keys), change }
    }
}

impl<DB: QueueBackend> Statement<DB> for ChangeKeys<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.queue;
        push_table(queue, &mut out, "UPDATE ")?;
        self.change.push_set(queue, out.reborrow())?;
        out.push_sql(" WHERE ");
        push_keys(&self.keys, &mut out)
    }
}
