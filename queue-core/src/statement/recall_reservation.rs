//! Reads back the text that a group has written on its rows: it shows whether the group's transaction was committed
//! after all.

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::names::{push_columns, push_table};
use crate::backend::{QueueBackend, Statement};
use crate::entity::{Entity, QueueTable, StoredIn};

/// Reads the text of the last failure of the row with one key, which may be a group's reservation.
pub struct RecallReservation<Q: Entity> {
    is_key: Q::IsKey,
}

impl<Q: Entity> RecallReservation<Q> {
    /// Recalls the reservation of the row with this key.
    pub fn new(key: &Q::Key) -> Self {
        RecallReservation { is_key: Q::is_key(key.clone()) }
    }
}

impl<Q: StoredIn<DB>, DB: QueueBackend> Statement<DB> for RecallReservation<Q> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_columns::<Q::Queue, DB>(&mut out, "SELECT {}", &[Q::Queue::COLUMNS.last_attempt_error_message])?;
        push_table::<Q::Queue, DB>(&mut out, " FROM ")?;
        out.push_sql(" WHERE ");
        self.is_key.walk_ast(out.reborrow())?;
        out.push_sql(DB::ROW_LOCK);
        Ok(())
    }
}
