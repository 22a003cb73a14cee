//! Takes due rows under a lease where a claim cannot pass over rows that others hold: an update first, then a select of
//! the rows that it has changed.
//!
//! The update writes the same end of the lease on all its rows. A random part makes that time a token, by which the
//! select finds the rows. If two claims draw the same token, the select finds more rows than the update has changed,
//! and the claim starts again.

use std::time::Duration;

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::change::push_schedule;
use super::claim::Claim;
use super::condition::StateCondition;
use super::due::{Claimable, until};
use super::walk::Walk;
use super::writer::Writer;
use crate::backend::{QueueBackend, Statement};
use crate::entity::{IsKey, QueueSql};
use crate::row::{Instant, LEASE_EXPIRED, Status};

/// Reads the database's current time: the beginning of the leases, from which their end is counted.
pub struct Present;

/// The update: up to `limit` due rows become `IN_PROGRESS`, their attempt is counted, and their lease ends at the token.
pub struct Take<DB: QueueBackend> {
    due: Claimable<DB>,
    began: Instant,
    token: Instant,
    limit: i64,
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
        let (due, walk) = (Claimable::new(queue, stages).except(excepted), Walk::of(queue.options));
        Take { due, began, token, limit: limit.into(), walk, age: None }
    }

    /// Takes rows that have been due for longer than this, those first that have been due longest, whatever the
    /// entity's order.
    pub fn aged(self, age: Duration) -> Self {
        Take { walk: Walk::OLDEST, age: Some(age), ..self }
    }
}

/// Selects the rows that were taken with a token.
pub struct Taken<DB: QueueBackend>(pub Claim<DB>, pub Instant);

impl<DB: QueueBackend> Statement<DB> for Present {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        out.push_sql(DB::NOW);
        Ok(())
    }
}

impl<DB: QueueBackend> Statement<DB> for Take<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.due.queue, out);
        if DB::UPDATE_HAS_LIMIT {
            sql.push("UPDATE {table}")?;
            self.walk.push_hint(&mut sql)?;
            self.push_set(&mut sql)?;
            sql.push(" WHERE ")?;
            self.walk.push_flag(&mut sql)?;
            return self.push_due(&mut sql);
        }
        // In a WITH, which runs once. PostgreSQL may run a subquery once for each row of the table, and each run would
        // lock the next rows and have them updated.
        sql.push("WITH queueable_due AS (SELECT {key}")?;
        self.walk.push_from(&mut sql)?;
        self.push_due(&mut sql)?;
        sql.push("{claim_lock}) UPDATE {table}")?;
        self.push_set(&mut sql)?;
        sql.push(" WHERE ({key}) IN (SELECT * FROM queueable_due)")
    }
}

impl<DB: QueueBackend> Take<DB> {
    /// Writes ` SET ..`. MySQL assigns from left to right and reads what it has assigned. So the status comes last, and
    /// the number of attempts comes after the text that contains it.
    fn push_set<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>) -> QueryResult<()> {
        sql.push(" SET ")?;
        push_schedule(sql)?;
        push_expired_lease(sql, "{try_count}")?;
        sql.push(" ELSE {last_attempt_error_message} END, ")?;
        push_another_try(sql, "{try_count}")?;
        sql.push(", {next_attempt_time} = ")?;
        DB::bind_time(&mut sql.out, &self.token)?;
        sql.push(", {last_attempt_time} = ")?;
        DB::bind_time(&mut sql.out, &self.began)?;
        sql.push_updated()?;
        sql.push(", {status} = 'IN_PROGRESS'")
    }

    /// Writes the condition of the due rows, their order and their number.
    fn push_due<'b>(&'b self, sql: &mut Writer<'_, 'b, DB>) -> QueryResult<()> {
        self.due.push_due(sql, &until::<DB>(self.age))?;
        self.walk.push_order(sql, &self.limit)
    }
}

/// Writes the number of attempts with one more. After a finished attempt it is the first of a new enqueueing.
pub(crate) fn push_another_try<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>, tries: &str) -> QueryResult<()> {
    sql.push("{try_count} = CASE WHEN ")?;
    StateCondition::In(&[Status::Success, Status::Failed, Status::Skipped]).push(sql)?;
    // One more than the largest number would be out of the column's range, and an error for all rows of the claim.
    let counted = [" OR ", " < 0 THEN 1 WHEN ", " = 2147483647 THEN 2147483647 ELSE ", " + 1 END"];
    sql.push_around(&counted, tries, &[])
}

/// Writes `text = CASE WHEN leased THEN 'the lease .. ' || tries`.
pub(crate) fn push_expired_lease<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>, tries: &str) -> QueryResult<()> {
    let (before, between, after) = DB::CONCATENATION;
    sql.push("{last_attempt_error_message} = CASE WHEN ")?;
    StateCondition::In(&[Status::InProgress]).push(sql)?;
    sql.push(" THEN ")?;
    sql.within((before, between), |sql| sql.push_within(("'", "'"), LEASE_EXPIRED))?;
    sql.push_within(("", after), tries)
}

impl<DB: QueueBackend> Statement<DB> for Taken<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let Taken(claim, token) = self;
        let mut sql = Writer::new(claim.due.queue, out);
        claim.push_columns(&mut sql)?;
        sql.push(" FROM {table} WHERE {.next_attempt_time} = ")?;
        DB::bind_time(&mut sql.out, token)?;
        sql.push(" AND {.status} = 'IN_PROGRESS'")
    }
}
