//! Leases due rows by one statement: it locks them, passes over those that others hold, writes the lease on them, and
//! returns them as they were before.
//!
//! An update returns rows as it has left them, in no order. So the rows come from the select. The update adds to each
//! when its attempt began, or nothing if a trigger has kept the row from changing.

use std::time::Duration;

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::claim::{ClaimSome, Claimed};
use super::take::{push_another_try, push_expired_lease};
use super::writer::Writer;
use crate::backend::{QueueBackend, Statement, column_names, push_now_plus};
use crate::row::Instant;

/// Leases the rows that a claim finds, for this long.
pub struct LeaseDue<DB: QueueBackend>(pub ClaimSome<DB>, pub Duration);

/// The rows that one statement has leased.
pub struct LeasedAtOnce<K> {
    /// The rows as they were, each with the time at which its attempt began, or without one if a trigger has kept it
    /// from changing.
    pub rows: Vec<(Claimed<K>, Option<Instant>)>,
    /// The beginnings of the attempts whose keys cannot be decoded.
    pub undecodable: Vec<Instant>,
}

impl<DB: QueueBackend> Statement<DB> for LeaseDue<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let LeaseDue(claim, lease) = self;
        let mut sql = Writer::new(claim.queue(), out);
        // The first columns get names of the queue's own. The entity's columns after them keep their names, because
        // nothing refers to them.
        let keys = 1..=column_names(sql.queue.key_columns, sql.out.backend())?.len();
        let keys = keys.map(|number| format!("queueable_key_{number}")).collect::<Vec<_>>().join(", ");
        sql.push(&format!("WITH queueable_due ({keys}, queueable_key_text, queueable_status, queueable_tries"))?;
        sql.push(", queueable_due_at) AS (")?;
        claim.walk_ast(sql.out.reborrow())?;
        sql.push(&format!("), queueable_leased ({keys}, queueable_began) AS (UPDATE {{table}}"))?;
        // Columns that are read have their table's name, because the select has columns too.
        sql.push(" SET {status} = 'IN_PROGRESS', {next_attempt_time} = ")?;
        push_now_plus(&mut sql.out, *lease);
        sql.push(", ")?;
        push_another_try(&mut sql, "{.try_count}")?;
        sql.push(", {last_attempt_time} = {now}")?;
        sql.push_updated()?;
        sql.push(", ")?;
        push_expired_lease(&mut sql, "GREATEST({.try_count}, 0)")?;
        sql.push(" ELSE {.last_attempt_error_message} END FROM queueable_due WHERE ({key}) = (")?;
        sql.push(&keys)?;
        sql.push(") RETURNING {key}, {.last_attempt_time}) SELECT queueable_due.*, queueable_began")?;
        sql.push(" FROM queueable_due LEFT JOIN queueable_leased USING (")?;
        sql.push(&keys)?;
        sql.push(") ORDER BY queueable_due_at")
    }
}
