//! Reads rows for an operation: how many, how many of each status, the rows themselves, some of
//! them to show, or their keys in portions. An operation on very many rows reads and locks those in small transactions.

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::claim::Claim;
use super::condition::Condition;
use super::writer::Writer;
use crate::backend::{QueueBackend, Statement};
use crate::entity::{SelectedIn, queue_state};

/// Counts the rows that a condition picks.
pub struct Count<'a, DB: QueueBackend>(pub Condition<'a, DB>);

/// Counts the rows of each status that a condition picks.
pub struct CountByStatus<'a, DB: QueueBackend>(pub Condition<'a, DB>);

/// Loads the rows that a condition picks, each with its queue state, ordered by primary key.
pub struct Load<'a, DB: QueueBackend> {
    selection: Box<dyn QueryFragment<DB>>,
    state: Box<dyn QueryFragment<DB>>,
    condition: Condition<'a, DB>,
    limit: Option<i64>,
}

impl<'a, DB: QueueBackend> Load<'a, DB> {
    /// Loads the rows, at most `limit` of them.
    pub fn new<Q: SelectedIn<DB>>(condition: Condition<'a, DB>, limit: Option<i64>) -> Self {
        Load { selection: Q::selection(), state: Box::new(queue_state::<Q::Queue>()), condition, limit }
    }
}

impl<DB: QueueBackend> Statement<DB> for Count<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.0.queue, out);
        sql.push("SELECT COUNT(*)")?;
        self.0.push_from(&mut sql)?;
        self.0.push(&mut sql)
    }
}

impl<DB: QueueBackend> Statement<DB> for CountByStatus<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.0.queue, out);
        sql.push("SELECT {.status}, COUNT(*) FROM {table}")?;
        self.0.push(&mut sql)?;
        sql.push(" GROUP BY {.status}")
    }
}

impl<DB: QueueBackend> Statement<DB> for Load<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.condition.queue, out);
        sql.push("SELECT ")?;
        sql.push_fragment(&*self.selection)?;
        sql.push(", ")?;
        sql.push_fragment(&*self.state)?;
        sql.push(" FROM {table}")?;
        self.condition.push(&mut sql)?;
        sql.push(" ORDER BY {key}")?;
        if let Some(limit) = &self.limit {
            sql.push(" LIMIT ")?;
            DB::bind_big_integer(&mut sql.out, limit)?;
        }
        Ok(())
    }
}

/// Reads the first rows that a condition picks, in the order of the primary key: the key and the state of each as they
/// are, and the entity if it can be decoded.
pub struct Sample<'a, DB: QueueBackend> {
    /// What is read of each row.
    pub row: Claim<DB>,
    /// The condition.
    pub condition: Condition<'a, DB>,
    /// The largest number of rows.
    pub limit: usize,
}

impl<DB: QueueBackend> Statement<DB> for Sample<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.condition.queue, out);
        self.row.push_columns(&mut sql)?;
        self.condition.push_from(&mut sql)?;
        self.condition.push(&mut sql)?;
        sql.push(&format!(" ORDER BY {{key}} LIMIT {}", self.limit))
    }
}

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
