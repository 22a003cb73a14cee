//! Leases due rows by one statement: it locks them, passes over those that others hold, writes the lease on them, and
//! returns them as they were before.
//!
//! An update returns rows as it has left them, in no order. So the rows come from the select. The update adds to each
//! when its attempt began, or nothing if a trigger has kept the row from changing.

use std::time::Duration;

use diesel::Selectable;
use diesel::backend::Backend;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::claim::{ClaimSome, Claimed};
use super::condition::{StateCondition, push_column};
use super::take::FINISHED;
use crate::backend::{QueueBackend, Statement, column_names, push_now_plus};
use crate::entity::{Entity, LastAttemptErrorMessage, LastAttemptTime, QueueTable, SelectedIn, TryCount};
use crate::row::{Instant, LEASE_EXPIRED, Status};

/// Leases the rows that a claim finds.
pub struct LeaseDue<Q: Entity + Selectable<DB>, DB: Backend> {
    claim: ClaimSome<Q, DB>,
    lease: Duration,
}

impl<Q: Entity + Selectable<DB>, DB: Backend> ClaimSome<Q, DB> {
    /// Leases the rows for this long by the same statement.
    pub fn leased(self, lease: Duration) -> LeaseDue<Q, DB> {
        LeaseDue { claim: self, lease }
    }
}

/// The rows that one statement has leased.
pub struct LeasedAtOnce<Q: Entity> {
    /// The rows as they were, each with the time at which its attempt began, or without one if a trigger has kept it
    /// from changing.
    pub rows: Vec<(Claimed<Q>, Option<Instant>)>,
    /// The beginnings of the attempts whose keys cannot be decoded.
    pub undecodable: Vec<Instant>,
}

impl<Q, DB> Statement<DB> for LeaseDue<Q, DB>
where
    Q: SelectedIn<DB>,
    DB: QueueBackend,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        // The first columns get names of the queue's own. The entity's columns after them keep their names, because
        // nothing refers to them.
        let keys = 1..=column_names(Q::KEY_COLUMNS, out.backend())?.len();
        let keys = keys.map(|number| format!("queueable_key_{number}")).collect::<Vec<_>>().join(", ");
        out.push_sql("WITH queueable_due (");
        out.push_sql(&keys);
        out.push_sql(", queueable_key_text, queueable_status, queueable_tries, queueable_due_at) AS (");
        self.claim.walk_ast(out.reborrow())?;
        out.push_sql("), queueable_leased (");
        out.push_sql(&keys);
        out.push_sql(", queueable_began) AS (UPDATE ");
        <Q::Queue as QueueTable>::TABLE.walk_ast(out.reborrow())?;
        self.push_set(out.reborrow())?;
        out.push_sql(" FROM queueable_due WHERE (");
        Q::KEY_COLUMNS.walk_ast(out.reborrow())?;
        out.push_sql(") = (");
        out.push_sql(&keys);
        out.push_sql(") RETURNING ");
        Q::KEY_COLUMNS.walk_ast(out.reborrow())?;
        out.push_sql(", ");
        push_column::<Q::Queue, LastAttemptTime, DB>(&mut out)?;
        out.push_sql(") SELECT queueable_due.*, queueable_began FROM queueable_due LEFT JOIN queueable_leased USING (");
        out.push_sql(&keys);
        out.push_sql(") ORDER BY queueable_due_at");
        Ok(())
    }
}

impl<Q: SelectedIn<DB>, DB: QueueBackend> LeaseDue<Q, DB> {
    /// Writes ` SET ..`. It writes columns that are read with their table's name, because the select has columns too.
    fn push_set<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let names = <Q::Queue as QueueTable>::COLUMNS;
        out.push_sql(" SET ");
        out.push_identifier(names.status)?;
        out.push_sql(" = '");
        out.push_sql(Status::InProgress.as_str());
        out.push_sql("', ");
        out.push_identifier(names.next_attempt_time)?;
        out.push_sql(" = ");
        push_now_plus(&mut out, self.lease);
        out.push_sql(", ");
        out.push_identifier(names.try_count)?;
        out.push_sql(" = CASE WHEN ");
        FINISHED.push::<Q::Queue, DB>(&mut out)?;
        out.push_sql(" OR ");
        push_column::<Q::Queue, TryCount, DB>(&mut out)?;
        out.push_sql(" < 0 THEN 1 WHEN ");
        push_column::<Q::Queue, TryCount, DB>(&mut out)?;
        // One more would be out of the column's range, and an error for all rows of the claim.
        out.push_sql(" = 2147483647 THEN 2147483647 ELSE ");
        push_column::<Q::Queue, TryCount, DB>(&mut out)?;
        out.push_sql(" + 1 END, ");
        out.push_identifier(names.last_attempt_time)?;
        out.push_sql(" = ");
        out.push_sql(DB::NOW);
        out.push_sql(", ");
        if let Some(updated) = <Q::Queue as QueueTable>::OPTIONS.timestamps.updated {
            out.push_identifier(updated)?;
            out.push_sql(" = ");
            out.push_sql(DB::NOW);
            out.push_sql(", ");
        }
        out.push_identifier(names.last_attempt_error_message)?;
        out.push_sql(" = CASE WHEN ");
        StateCondition::In(&[Status::InProgress]).push::<Q::Queue, DB>(&mut out)?;
        let (before, between, after) = DB::CONCATENATION;
        out.push_sql(" THEN ");
        out.push_sql(before);
        out.push_sql("'");
        out.push_sql(LEASE_EXPIRED);
        out.push_sql("'");
        out.push_sql(between);
        out.push_sql("GREATEST(");
        push_column::<Q::Queue, TryCount, DB>(&mut out)?;
        out.push_sql(", 0)");
        out.push_sql(after);
        out.push_sql(" ELSE ");
        push_column::<Q::Queue, LastAttemptErrorMessage, DB>(&mut out)?;
        out.push_sql(" END");
        Ok(())
    }
}
