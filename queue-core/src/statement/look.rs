//! Looks when the next row is due, without a lock.

use std::marker::PhantomData;
use std::time::Duration;

use diesel::RunQueryDsl;
use diesel::backend::Backend;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, Text};

use super::claim::{push_due, push_oldest};
use super::condition::push_column;
use super::head::push_due_head;
use crate::backend::QueueBackend;
use crate::column::NextAttemptTime;
use crate::entity::{QueueTable, Queueable};
use crate::guard::Guard;

/// The microseconds until the next row of `Q` is due, 0 or less when one is due already. Where one message is worked at a
/// time, the next row is the one whose turn it is.
pub struct Look<Q, DB: Backend> {
    guard: Option<Guard<DB>>,
    stages: Option<Vec<&'static str>>,
    entity: PhantomData<fn() -> Q>,
}

impl<Q: Queueable, DB: QueueBackend> Look<Q, DB> {
    /// How far a look reaches into the future: ten minutes. It also keeps `infinity` out.
    pub const HORIZON: Duration = Duration::from_secs(600);

    /// The look.
    #[expect(clippy::new_without_default, reason = "a statement has no default")]
    pub fn new() -> Self {
        Look { guard: Q::Queue::guard(), stages: None, entity: PhantomData }
    }

    /// Looks at rows in these stages only.
    pub fn in_stages(self, stages: Option<&[&'static str]>) -> Self {
        Look { stages: stages.map(<[_]>::to_vec), ..self }
    }
}

impl<Q, DB> QueryFragment<DB> for Look<Q, DB>
where
    Q: Queueable,
    DB: QueueBackend,
    Q::KeyColumns: QueryFragment<DB>,
    <Q::Queue as QueueTable>::Table: QueryFragment<DB>,
    DB::QueryBuilder: Default,
    str: ToSql<Text, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        out.push_sql(DB::MICROSECONDS_UNTIL.0);
        if Q::Queue::OPTIONS.exclusive {
            out.push_identifier(Q::Queue::COLUMNS.next_attempt_time)?;
        } else {
            push_column::<Q::Queue, NextAttemptTime, DB>(&mut out)?;
        }
        out.push_sql(DB::MICROSECONDS_UNTIL.1);
        let (before, after) = DB::STATEMENT_TIME_PLUS_MICROSECONDS;
        let horizon = format!("{before}{}{after}", Self::HORIZON.as_micros());
        if Q::Queue::OPTIONS.exclusive {
            return push_due_head::<Q, DB>(&mut out, &horizon, self.guard.as_ref(), self.stages.as_deref());
        }
        push_due::<Q::Queue, DB>(&mut out, &horizon, self.guard.as_ref(), self.stages.as_deref())?;
        push_oldest::<Q::Queue, DB>(&mut out, None, 1)
    }
}

impl<Q, DB: Backend> Query for Look<Q, DB> {
    type SqlType = BigInt;
}

impl<Q: Queueable + 'static, DB: Backend + 'static> QueryId for Look<Q, DB> {
    type QueryId = PhantomData<fn() -> (Self, Q)>;

    const HAS_STATIC_QUERY_ID: bool = !Q::Queue::OPTIONS.guarded && Q::Queue::OPTIONS.stages.is_none();
}

impl<Q, DB: Backend, C> RunQueryDsl<C> for Look<Q, DB> {}
