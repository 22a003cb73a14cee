//! Leases due rows by one statement: it locks them, passes over those that others hold, writes the lease on them, and
//! returns them as they were before.
//!
//! An update returns rows as it has left them, in no order. So the rows come from the select. The update adds to each
//! when its attempt began, or nothing if a trigger has kept the row from changing.

use std::time::Duration;

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::claim::{ClaimSome, Claimed};
use super::names::{push_columns, push_names, push_table, push_updated};
use super::take::{ANOTHER_TRY, FINISHED, push_expired_lease};
use crate::backend::{QueueBackend, Statement, column_names, push_now_plus};
use crate::row::{Instant, Status};

/// Leases the rows that a claim finds.
pub struct LeaseDue<DB: QueueBackend> {
    claim: ClaimSome<DB>,
    lease: Duration,
}

impl<DB: QueueBackend> ClaimSome<DB> {
    /// Leases the rows for this long by the same statement.
    pub fn leased(self, lease: Duration) -> LeaseDue<DB> {
        LeaseDue { claim: self, lease }
    }
}

/// The rows that one statement has leased.
pub struct LeasedAtOnce<K> {
    /// The rows as they were, each with the time at which its attempt began, or without one if a trigger has kept it
    /// from changing.
    pub rows: Vec<(Claimed<K>, Option<Instant>)>,
    /// The beginnings of the attempts whose keys cannot be decoded.
    pub undecodable: Vec<Instant>,
}

impl<DB: QueueBackend> Statement<DB> for LeaseDue<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.claim.queue();
        let names = queue.names;
        // The first columns get names of the queue's own. The entity's columns after them keep their names, because
        // nothing refers to them.
        let keys = 1..=column_names(queue.key_columns, out.backend())?.len();
        let keys = keys.map(|number| format!("queueable_key_{number}")).collect::<Vec<_>>().join(", ");
        out.push_sql("WITH queueable_due (");
        out.push_sql(&keys);
        out.push_sql(", queueable_key_text, queueable_status, queueable_tries, queueable_due_at) AS (");
        self.claim.walk_ast(out.reborrow())?;
        out.push_sql("), queueable_leased (");
        out.push_sql(&keys);
        push_table(queue, &mut out, ", queueable_began) AS (UPDATE ")?;
        self.push_set(out.reborrow())?;
        out.push_sql(" FROM queueable_due WHERE (");
        queue.key_columns.walk_ast(out.reborrow())?;
        out.push_sql(") = (");
        out.push_sql(&keys);
        out.push_sql(") RETURNING ");
        queue.key_columns.walk_ast(out.reborrow())?;
        push_columns(
            queue,
            &mut out,
            ", {}) SELECT queueable_due.*, queueable_began FROM queueable_due LEFT JOIN queueable_leased USING (",
            &[names.last_attempt_time],
        )?;
        out.push_sql(&keys);
        out.push_sql(") ORDER BY queueable_due_at");
        Ok(())
    }
}

impl<DB: QueueBackend> LeaseDue<DB> {
    /// Writes ` SET ..`. It writes columns that are read with their table's name, because the select has columns too.
    fn push_set<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.claim.queue();
        let names = queue.names;
        push_names(&mut out, " SET {} = '", &[names.status])?;
        out.push_sql(Status::InProgress.as_str());
        push_names(&mut out, "', {} = ", &[names.next_attempt_time])?;
        push_now_plus(&mut out, self.lease);
        push_names(&mut out, ", {} = CASE WHEN ", &[names.try_count])?;
        FINISHED.push(queue, &mut out)?;
        push_columns(queue, &mut out, ANOTHER_TRY, &[names.try_count; 3])?;
        push_names(&mut out, "{} = ", &[names.last_attempt_time])?;
        out.push_sql(DB::NOW);
        out.push_sql(", ");
        push_updated(queue, &mut out, "", ", ")?;
        push_expired_lease(queue, &mut out, |out| push_columns(queue, out, "GREATEST({}, 0)", &[names.try_count]))?;
        push_columns(queue, &mut out, " ELSE {} END", &[names.last_attempt_error_message])
    }
}
