//! Takes due rows under a lease where a claim cannot pass over rows that others hold: an update first, then a select of
//! the rows that it has changed.
//!
//! The update writes the same end of the lease on all its rows. A random part makes that time a token, by which the
//! select finds the rows. If two claims draw the same token, the select finds more rows than the update has changed,
//! and the claim starts again.

use std::time::Duration;

use diesel::Selectable;
use diesel::backend::Backend;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::change::push_begun_schedule;
use super::claim::Claim;
use super::condition::{StateCondition, push_exceptions};
use super::due::{push_due_rows, time_ago};
use super::limit::{Limit, is_keys, keep_if_few};
use super::names::{push_columns, push_names, push_table, push_updated};
use super::walk::Walk;
use crate::backend::{QueueBackend, Statement};
use crate::entity::{ClaimCondition, Entity, QueueTable, SelectedIn, StoredIn, TableIn};
use crate::row::{Instant, LEASE_EXPIRED, Status};

/// The statuses after which an attempt is the first of a new enqueueing.
pub(crate) const FINISHED: StateCondition = StateCondition::In(&[Status::Success, Status::Failed, Status::Skipped]);

/// What follows a condition under which the tries are counted from the start. One more than the largest number would be
/// out of the column's range, and an error for all rows of the claim.
pub(crate) const ANOTHER_TRY: &str = " OR {} < 0 THEN 1 WHEN {} = 2147483647 THEN 2147483647 ELSE {} + 1 END, ";

/// Reads the database's current time: the beginning of the leases, from which their end is counted.
pub struct Present;

/// The update: up to `limit` due rows become `IN_PROGRESS`, their attempt is counted, and their lease ends at the token.
pub struct Take<Q: Entity, DB: Backend> {
    claim_if: Option<ClaimCondition<DB>>,
    stages: Option<Vec<&'static str>>,
    began: Instant,
    token: Instant,
    pub(crate) limit: Limit,
    excepted: Vec<Q::IsKey>,
    walk: Walk,
    age: Option<Duration>,
}

impl<Q: Entity, DB: QueueBackend> Take<Q, DB> {
    /// Takes rows, except those with these keys.
    pub fn new<'k>(began: Instant, token: Instant, limit: u32, except: impl IntoIterator<Item = &'k Q::Key>) -> Self
    where
        Q::Key: 'k,
    {
        Take {
            claim_if: Q::Queue::claim_condition(),
            stages: None,
            began,
            token,
            limit: Limit::of(limit),
            excepted: is_keys::<Q>(except.into_iter().collect()),
            walk: Walk::of::<Q::Queue>(),
            age: None,
        }
    }

    /// Takes only rows in these stages.
    pub fn in_stages(self, stages: Option<&[&'static str]>) -> Self {
        Take { stages: stages.map(<[_]>::to_vec), ..self }
    }

    /// Takes rows that have been due for longer than this, those first that have been due longest, whatever the
    /// entity's order.
    pub fn aged(self, age: Duration) -> Self {
        Take { walk: Walk::Oldest, age: Some(age), ..self }
    }
}

/// Selects the rows with a token.
pub struct Taken<Q: Selectable<DB>, DB: Backend> {
    claim: Claim<Q, DB>,
    token: Instant,
}

impl<Q: Entity + Selectable<DB>, DB: QueueBackend> Taken<Q, DB> {
    /// Selects the rows that were taken with this token.
    pub fn new(token: Instant) -> Self {
        Taken { claim: Claim::new(), token }
    }
}

impl<DB: QueueBackend> Statement<DB> for Present {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        out.push_sql(DB::NOW);
        Ok(())
    }
}

impl<Q: StoredIn<DB>, DB: QueueBackend> Statement<DB> for Take<Q, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        if !DB::UPDATE_HAS_LIMIT {
            // In a WITH, which runs once. PostgreSQL may run a subquery once for each row of the table, and each run
            // would lock the next rows and have them updated.
            out.push_sql("WITH queueable_due AS (SELECT ");
            Q::KEY_COLUMNS.walk_ast(out.reborrow())?;
            self.walk.push_from::<Q::Queue, DB>(&mut out)?;
            self.push_due(out.reborrow())?;
            out.push_sql(DB::CLAIM_LOCK);
            out.push_sql(") ");
        }
        push_table::<Q::Queue, DB>(&mut out, "UPDATE ")?;
        if DB::UPDATE_HAS_LIMIT {
            self.walk.push_hint::<Q::Queue, DB>(&mut out)?;
        }
        self.push_set(out.reborrow())?;
        out.push_sql(" WHERE ");
        if DB::UPDATE_HAS_LIMIT {
            self.walk.push_flag::<Q::Queue, DB>(&mut out)?;
            return self.push_due(out);
        }
        out.push_sql("(");
        Q::KEY_COLUMNS.walk_ast(out.reborrow())?;
        out.push_sql(") IN (SELECT * FROM queueable_due)");
        Ok(())
    }
}

