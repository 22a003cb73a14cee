//! Finds the row that holds a strictly serial lane back: it has failed and waits for its retry, or its lease has ended.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::condition::StateCondition;
use super::key_text::push_select_key;
use super::lane::push_lane;
use super::probe_due::push_microseconds_until;
use super::walk::{Walk, push_hint};
use super::writer::Writer;
use crate::backend::{QueueBackend, Statement, strict_index_of};
use crate::entity::QueueSql;
use crate::row::{Lane, Status};

/// Reads when the row of a lane that holds the others back is due, in microseconds from now: 0 or less if it is due
/// already.
pub struct AheadDue<DB: QueueBackend>(pub &'static QueueSql<DB>, pub Lane);

/// Reads the key of that row, and the key's text.
pub struct AheadKey<DB: QueueBackend>(pub &'static QueueSql<DB>, pub Lane);

impl<DB: QueueBackend> Statement<DB> for AheadDue<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.0, out);
        push_microseconds_until(&mut sql, "{next_attempt_time}")?;
        push_ahead(&mut sql, &self.1)
    }
}

impl<DB: QueueBackend> Statement<DB> for AheadKey<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.0, out);
        push_select_key(&mut sql)?;
        push_ahead(&mut sql, &self.1)
    }
}

/// Writes ` FROM table WHERE status IN (..) AND column = value ORDER BY next_attempt_time LIMIT 1`.
pub(crate) fn push_ahead<'b, DB: QueueBackend>(sql: &mut Writer<'_, 'b, DB>, lane: &'b Lane) -> QueryResult<()> {
    sql.push(" FROM {table}")?;
    push_hint(sql, DB::ORDERED_INDEX_HINT, strict_index_of)?;
    // For the index: the exact comparison beside it may use none.
    sql.push(" WHERE {.next_attempt_time} IS NOT NULL AND {.status} IN ('ERROR', 'IN_PROGRESS') AND ")?;
    // The statuses of rows that have been attempted and are not settled for good.
    StateCondition::In(&[Status::Error, Status::InProgress]).push(sql)?;
    push_lane(sql, lane)?;
    Walk::OLDEST.push_order(sql, &1)
}
