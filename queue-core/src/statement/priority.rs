//! Sets the priority of the rows that a condition picks.

use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::serialize::ToSql;
use diesel::sql_types::Integer;

use super::condition::Condition;
use super::walk::{push_index_hint, push_ordered_index_hint};
use crate::backend::QueueBackend;
use crate::entity::QueueTable;
use crate::error::refused;

/// The change of the priority of many rows, and of nothing else: an attempt's fence does not name it.
pub struct SetPriority<'a, T, F> {
    condition: Condition<'a, T, F>,
    priority: i32,
    keep_off_index: bool,
}

impl<'a, T, F> SetPriority<'a, T, F> {
    /// Sets the priority. `keep_off_index` as for [`ChangeAll`](super::settle::ChangeAll).
    pub fn new(condition: Condition<'a, T, F>, priority: i32, keep_off_index: bool) -> Self {
        SetPriority { condition, priority, keep_off_index }
    }
}

impl<T, F, DB> QueryFragment<DB> for SetPriority<'_, T, F>
where
    T: QueueTable,
    DB: QueueBackend,
    T::Table: QueryFragment<DB>,
    DB::QueryBuilder: Default,
    F: QueryFragment<DB>,
    i32: ToSql<Integer, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let Some(column) = T::OPTIONS.priority else {
            return Err(refused("the queue has no priority: add #[queue(priority)] to the entity".to_owned()));
        };
        out.push_sql("UPDATE ");
        T::TABLE.walk_ast(out.reborrow())?;
        let ignore = DB::IGNORE_INDEX.filter(|_| self.keep_off_index);
        push_index_hint::<T, DB>(&mut out, ignore)?;
        push_ordered_index_hint::<T, DB>(&mut out, ignore)?;
        out.push_sql(" SET ");
        out.push_identifier(column)?;
        out.push_sql(" = ");
        out.push_bind_param::<Integer, _>(&self.priority)?;
        if let Some(updated) = T::OPTIONS.timestamps.updated {
            out.push_sql(", ");
            out.push_identifier(updated)?;
            out.push_sql(" = ");
            out.push_sql(DB::NOW);
        }
        self.condition.walk_ast(out)
    }
}

impl<T, F> QueryId for SetPriority<'_, T, F> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}
