//! Reads when the next row is due, without a lock.

use std::time::Duration;

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::due::Claimable;
use super::head::push_due_head;
use super::limit::Limit;
use super::names::{push_column, push_within};
use super::scope::push_floor;
use super::walk::push_oldest;
use crate::backend::{QueueBackend, Statement};
use crate::entity::QueueSql;
use crate::row::{HORIZON, Instant};

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
    pub fn from(self, floor: Instant) -> ProbeDueFrom<DB> {
        ProbeDueFrom { look: self, floor }
    }
}

/// Does the same without rows below the low-water mark. It is a statement of its own, prepared once like the other.
pub struct ProbeDueFrom<DB: QueueBackend> {
    look: ProbeDue<DB>,
    floor: Instant,
}

impl<DB: QueueBackend> Statement<DB> for ProbeDue<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.due.queue;
        let horizon = horizon::<DB>();
        if queue.options.exclusive {
            push_microseconds_until(&mut out, |out| out.push_identifier(queue.names.next_attempt_time))?;
            return push_due_head(&self.due, &mut out, &horizon);
        }
        push_microseconds_until(&mut out, |out| push_column(queue, out, queue.names.next_attempt_time))?;
        self.due.push_from(&mut out, &horizon)?;
        push_oldest(queue, &mut out, &[], const { &Limit::ONE })
    }
}

/// Writes the time up to which the probe looks.
fn horizon<DB: QueueBackend>() -> String {
    let (before, after) = DB::STATEMENT_TIME_PLUS_MICROSECONDS;
    format!("{before}{}{after}", HORIZON.as_micros())
}

/// Writes `SELECT`, and the time left until this column's time.
pub(crate) fn push_microseconds_until<'a, 'b, DB: QueueBackend>(
    out: &mut AstPass<'a, 'b, DB>,
    push_time: impl FnOnce(&mut AstPass<'a, 'b, DB>) -> QueryResult<()>,
) -> QueryResult<()> {
    out.push_sql("SELECT ");
    push_within(out, DB::MICROSECONDS_UNTIL, push_time)
}

impl<DB: QueueBackend> Statement<DB> for ProbeDueFrom<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.look.due.queue;
        push_microseconds_until(&mut out, |out| push_column(queue, out, queue.names.next_attempt_time))?;
        self.look.due.push_from(&mut out, &horizon::<DB>())?;
        push_floor(queue, &mut out, &self.floor)?;
        push_oldest(queue, &mut out, &[], const { &Limit::ONE })
    }
}

/// Returns a time that was read in microseconds.
pub(crate) fn time_until(microseconds: i64) -> Duration {
    Duration::from_micros(microseconds.max(0).unsigned_abs())
}
