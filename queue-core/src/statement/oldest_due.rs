//! Reads how long the oldest due row has been due.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::due::Claimable;
use super::limit::Limit;
use super::names::push_column;
use super::odd_time::push_microseconds;
use super::walk::push_oldest;
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
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.due.queue;
        out.push_sql("SELECT COALESCE(");
        push_microseconds(&mut out, &|out| {
            out.push_sql(DB::STATEMENT_TIME);
            Ok(())
        })?;
        out.push_sql(" - ");
        push_microseconds(&mut out, &|out| push_column(queue, out, queue.names.next_attempt_time))?;
        out.push_sql(", 0)");
        self.due.push_from(&mut out, DB::STATEMENT_TIME)?;
        push_oldest(queue, &mut out, &[], const { &Limit::ONE })
    }
}
