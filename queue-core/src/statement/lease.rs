//! Leases due rows. One statement does it where the database can: it locks them, passes over those that others hold,
//! writes the lease on them, and returns them as they were before. An update returns rows as it has left them, in no order,
//! so the rows come from the select, and the update adds to each when its attempt began.
//!
//! Where a claim cannot pass over rows that others hold, an update takes the rows first, and a select finds those that it
//! has changed. The update writes the same beginning of the attempt and the same end of the lease on all its rows. A random
//! part makes that end a token, so that the select finds the rows by both times. If the select finds other rows than the update
//! has changed, the claim is given up, and the next one takes one row in steps.

use std::time::Duration;

use diesel::result::QueryResult;

use super::change::push_schedule;
use super::claim::{Claim, ClaimSome};
use super::claimed::Claimed;
use super::condition::StateCondition;
use super::own_tables::read_present;
use super::queue::{ClaimedRow, ErasedQueue};
use super::walk::Scope;
use super::writer::{Writer, statement};
use crate::backend::{Dialect, QueueBackend, QueueConnection, Statement, push_now_plus};
use crate::entity::Key;
use crate::error::refused;
use crate::row::{Instant, LEASE_EXPIRED, Status};

/// Leases the rows that a claim finds, for this long. A row has no beginning of its attempt if a trigger has kept it from
/// changing.
pub fn lease_due<DB: QueueBackend>(claim: ClaimSome<DB>, lease: Duration) -> impl Statement<DB> {
    statement(claim.queue(), (claim, lease), |(claim, lease), sql| {
        // The first columns get names of the queue's own. The entity's columns after them keep their names, because
        // nothing refers to them.
        let keys = 1..=sql.queue.key_parts;
        let keys = keys.map(|number| format!("queueable_key_{number}")).collect::<Vec<_>>().join(", ");
        sql.push("WITH queueable_due (")?;
        sql.out.push_sql(&keys);
        sql.push(", queueable_key_text, queueable_status, queueable_tries, queueable_due_at) AS (")?;
        claim.walk_ast(sql.out.reborrow())?;
        sql.push("), queueable_leased (")?;
        sql.out.push_sql(&keys);
        sql.push(", queueable_began) AS (UPDATE {table}")?;
        // Columns that are read have their table's name, because the select has columns too.
        sql.push(" SET {status} = 'IN_PROGRESS', {next_attempt_time} = ")?;
        push_now_plus(&mut sql.out, *lease);
        sql.push(", ")?;
        push_another_try(sql, "{.try_count}")?;
        sql.push(", {last_attempt_time} = {now}")?;
        sql.push_updated()?;
        sql.push(", ")?;
        push_expired_lease(sql, "GREATEST({.try_count}, 0)")?;
        sql.push(" ELSE {.last_attempt_error_message} END FROM queueable_due WHERE ({key}) = (")?;
        sql.out.push_sql(&keys);
        sql.push(") RETURNING {key}, {.last_attempt_time}) SELECT queueable_due.*, queueable_began")?;
        sql.push(" FROM queueable_due LEFT JOIN queueable_leased USING (")?;
        sql.out.push_sql(&keys);
        sql.push(") ORDER BY queueable_due_at")
    })
}

/// The rows that one statement has leased.
pub struct LeasedAtOnce<K> {
    /// The rows as they were, each with the time at which its attempt began, or without one if a trigger has kept it
    /// from changing.
    pub rows: Vec<(Claimed<K>, Option<Instant>)>,
    /// The beginnings of the attempts whose keys cannot be decoded.
    pub undecodable: Vec<Instant>,
}

/// Selects the rows that were taken at this time, with this token.
pub fn taken<DB: QueueBackend>(claim: Claim<DB>, began: Instant, token: Instant) -> impl Statement<DB> {
    statement(claim.due.queue, (claim, began, token), |(claim, began, token), sql| {
        claim.push_columns(sql)?;
        sql.push(" FROM {table} WHERE {.next_attempt_time} = ")?;
        DB::bind_time(&mut sql.out, token)?;
        sql.push(" AND {.last_attempt_time} = ")?;
        DB::bind_time(&mut sql.out, began)?;
        sql.push(" AND {.status} = 'IN_PROGRESS'")
    })
}

