//! Reads when the next row is due, without a lock.

use std::marker::PhantomData;
use std::time::Duration;

use diesel::backend::Backend;
use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::due::push_due;
use super::head::push_due_head;
use super::limit::Limit;
use super::names::{push_column, push_within};
use super::scope::push_floor;
use super::walk::push_oldest;
use crate::backend::{QueueBackend, Statement};
use crate::entity::{ClaimCondition, Entity, QueueTable, StoredIn};
use crate::row::{HORIZON, Instant};

/// Reads the microseconds until the next row of `Q` is due, 0 or less if one is due already. In an exclusive queue the
/// next row is the one at the head.
pub struct ProbeDue<Q, DB: Backend> {
    claim_if: Option<ClaimCondition<DB>>,
    stages: Option<Vec<&'static str>>,
    pub(crate) entity: PhantomData<fn() -> Q>,
}

impl<Q: Entity, DB: QueueBackend> ProbeDue<Q, DB> {
    /// How far a probe looks into the future: ten minutes. The limit also keeps `infinity` out.
    pub const HORIZON: Duration = HORIZON;

    /// Makes the probe.
    #[expect(clippy::new_without_default, reason = "a statement has no default")]
    pub fn new() -> Self {
        ProbeDue { claim_if: Q::Queue::claim_condition(), stages: None, entity: PhantomData }
    }

    /// Looks only at rows in these stages.
    pub fn in_stages(self, stages: Option<&[&'static str]>) -> Self {
        ProbeDue { stages: stages.map(<[_]>::to_vec), ..self }
    }

    /// Looks only at rows that are due at this time or later.
    pub fn from(self, floor: Instant) -> ProbeDueFrom<Q, DB> {
        ProbeDueFrom { look: self, floor }
    }
}

/// Does the same without rows below the low-water mark. It is a statement of its own, prepared once like the other.
pub struct ProbeDueFrom<Q, DB: Backend> {
    look: ProbeDue<Q, DB>,
    floor: Instant,
}

impl<Q: StoredIn<DB>, DB: QueueBackend> Statement<DB> for ProbeDue<Q, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let horizon = horizon::<Q, DB>();
        if Q::Queue::OPTIONS.exclusive {
            push_microseconds_until(&mut out, |out| out.push_identifier(Q::Queue::COLUMNS.next_attempt_time))?;
            return push_due_head::<Q, DB>(&mut out, &horizon, self.claim_if.as_ref(), self.stages.as_deref());
        }
        push_microseconds_until(&mut out, |out| push_column::<Q::Queue, DB>(out, Q::Queue::COLUMNS.next_attempt_time))?;
        push_due::<Q::Queue, DB>(&mut out, &horizon, self.claim_if.as_ref(), self.stages.as_deref())?;
        push_oldest::<Q::Queue, DB>(&mut out, &[], const { &Limit::ONE })
    }
}

/// Writes the time up to which the probe looks.
fn horizon<Q: Entity, DB: QueueBackend>() -> String {
    let (before, after) = DB::STATEMENT_TIME_PLUS_MICROSECONDS;
    format!("{before}{}{after}", ProbeDue::<Q, DB>::HORIZON.as_micros())
}

/// Writes `SELECT`, and the time left until this column's time.
pub(crate) fn push_microseconds_until<'a, 'b, DB: QueueBackend>(
    out: &mut AstPass<'a, 'b, DB>,
    push_time: impl FnOnce(&mut AstPass<'a, 'b, DB>) -> QueryResult<()>,
) -> QueryResult<()> {
    out.push_sql("SELECT ");
    push_within(out, DB::MICROSECONDS_UNTIL, push_time)
}

impl<Q: StoredIn<DB>, DB: QueueBackend> Statement<DB> for ProbeDueFrom<Q, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let ProbeDue { claim_if, stages, .. } = &self.look;
        push_microseconds_until(&mut out, |out| push_column::<Q::Queue, DB>(out, Q::Queue::COLUMNS.next_attempt_time))?;
        push_due::<Q::Queue, DB>(&mut out, &horizon::<Q, DB>(), claim_if.as_ref(), stages.as_deref())?;
        push_floor::<Q::Queue, DB>(&mut out, &self.floor)?;
        push_oldest::<Q::Queue, DB>(&mut out, &[], const { &Limit::ONE })
    }
}

/// Returns a time that was read in microseconds.
pub(crate) fn time_until(microseconds: i64) -> Duration {
    Duration::from_micros(microseconds.max(0).unsigned_abs())
}
