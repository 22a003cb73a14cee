//! Reads when the last attempt of a row ended: it shows whose attempt that was if a COMMIT's answer was lost.

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::names::{push_columns, push_table};
use crate::backend::{QueueBackend, Statement};
use crate::entity::{Entity, QueueTable, StoredIn};

/// Reads the time of the last attempt of the row with one key.
pub struct LastAttempt<Q: Entity> {
    is_key: Q::IsKey,
}

impl<Q: Entity> LastAttempt<Q> {
    /// Reads the time for the row with this key.
    pub fn new(key: &Q::Key) -> Self {
        LastAttempt { is_key: Q::is_key(key.clone()) }
    }
}

impl<Q: StoredIn<DB>, DB: QueueBackend> Statement<DB> for LastAttempt<Q> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_columns::<Q::Queue, DB>(&mut out, "SELECT {}", &[Q::Queue::COLUMNS.last_attempt_time])?;
        push_table::<Q::Queue, DB>(&mut out, " FROM ")?;
        out.push_sql(" WHERE ");
        self.is_key.walk_ast(out.reborrow())?;
        out.push_sql(DB::ROW_LOCK);
        Ok(())
    }
}
