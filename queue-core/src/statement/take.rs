//! Takes due rows under a lease where a claim cannot pass over rows that others hold: an update first, then a select of
//! the rows that it has changed.
//!
//! The update writes the same end of the lease on all its rows. A random part makes that time a token, by which the
//! select finds the rows. If two claims draw the same token, the select finds more rows than the update has changed,
//! and the claim starts again.

use std::time::Duration;

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::change::push_begun_schedule;
use super::claim::Claim;
use super::condition::{StateCondition, push_exceptions};
use super::due::{Claimable, time_ago};
use super::limit::{Limit, keep_if_few, padded};
use super::names::{push_columns, push_names, push_table, push_updated};
use super::walk::Walk;
use crate::backend::{QueueBackend, Statement};
use crate::entity::{IsKey, QueueSql};
use crate::row::{Instant, LEASE_EXPIRED, Status};

/// The statuses after which an attempt is the first of a new enqueueing.
pub(crate) const FINISHED: StateCondition = StateCondition::In(&[Status::Success, Status::Failed, Status::Skipped]);

/// What follows a condition under which the tries are counted from the start. One more than the largest number would be
/// out of the column's range, and an error for all rows of the claim.
pub(crate) const ANOTHER_TRY: &str = " OR {} < 0 THEN 1 WHEN {} = 2147483647 THEN 2147483647 ELSE {} + 1 END, ";

/// Reads the database's current time: the beginning of the leases, from which their end is counted.
pub struct Present;

/// The update: up to `limit` due rows become `IN_PROGRESS`, their attempt is counted, and their lease ends at the token.
pub struct Take<DB: QueueBackend> {
    due: Claimable<DB>,
    began: Instant,
    token: Instant,
    pub(crate) limit: Limit,
    excepted: Vec<IsKey<DB>>,
    walk: Walk,
    age: Option<Duration>,
}

impl<DB: QueueBackend> Take<DB> {
    /// Takes rows in these stages, or in all of the entity's, except those with some keys.
    pub fn new(
        queue: &'static QueueSql<DB>,
        stages: Option<&[&'static str]>,
        (began, token): (Instant, Instant),
        limit: u32,
        excepted: Vec<IsKey<DB>>,
    ) -> Self {
        let (due, walk) = (Claimable::new(queue, stages), Walk::of(queue.options));
        Take { due, began, token, limit: Limit::of(limit), excepted: padded(excepted), walk, age: None }
    }

    /// Takes rows that have been due for longer than this, those first that have been due longest, whatever the
    /// entity's order.
    pub fn aged(self, age: Duration) -> Self {
        Take { walk: Walk::Oldest, age: Some(age), ..self }
    }
}

/// Selects the rows with a token.
pub struct Taken<DB: QueueBackend> {
    claim: Claim<DB>,
    token: Instant,
}

impl<DB: QueueBackend> Taken<DB> {
    /// Selects the rows that were taken with this token.
    pub fn new(claim: Claim<DB>, token: Instant) -> Self {
        Taken { claim, token }
    }
}

impl<DB: QueueBackend> Statement<DB> for Present {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        out.push_sql(DB::NOW);
        Ok(())
    }
}

impl<DB: QueueBackend> Statement<DB> for Take<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.due.queue;
        if !DB::UPDATE_HAS_LIMIT {
            // In a WITH, which runs once. PostgreSQL may run a subquery once for each row of the table, and each run
            // would lock the next rows and have them updated.
            out.push_sql("WITH queueable_due AS (SELECT ");
            queue.key_columns.walk_ast(out.reborrow())?;
            self.walk.push_from(queue, &mut out)?;
            self.push_due(out.reborrow())?;
            out.push_sql(DB::CLAIM_LOCK);
            out.push_sql(") ");
        }
        push_table(queue, &mut out, "UPDATE ")?;
        if DB::UPDATE_HAS_LIMIT {
            self.walk.push_hint(queue, &mut out)?;
        }
        self.push_set(out.reborrow())?;
        out.push_sql(" WHERE ");
        if DB::UPDATE_HAS_LIMIT {
            self.walk.push_flag(queue, &mut out)?;
            return self.push_due(out);
        }
        out.push_sql("(");
        queue.key_columns.walk_ast(out.reborrow())?;
        out.push_sql(") IN (SELECT * FROM queueable_due)");
        Ok(())
    }
}

impl<DB: QueueBackend> Take<DB> {
    /// Writes ` SET ..`. MySQL assigns from left to right and reads what it has assigned. So the status comes last, and
    /// the number of attempts comes after the text that contains it.
    fn push_set<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.due.queue;
        let names = queue.names;
        out.push_sql(" SET ");
        if let Some(periodic) = queue.options.periodic {
            push_names(&mut out, "{} = ", &[periodic.scheduled_time])?;
            push_begun_schedule(periodic, names, &mut out)?;
            out.push_sql(", ");
        }
        push_expired_lease(queue, &mut out, |out| out.push_identifier(names.try_count))?;
        push_names(&mut out, " ELSE {} END, {} = CASE WHEN ", &[names.last_attempt_error_message, names.try_count])?;
        FINISHED.push(queue, &mut out)?;
        push_names(&mut out, ANOTHER_TRY, &[names.try_count; 3])?;
        push_names(&mut out, "{} = ", &[names.next_attempt_time])?;
        DB::bind_time(&mut out, &self.token)?;
        push_names(&mut out, ", {} = ", &[names.last_attempt_time])?;
        DB::bind_time(&mut out, &self.began)?;
        out.push_sql(", ");
        push_updated(queue, &mut out, "", ", ")?;
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
        self.due.push_due(&mut out, until)?;
        push_exceptions(&self.excepted, &mut out)?;
        self.walk.push_order(self.due.queue, &mut out, &self.limit)
    }
}

/// Writes `text = CASE WHEN leased THEN 'the lease .. ' || tries`.
pub(crate) fn push_expired_lease<DB: QueueBackend>(
    queue: &QueueSql<DB>,
    out: &mut AstPass<'_, '_, DB>,
    push_tries: impl FnOnce(&mut AstPass<'_, '_, DB>) -> QueryResult<()>,
) -> QueryResult<()> {
    let (before, between, after) = DB::CONCATENATION;
    push_names(out, "{} = CASE WHEN ", &[queue.names.last_attempt_error_message])?;
    StateCondition::In(&[Status::InProgress]).push(queue, out)?;
    [" THEN ", before, "'", LEASE_EXPIRED, "'", between].iter().for_each(|part| out.push_sql(part));
    push_tries(out)?;
    out.push_sql(after);
    Ok(())
}

impl<DB: QueueBackend> Statement<DB> for Taken<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.claim.due.queue;
        let names = queue.names;
        self.claim.push_columns(out.reborrow())?;
        push_table(queue, &mut out, " FROM ")?;
        push_columns(queue, &mut out, " WHERE {} = ", &[names.next_attempt_time])?;
        DB::bind_time(&mut out, &self.token)?;
        push_columns(queue, &mut out, " AND {} = '", &[names.status])?;
        out.push_sql(Status::InProgress.as_str());
        out.push_sql("'");
        Ok(())
    }
}
