//! Reads how long the oldest due row has been due.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::due::push_due;
use super::limit::Limit;
use super::names::push_column;
use super::odd_time::push_microseconds;
use super::walk::push_oldest;
use crate::backend::{QueueBackend, Statement};
use crate::entity::{ClaimCondition, Entity, QueueTable, StoredIn};

/// Reads the microseconds for which the oldest due row of `Q` has been due, without a lock: one entry of the index, also in
/// a queue with another order. 0 if its time is odd.
///
/// A probe asks for the opposite: it stops at zero, because a worker only has to know whether a row is due.
pub struct OldestDue<Q, DB: Backend> {
    claim_if: Option<ClaimCondition<DB>>,
    stages: Option<Vec<&'static str>>,
    entity: PhantomData<fn() -> Q>,
}

impl<Q: Entity, DB: QueueBackend> OldestDue<Q, DB> {
    /// Makes the statement, for the rows in these stages.
    pub fn new(stages: Option<&[&'static str]>) -> Self {
        let stages = stages.map(<[_]>::to_vec);
        OldestDue { claim_if: Q::Queue::claim_condition(), stages, entity: PhantomData }
    }
}

impl<Q: StoredIn<DB>, DB: QueueBackend> Statement<DB> for OldestDue<Q, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT COALESCE(");
        push_microseconds(&mut out, &|out| {
            out.push_sql(DB::STATEMENT_TIME);
            Ok(())
        })?;
        out.push_sql(" - ");
        push_microseconds(&mut out, &|out| push_column::<Q::Queue, DB>(out, Q::Queue::COLUMNS.next_attempt_time))?;
        out.push_sql(", 0)");
        push_due::<Q::Queue, DB>(&mut out, DB::STATEMENT_TIME, self.claim_if.as_ref(), self.stages.as_deref())?;
        push_oldest::<Q::Queue, DB>(&mut out, &[], const { &Limit::ONE })
    }
}
