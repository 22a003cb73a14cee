//! Reads a row's state again, under its lock: it shows what happened if a COMMIT's answer was lost.

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::condition::push_fence;
use super::names::{push_columns, push_table};
use crate::backend::{QueueBackend, Statement};
use crate::entity::{Entity, QueueTable, StoredIn};
use crate::row::Fence;

/// Reads the status and the try count of the row with one key.
pub struct Recall<Q: Entity> {
    is_key: Q::IsKey,
    waits: bool,
    state: Option<Fence>,
}

impl<Q: Entity> Recall<Q> {
    /// Recalls the row with this key.
    pub fn new(key: &Q::Key) -> Self {
        Recall { is_key: Q::is_key(key.clone()), waits: true, state: None }
    }

    /// Finds only a row in this state.
    pub fn in_state(self, state: Fence) -> Self {
        Recall { state: Some(state), ..self }
    }

    /// Finds no row if another session holds its lock, instead of waiting.
    pub fn unless_locked(self) -> Self {
        Recall { waits: false, ..self }
    }
}

impl<Q: StoredIn<DB>, DB: QueueBackend> Statement<DB> for Recall<Q> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let names = Q::Queue::COLUMNS;
        push_columns::<Q::Queue, DB>(&mut out, "SELECT {}, {}", &[names.status, names.try_count])?;
        push_table::<Q::Queue, DB>(&mut out, " FROM ")?;
        out.push_sql(" WHERE ");
        self.is_key.walk_ast(out.reborrow())?;
        if let Some(state) = &self.state {
            push_fence::<Q::Queue, DB>(state, out.reborrow())?;
        }
        out.push_sql(if self.waits { DB::ROW_LOCK } else { DB::CLAIM_LOCK });
        Ok(())
    }
}

/// Returns the state that was read, if it is a known one.
pub(crate) fn state((status, try_count): (String, i32)) -> Option<Fence> {
    Some(Fence::new(status.parse().ok()?, try_count))
}
