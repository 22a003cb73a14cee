//! Reads back what a group has written on its first row: whether its transaction was committed after all.

use diesel::RunQueryDsl;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::sql_types::{Integer, Nullable, Text};

use super::claim::Fence;
use super::condition::push_column;
use crate::backend::QueueBackend;
use crate::column::{LastAttemptErrorMessage, NextAttemptTime, StatusText, TryCount};
use crate::entity::{QueueTable, Queueable};

/// The state of the row with one key, and the text of its last failure.
pub struct RecallMark<Q: Queueable> {
    is_key: Q::IsKey,
}

impl<Q: Queueable> RecallMark<Q> {
    /// Recalls the row with this key.
    pub fn new(key: &Q::Key) -> Self {
        RecallMark { is_key: Q::is_key(key.clone()) }
    }
}

/// What a row says that a group may have marked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marked {
    /// The row's state.
    pub fence: Fence,
    /// Whether it has a next attempt time.
    pub pending: bool,
    /// The text of the last failure, or the mark.
    pub text: Option<String>,
}

impl Marked {
    pub(super) fn read((status, try_count, pending, text): (String, i32, i32, Option<String>)) -> Option<Self> {
        Some(Marked { fence: Fence { status: status.parse().ok()?, try_count }, pending: pending != 0, text })
    }
}

impl<Q, DB> QueryFragment<DB> for RecallMark<Q>
where
    Q: Queueable,
    DB: QueueBackend,
    Q::IsKey: QueryFragment<DB>,
    <Q::Queue as QueueTable>::Table: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        push_column::<Q::Queue, StatusText, DB>(&mut out)?;
        out.push_sql(", ");
        push_column::<Q::Queue, TryCount, DB>(&mut out)?;
        out.push_sql(", CASE WHEN ");
        push_column::<Q::Queue, NextAttemptTime, DB>(&mut out)?;
        out.push_sql(" IS NULL THEN 0 ELSE 1 END, ");
        push_column::<Q::Queue, LastAttemptErrorMessage, DB>(&mut out)?;
        out.push_sql(" FROM ");
        <Q::Queue as QueueTable>::TABLE.walk_ast(out.reborrow())?;
        out.push_sql(" WHERE ");
        self.is_key.walk_ast(out.reborrow())?;
        out.push_sql(DB::ROW_LOCK);
        Ok(())
    }
}

impl<Q: Queueable> Query for RecallMark<Q> {
    type SqlType = (Text, Integer, Integer, Nullable<Text>);
}

impl<Q: Queueable> QueryId for RecallMark<Q> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<Q: Queueable, C> RunQueryDsl<C> for RecallMark<Q> {}