/// Takes the rows that a claim finds: they become `IN_PROGRESS`, their attempt is counted, and their lease ends at the token.
pub fn take<DB: QueueBackend>(claim: ClaimSome<DB>, began: Instant, token: Instant) -> impl Statement<DB> {
    statement(claim.queue(), (claim, began, token), |(claim, began, token), sql| {
        let walk = claim.walk();
        if DB::UPDATE_HAS_LIMIT {
            sql.push("UPDATE {table}")?;
            walk.push_hint(sql)?;
            push_taken(sql, began, token)?;
            sql.push(" WHERE ")?;
            walk.push_flag(sql)?;
            return claim.push_first_due(sql, walk);
        }
        // In a WITH, which runs once. PostgreSQL may run a subquery once for each row of the table, and each run would
        // lock the next rows and have them updated.
        sql.push("WITH queueable_due AS (SELECT {key}")?;
        walk.push_from(sql)?;
        claim.push_first_due(sql, walk)?;
        sql.push("{claim_lock}) UPDATE {table}")?;
        push_taken(sql, began, token)?;
        sql.push(" WHERE ({key}) IN (SELECT * FROM queueable_due)")
    })
}

/// Writes ` SET ..`. MySQL assigns from left to right and reads what it has assigned. So the status comes last, and the number
/// of attempts comes after the text that contains it.
fn push_taken<'b, DB: QueueBackend>(
    sql: &mut Writer<'_, 'b, DB>,
    began: &'b Instant,
    token: &'b Instant,
) -> QueryResult<()> {
    sql.push(" SET ")?;
    push_schedule(sql)?;
    push_expired_lease(sql, "{try_count}")?;
    sql.push(" ELSE {last_attempt_error_message} END, ")?;
    push_another_try(sql, "{try_count}")?;
    sql.push(", {next_attempt_time} = ")?;
    DB::bind_time(&mut sql.out, token)?;
    sql.push(", {last_attempt_time} = ")?;
    DB::bind_time(&mut sql.out, began)?;
    sql.push_updated()?;
    sql.push(", {status} = 'IN_PROGRESS'")
}

/// Writes the number of attempts with one more. After a finished attempt it is the first of a new enqueueing.
fn push_another_try<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>, tries: &str) -> QueryResult<()> {
    sql.push("{try_count} = CASE WHEN ")?;
    StateCondition::In(&[Status::Success, Status::Failed, Status::Skipped]).push(sql)?;
    // One more than the largest number would be out of the column's range, and an error for all rows of the claim.
    let counted = [" OR ", " < 0 THEN 1 WHEN ", " = 2147483647 THEN 2147483647 ELSE ", " + 1 END"];
    sql.push_around(&counted, tries, &[])
}

/// Writes `text = CASE WHEN leased THEN 'the lease .. ' || tries`.
fn push_expired_lease<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>, tries: &'static str) -> QueryResult<()> {
    let (before, between, after) = DB::CONCATENATION;
    sql.push("{last_attempt_error_message} = CASE WHEN ")?;
    StateCondition::In(&[Status::InProgress]).push(sql)?;
    sql.push(" THEN ")?;
    sql.within((before, between), |sql| sql.push_within(("'", "'"), LEASE_EXPIRED))?;
    sql.push_within(("", after), tries)
}

impl<K: Key, C: QueueConnection> ErasedQueue<K, C> {
    /// Reads the rows that were taken at this time, with this token.
    pub fn taken(&self, connection: &mut C, began: Instant, token: Instant) -> QueryResult<Vec<ClaimedRow<K>>> {
        (self.load_claimed)(connection, &taken(self.claim_all(), began, token))
    }

    /// Leases up to `limit` rows that have been due longest, by one statement that is its own transaction.
    pub fn lease_at_once(
        &self,
        connection: &mut C,
        lease: Duration,
        limit: u32,
        scope: Scope<'_, K>,
    ) -> QueryResult<LeasedAtOnce<K>> {
        let leased = (self.load_leased)(connection, &lease_due(self.claim_of(scope, limit), lease))?;
        let (mut rows, mut began, mut undecodable) = (Vec::new(), Vec::new(), Vec::new());
        for ((key, text, status, try_count, rest), began_at) in leased {
            match key.ok() {
                Some((key,)) => {
                    rows.push((key, text, status, try_count, rest));
                    began.push(began_at);
                }
                None => undecodable.extend(began_at),
            }
        }
        let rows = self.claimed_within(connection, scope, rows)?.into_iter().zip(began).collect();
        Ok(LeasedAtOnce { rows, undecodable })
    }

    /// Tells whether rows are leased by one statement: only if the due time alone decides which row is next, and an
    /// attempt needs no more of a row than a claim reads.
    pub fn leases_at_once(&self) -> bool {
        C::Backend::LEASES_AT_ONCE && !self.needs_details() && self.sql.options.due_time_alone_decides()
    }

    /// Reads the database's current time.
    pub fn present(&self, connection: &mut C) -> QueryResult<Instant> {
        read_present(connection)?.ok_or_else(|| refused("the database returned no time".to_owned()))
    }
}
