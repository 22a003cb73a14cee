//! Reads how long the oldest due row has been due.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::due::Claimable;
use super::limit::Limit;
use super::odd_time::push_microseconds;
use super::walk::Walk;
use super::writer::Writer;
use crate::backend::{QueueBackend, Statement};
use crate::entity::QueueSql;

/// Reads the microseconds for which the oldest due row has been due, without a lock: one entry of the index, also in
/// a queue with another order. 0 if its time is odd.
///
/// A probe asks for the opposite: it stops at zero, because a worker only has to know whether a row is due.
pub struct OldestDue<DB: QueueBackend> {
    due: Claimable<DB>,
}

impl<DB: QueueBackend> OldestDue<DB> {
    /// Makes the statement, for the rows in these stages.
    pub fn new(queue: &'static QueueSql<DB>, stages: Option<&[&'static str]>) -> Self {
        OldestDue { due: Claimable::new(queue, stages) }
    }
}

impl<DB: QueueBackend> Statement<DB> for OldestDue<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.due.queue, out);
        sql.push("SELECT COALESCE(")?;
        push_microseconds(&mut sql, "{statement_time}")?;
        sql.push(" - ")?;
        push_microseconds(&mut sql, "{.next_attempt_time}")?;
        sql.push(", 0)")?;
        self.due.push_from(&mut sql, DB::STATEMENT_TIME)?;
        Walk::Oldest.push_order(&mut sql, Limit::ONE)
    }
}
