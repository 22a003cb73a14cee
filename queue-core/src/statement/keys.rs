//! Reads the primary keys of an operation's rows in portions, locks the rows, and changes rows by their keys. An
//! operation on very many rows does this in small transactions.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::change::Change;
use super::condition::{Condition, push_keys};
use super::limit::padded;
use super::writer::Writer;
use crate::backend::{QueueBackend, Statement};
use crate::entity::{IsKey, QueueSql};

/// Reads the keys of the rows that a condition picks, in their order.
pub struct Keys<'a, DB: QueueBackend> {
    condition: Condition<'a, DB>,
    limit: Option<(i64, i64)>,
    lock: &'static str,
}

impl<'a, DB: QueueBackend> Keys<'a, DB> {
    /// Reads at most `limit` keys, after the first `offset` of them.
    pub fn some(condition: Condition<'a, DB>, limit: usize, offset: usize) -> Self {
        let bound = |number| i64::try_from(number).unwrap_or(i64::MAX);
        Keys { condition, limit: Some((bound(limit), bound(offset))), lock: "" }
    }

    /// Locks the rows. It either passes over rows that others hold, or waits for them.
    pub fn lock(condition: Condition<'a, DB>, passes_over: bool) -> Self {
        Keys { condition, limit: None, lock: if passes_over { DB::CLAIM_LOCK } else { DB::ROW_LOCK } }
    }
}

impl<DB: QueueBackend> Statement<DB> for Keys<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.condition.queue, out);
        sql.push("SELECT {key}")?;
        self.condition.push_from(&mut sql)?;
        self.condition.push(&mut sql)?;
        sql.push(" ORDER BY {key}")?;
        if let Some((limit, offset)) = &self.limit {
            sql.push(" LIMIT ")?;
            DB::bind_big_integer(&mut sql.out, limit)?;
            sql.push(" OFFSET ")?;
            DB::bind_big_integer(&mut sql.out, offset)?;
        }
        sql.out.push_sql(self.lock);
        Ok(())
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
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.queue, out);
        sql.push("UPDATE {table}")?;
        self.change.push_set(&mut sql)?;
        sql.push(" WHERE ")?;
        push_keys(&mut sql, &self.keys)
    }
}
