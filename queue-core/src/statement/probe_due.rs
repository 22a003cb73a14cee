//! Reads when the next row is due, and how long the oldest has been due, without a lock.

use std::time::Duration;

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::condition::statement_time_plus;
use super::due::Claimable;
use super::head::push_due_head;
use super::walk::Walk;
use super::writer::Writer;
use crate::backend::{QueueBackend, Statement};
use crate::row::{HORIZON, microseconds};

/// Reads the microseconds until the next row is due, 0 or less if one is due already. In an exclusive queue the
/// next row is the one at the head.
pub struct ProbeDue<DB: QueueBackend>(pub Claimable<DB>);

impl<DB: QueueBackend> ProbeDue<DB> {
    /// How far a probe looks into the future: ten minutes. The limit also keeps `infinity` out.
    pub const HORIZON: Duration = HORIZON;
}

/// Reads the microseconds for which the oldest due row has been due, without a lock: one entry of the index, also in
/// a queue with another order. 0 if its time is odd.
///
/// A probe asks for the opposite: it stops at zero, because a worker only has to know whether a row is due.
pub struct OldestDue<DB: QueueBackend>(pub Claimable<DB>);

impl<DB: QueueBackend> Statement<DB> for ProbeDue<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.0.queue, out);
        let horizon = statement_time_plus::<DB>(microseconds(HORIZON));
        if sql.queue.options.exclusive {
            push_microseconds_until(&mut sql, "{next_attempt_time}")?;
            return push_due_head(&self.0, &mut sql, &horizon);
        }
        push_microseconds_until(&mut sql, "{.next_attempt_time}")?;
        self.0.push_rows(&mut sql, Walk::OLDEST, &horizon, &1)
    }
}

impl<DB: QueueBackend> Statement<DB> for OldestDue<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.0.queue, out);
        sql.push("SELECT COALESCE(")?;
        sql.push_microseconds("{statement_time}")?;
        sql.push(" - ")?;
        sql.push_microseconds("{.next_attempt_time}")?;
        sql.push(", 0)")?;
        self.0.push_rows(&mut sql, Walk::OLDEST, DB::STATEMENT_TIME, &1)
    }
}

/// Writes `SELECT`, and the time left until this column's time.
pub(crate) fn push_microseconds_until<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>, time: &str) -> QueryResult<()> {
    sql.push("SELECT ")?;
    sql.push_within(DB::MICROSECONDS_UNTIL, time)
}

/// Returns a time that was read in microseconds.
pub(crate) fn time_until(microseconds: i64) -> Duration {
    Duration::from_micros(microseconds.max(0).unsigned_abs())
}
