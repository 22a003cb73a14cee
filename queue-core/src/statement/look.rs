//! Looks when the next row is due, without a lock.

use std::marker::PhantomData;
use std::time::Duration;

use diesel::RunQueryDsl;
use diesel::backend::Backend;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::sql_types::BigInt;

use super::claim::{push_due, push_oldest};
use super::condition::push_column;
use crate::backend::QueueBackend;
use crate::column::NextAttemptTime;
use crate::entity::{QueueTable, Queueable};
use crate::guard::Guard;

/// The microseconds until the next row of `Q` is due, 0 or less when one is due already.
pub struct Look<Q, DB: Backend> {
    guard: Option<Guard<DB>>,
    entity: PhantomData<fn() -> Q>,
}

impl<Q: Queueable, DB: QueueBackend> Look<Q, DB> {
    /// How far a look reaches into the future: ten minutes. It also keeps `infinity` out.
    pub const HORIZON: Duration = Duration::from_secs(600);

    /// The look.
    #[expect(clippy::new_without_default, reason = "a statement has no default")]
    pub fn new() -> Self {
        Look { guard: Q::Queue::guard(), entity: PhantomData }
    }
}

impl<Q, DB> QueryFragment<DB> for Look<Q, DB>
where
    Q: Queueable,
    DB: QueueBackend,
    <Q::Queue as QueueTable>::Table: QueryFragment<DB>,
    DB::QueryBuilder: Default,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        out.push_sql(DB::MICROSECONDS_UNTIL.0);
        push_column::<Q::Queue, NextAttemptTime, DB>(&mut out)?;
        out.push_sql(DB::MICROSECONDS_UNTIL.1);
        let (before, after) = DB::STATEMENT_TIME_PLUS_MICROSECONDS;
        let horizon = format!("{before}{}{after}", Self::HORIZON.as_micros());
        push_due::<Q::Queue, DB>(&mut out, &horizon, self.guard.as_ref())?;
        push_oldest::<Q::Queue, DB>(&mut out, 1)
    }
}

impl<Q, DB: Backend> Query for Look<Q, DB> {
    type SqlType = BigInt;
}

impl<Q: Queueable + 'static, DB: Backend + 'static> QueryId for Look<Q, DB> {
    type QueryId = PhantomData<fn() -> (Self, Q)>;

    const HAS_STATIC_QUERY_ID: bool = !Q::Queue::OPTIONS.guarded;
}

impl<Q, DB: Backend, C> RunQueryDsl<C> for Look<Q, DB> {}
