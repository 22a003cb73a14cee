//! Reads when the next row is due, without a lock.

use std::time::Duration;

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::condition::statement_time_plus;
use super::due::Claimable;
use super::head::push_due_head;
use super::limit::Limit;
use super::walk::Walk;
use super::writer::Writer;
use crate::backend::{QueueBackend, Statement};
use crate::entity::QueueSql;
use crate::row::{HORIZON, Instant, microseconds};

/// Reads the microseconds until the next row is due, 0 or less if one is due already. In an exclusive queue the
/// next row is the one at the head.
pub struct ProbeDue<DB: QueueBackend> {
    due: Claimable<DB>,
}

impl<DB: QueueBackend> ProbeDue<DB> {
    /// How far a probe looks into the future: ten minutes. The limit also keeps `infinity` out.
    pub const HORIZON: Duration = HORIZON;

    /// Looks at the rows in these stages, or in all of the entity's.
    pub fn new(queue: &'static QueueSql<DB>, stages: Option<&[&'static str]>) -> Self {
        ProbeDue { due: Claimable::new(queue, stages) }
    }

    /// Looks only at rows that are due at this time or later.
    pub fn not_below(self, floor: Option<Instant>) -> Self {
        ProbeDue { due: self.due.not_below(floor) }
    }
}

impl<DB: QueueBackend> Statement<DB> for ProbeDue<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.due.queue, out);
        let horizon = statement_time_plus::<DB>(microseconds(HORIZON));
        if sql.queue.options.exclusive {
            push_microseconds_until(&mut sql, "{next_attempt_time}")?;
            return push_due_head(&self.due, &mut sql, &horizon);
        }
        push_microseconds_until(&mut sql, "{.next_attempt_time}")?;
        self.due.push_from(&mut sql, &horizon)?;
        Walk::Oldest.push_order(&mut sql, Limit::ONE)
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