impl<Q: StoredIn<DB>, DB: QueueBackend> Take<Q, DB> {
    /// Writes ` SET ..`. MySQL assigns from left to right and reads what it has assigned. So the status comes last, and
    /// the number of attempts comes after the text that contains it.
    fn push_set<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let names = Q::Queue::COLUMNS;
        out.push_sql(" SET ");
        if let Some(periodic) = Q::Queue::OPTIONS.periodic {
            push_names(&mut out, "{} = ", &[periodic.scheduled_time])?;
            push_begun_schedule(periodic, names, &mut out)?;
            out.push_sql(", ");
        }
        push_expired_lease::<Q::Queue, DB>(&mut out, |out| out.push_identifier(names.try_count))?;
        push_names(&mut out, " ELSE {} END, {} = CASE WHEN ", &[names.last_attempt_error_message, names.try_count])?;
        FINISHED.push::<Q::Queue, DB>(&mut out)?;
        push_names(&mut out, ANOTHER_TRY, &[names.try_count; 3])?;
        push_names(&mut out, "{} = ", &[names.next_attempt_time])?;
        DB::bind_time(&mut out, &self.token)?;
        push_names(&mut out, ", {} = ", &[names.last_attempt_time])?;
        DB::bind_time(&mut out, &self.began)?;
        out.push_sql(", ");
        push_updated::<Q::Queue, DB>(&mut out, "", ", ")?;
        push_names(&mut out, "{} = '", &[names.status])?;
        out.push_sql(Status::InProgress.as_str());
        out.push_sql("'");
        Ok(())
    }

    /// Writes the condition of the due rows, their order and their number.
    fn push_due<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        keep_if_few(&mut out, self.excepted.len());
        let until = self.age.map(time_ago::<DB>);
        let until = until.as_deref().unwrap_or(DB::STATEMENT_TIME);
        push_due_rows::<Q::Queue, DB>(&mut out, until, self.claim_if.as_ref(), self.stages.as_deref())?;
        push_exceptions(&self.excepted, &mut out)?;
        self.walk.push_order::<Q::Queue, DB>(&mut out, &self.limit)
    }
}

/// Writes `text = CASE WHEN leased THEN 'the lease .. ' || tries`.
pub(crate) fn push_expired_lease<T: TableIn<DB>, DB: QueueBackend>(
    out: &mut AstPass<'_, '_, DB>,
    push_tries: impl FnOnce(&mut AstPass<'_, '_, DB>) -> QueryResult<()>,
) -> QueryResult<()> {
    let (before, between, after) = DB::CONCATENATION;
    push_names(out, "{} = CASE WHEN ", &[T::COLUMNS.last_attempt_error_message])?;
    StateCondition::In(&[Status::InProgress]).push::<T, DB>(out)?;
    [" THEN ", before, "'", LEASE_EXPIRED, "'", between].iter().for_each(|part| out.push_sql(part));
    push_tries(out)?;
    out.push_sql(after);
    Ok(())
}

impl<Q: SelectedIn<DB>, DB: QueueBackend> Statement<DB> for Taken<Q, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let names = Q::Queue::COLUMNS;
        self.claim.push_columns(out.reborrow())?;
        push_table::<Q::Queue, DB>(&mut out, " FROM ")?;
        push_columns::<Q::Queue, DB>(&mut out, " WHERE {} = ", &[names.next_attempt_time])?;
        DB::bind_time(&mut out, &self.token)?;
        push_columns::<Q::Queue, DB>(&mut out, " AND {} = '", &[names.status])?;
        out.push_sql(Status::InProgress.as_str());
        out.push_sql("'");
        Ok(())
    }
}
