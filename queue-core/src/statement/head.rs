//! Finds the first row of an exclusive queue: the first pending one, due or not.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::condition::{StateCondition, push_claimable, push_exceptions};
use super::due::push_claim_condition;
use super::key_text::push_key_text;
use super::names::{push_columns, push_names, push_table};
use super::scope::push_stages;
use super::walk::{push_index_hint, push_order_columns, push_ordered_index_hint, push_pending_flag};
use crate::backend::{QueueBackend, Statement};
use crate::entity::{ClaimCondition, Entity, QueueTable, StoredIn};
use crate::row::Status;

/// Reads the primary key, and its text, of the first pending row of `Q` by its order, then by its key. It passes over a
/// row whose condition is false, because that row is not work now.
pub struct Head<Q, DB: Backend> {
    claim_if: Option<ClaimCondition<DB>>,
    stages: Option<Vec<&'static str>>,
    entity: PhantomData<fn() -> Q>,
}

impl<Q: Entity, DB: QueueBackend> Head<Q, DB> {
    /// Makes the statement.
    #[expect(clippy::new_without_default, reason = "a statement has no default")]
    pub fn new() -> Self {
        Head { claim_if: Q::Queue::claim_condition(), stages: None, entity: PhantomData }
    }

    /// Finds the first row in these stages.
    pub fn in_stages(self, stages: Option<&[&'static str]>) -> Self {
        Head { stages: stages.map(<[_]>::to_vec), ..self }
    }
}

/// Reads the status of a row that a worker holds under a lease, but not of the one with this key.
pub struct AnotherIsLeased<Q: Entity> {
    except: Option<Q::IsKey>,
}

impl<Q: Entity> AnotherIsLeased<Q> {
    /// Finds a row under a lease with another key than this.
    pub fn new(except: Option<&Q::Key>) -> Self {
        AnotherIsLeased { except: except.cloned().map(Q::is_key) }
    }
}

impl<Q: StoredIn<DB>, DB: QueueBackend> Statement<DB> for Head<Q, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        Q::KEY_COLUMNS.walk_ast(out.reborrow())?;
        out.push_sql(", ");
        push_key_text::<Q, DB>(&mut out)?;
        push_head::<Q, DB>(&mut out, self.claim_if.as_ref(), self.stages.as_deref())
    }
}

impl<Q: StoredIn<DB>, DB: QueueBackend> Statement<DB> for AnotherIsLeased<Q> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_columns::<Q::Queue, DB>(&mut out, "SELECT {}", &[Q::Queue::COLUMNS.status])?;
        push_table::<Q::Queue, DB>(&mut out, " FROM ")?;
        push_index_hint::<Q::Queue, DB>(&mut out, DB::INDEX_HINT)?;
        out.push_sql(" WHERE ");
        StateCondition::Scheduled.push::<Q::Queue, DB>(&mut out)?;
        // However far away the end of the lease is: another version of the application may have longer leases.
        out.push_sql(" AND ");
        StateCondition::In(&[Status::InProgress]).push::<Q::Queue, DB>(&mut out)?;
        push_exceptions(self.except.as_slice(), &mut out)?;
        out.push_sql(" LIMIT 1");
        Ok(())
    }
}

/// Writes ` FROM table WHERE next_attempt_time IS NOT NULL AND status IN (..) ORDER BY .. LIMIT 1`.
pub(crate) fn push_head<'b, Q, DB>(
    out: &mut AstPass<'_, 'b, DB>,
    claim_if: Option<&'b ClaimCondition<DB>>,
    stages: Option<&'b [&'static str]>,
) -> QueryResult<()>
where
    Q: StoredIn<DB>,
    DB: QueueBackend,
{
    push_table::<Q::Queue, DB>(out, " FROM ")?;
    push_ordered_index_hint::<Q::Queue, DB>(out, DB::ORDERED_INDEX_HINT)?;
    out.push_sql(" WHERE ");
    push_pending_flag::<Q::Queue, DB>(out)?;
    StateCondition::Pending.push::<Q::Queue, DB>(out)?;
    out.push_sql(" AND ");
    push_claimable::<Q::Queue, DB>(out)?;
    push_stages::<Q::Queue, DB>(out, stages)?;
    push_claim_condition(out, claim_if)?;
    out.push_sql(" ORDER BY ");
    if let Some(order) = Q::Queue::OPTIONS.order {
        push_order_columns::<Q::Queue, DB>(out, order.columns)?;
    }
    Q::KEY_COLUMNS.walk_ast(out.reborrow())?;
    out.push_sql(" LIMIT 1");
    Ok(())
}

/// Writes ` FROM (SELECT next_attempt_time ..) AS queueable_head WHERE next_attempt_time <= until`.
pub(crate) fn push_due_head<'b, Q, DB>(
    out: &mut AstPass<'_, 'b, DB>,
    until: &str,
    claim_if: Option<&'b ClaimCondition<DB>>,
    stages: Option<&'b [&'static str]>,
) -> QueryResult<()>
where
    Q: StoredIn<DB>,
    DB: QueueBackend,
{
    push_columns::<Q::Queue, DB>(out, " FROM (SELECT {}", &[Q::Queue::COLUMNS.next_attempt_time])?;
    push_head::<Q, DB>(out, claim_if, stages)?;
    push_names(out, ") AS queueable_head WHERE {} <= ", &[Q::Queue::COLUMNS.next_attempt_time])?;
    out.push_sql(until);
    Ok(())
}
