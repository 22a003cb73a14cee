//! Finds the row that holds a strictly serial lane back: it has failed and waits for its retry, or its lease has ended.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::condition::StateCondition;
use super::key_text::push_key_text;
use super::lane::push_lane;
use super::limit::Limit;
use super::names::{push_columns, push_table};
use super::probe_due::push_microseconds_until;
use super::walk::{push_oldest, push_strict_index_hint};
use crate::backend::{QueueBackend, Statement};
use crate::entity::QueueSql;
use crate::row::{Lane, Status};

/// The statuses of rows that have been attempted and are not settled for good.
const UNFINISHED: [Status; 2] = [Status::Error, Status::InProgress];

/// Reads when the row of a lane that holds the others back is due, in microseconds from now: 0 or less if it is due
/// already.
pub struct AheadDue<DB: QueueBackend> {
    lane: Lane,
    queue: &'static QueueSql<DB>,
}

impl<DB: QueueBackend> AheadDue<DB> {
    /// Looks into this lane.
    pub fn new(queue: &'static QueueSql<DB>, lane: Lane) -> Self {
        AheadDue { lane, queue }
    }
}

/// Reads the key of that row, and the key's text.
pub struct AheadKey<DB: QueueBackend> {
    lane: Lane,
    queue: &'static QueueSql<DB>,
}

impl<DB: QueueBackend> AheadKey<DB> {
    /// Looks into this lane.
    pub fn new(queue: &'static QueueSql<DB>, lane: Lane) -> Self {
        AheadKey { lane, queue }
    }
}

impl<DB: QueueBackend> Statement<DB> for AheadDue<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.queue;
        push_microseconds_until(&mut out, |out| out.push_identifier(queue.names.next_attempt_time))?;
        push_ahead(queue, &mut out, &self.lane)
    }
}

impl<DB: QueueBackend> Statement<DB> for AheadKey<DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let queue = self.queue;
        out.push_sql("SELECT ");
        queue.key_columns.walk_ast(out.reborrow())?;
        out.push_sql(", ");
        push_key_text(queue, &mut out)?;
        push_ahead(queue, &mut out, &self.lane)
    }
}

/// Writes ` FROM table WHERE status IN (..) AND column = value ORDER BY next_attempt_time LIMIT 1`.
pub(crate) fn push_ahead<'b, DB: QueueBackend>(
    queue: &QueueSql<DB>,
    out: &mut AstPass<'_, 'b, DB>,
    lane: &'b Lane,
) -> QueryResult<()> {
    push_table(queue, out, " FROM ")?;
    push_strict_index_hint(queue, out)?;
    out.push_sql(" WHERE ");
    push_columns(queue, out, "{} IS NOT NULL", &[queue.names.next_attempt_time])?;
    // For the index: the exact comparison beside it may use none.
    push_columns(queue, out, " AND {} IN (", &[queue.names.status])?;
    for (i, status) in UNFINISHED.iter().enumerate() {
        [if i > 0 { ", '" } else { "'" }, status.as_str(), "'"].iter().for_each(|part| out.push_sql(part));
    }
    out.push_sql(") AND ");
    StateCondition::In(&UNFINISHED).push(queue, out)?;
    push_lane(queue, out, lane)?;
    push_oldest(queue, out, &[], const { &Limit::ONE })
}
