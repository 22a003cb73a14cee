//! Reads the primary keys of an operation's rows in portions, locks the rows, and changes rows by their keys. An
//! operation on very many rows does this in small transactions.

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::change::Change;
use super::condition::{Condition, push_keys};
use super::limit::is_keys;
use super::names::push_table;
use crate::backend::{QueueBackend, Statement};
use crate::entity::{Entity, StoredIn};

/// Reads the keys of the rows that a condition picks, in their order.
pub struct Keys<'a, Q: Entity, F> {
    condition: Condition<'a, Q::Queue, F>,
    among: Option<Vec<Q::IsKey>>,
    limit: Option<(i64, i64)>,
    lock: Option<bool>,
}

impl<'a, Q: Entity, F> Keys<'a, Q, F> {
    /// Reads at most `limit` keys, after the first `offset` of them.
    pub fn some(condition: Condition<'a, Q::Queue, F>, limit: usize, offset: usize) -> Self {
        Keys { condition, among: None, limit: Some((bound(limit), bound(offset))), lock: None }
    }

    /// Locks those of these rows that the condition picks. It either passes over rows that others hold, or waits for
    /// them.
    pub fn lock(condition: Condition<'a, Q::Queue, F>, keys: &[Q::Key], passes_over: bool) -> Self {
        Keys { condition, among: Some(is_keys::<Q>(keys.iter().collect())), limit: None, lock: Some(passes_over) }
    }
}

fn bound(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl<Q: StoredIn<DB>, F: QueryFragment<DB>, DB: QueueBackend> Statement<DB> for Keys<'_, Q, F> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        Q::KEY_COLUMNS.walk_ast(out.reborrow())?;
        self.condition.push_from(out.reborrow())?;
        let separator = self.condition.push_where(out.reborrow())?;
        if let Some(keys) = &self.among {
            out.push_sql(separator);
            push_keys(keys, &mut out)?;
        }
        out.push_sql(" ORDER BY ");
        Q::KEY_COLUMNS.walk_ast(out.reborrow())?;
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
pub struct CountAmong<'a, Q: Entity, F> {
    condition: Condition<'a, Q::Queue, F>,
    keys: Vec<Q::IsKey>,
}

impl<'a, Q: Entity, F> CountAmong<'a, Q, F> {
    /// Counts the rows with these keys.
    pub fn new(condition: Condition<'a, Q::Queue, F>, keys: &[Q::Key]) -> Self {
        CountAmong { condition, keys: is_keys::<Q>(keys.iter().collect()) }
    }
}

impl<Q: StoredIn<DB>, F: QueryFragment<DB>, DB: QueueBackend> Statement<DB> for CountAmong<'_, Q, F> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT COUNT(*)");
        self.condition.push_from(out.reborrow())?;
        let separator = self.condition.push_where(out.reborrow())?;
        out.push_sql(separator);
        push_keys(&self.keys, &mut out)
    }
}

/// Changes the rows with some keys.
pub struct ChangeKeys<'a, Q: Entity> {
    keys: Vec<Q::IsKey>,
    change: &'a Change,
}

impl<'a, Q: Entity> ChangeKeys<'a, Q> {
    /// Changes the rows with these keys.
    pub fn new(keys: &[Q::Key], change: &'a Change) -> Self {
        ChangeKeys { keys: is_keys::<Q>(keys.iter().collect()), change }
    }
}

impl<Q: StoredIn<DB>, DB: QueueBackend> Statement<DB> for ChangeKeys<'_, Q> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_table::<Q::Queue, DB>(&mut out, "UPDATE ")?;
        self.change.push_set::<Q::Queue, DB>(out.reborrow())?;
        out.push_sql(" WHERE ");
        push_keys(&self.keys, &mut out)
    }
}
