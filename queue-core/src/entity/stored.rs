//! Which entities a database can store: the bounds of all statements on an entity, in one place.

use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::{Expression, Selectable};

use super::entity::Entity;
use super::table::QueueTable;
use crate::backend::QueueBackend;

/// A queue's table in databases of one kind. Every table that Diesel can name there implements it.
pub trait TableIn<DB: QueueBackend>: QueueTable<Table: QueryFragment<DB>> {}

impl<T, DB> TableIn<DB> for T
where
    T: QueueTable<Table: QueryFragment<DB>>,
    DB: QueueBackend,
{
}

/// An entity in databases of one kind. Every entity whose key Diesel can store there implements it.
pub trait StoredIn<DB: QueueBackend>:
    Entity<Queue: TableIn<DB>, KeyColumns: QueryFragment<DB> + Expression, IsKey: QueryFragment<DB>>
{
}

impl<Q, DB> StoredIn<DB> for Q
where
    Q: Entity<Queue: TableIn<DB>, KeyColumns: QueryFragment<DB> + Expression, IsKey: QueryFragment<DB>>,
    DB: QueueBackend,
{
}

/// An entity that Diesel can also select there.
pub trait SelectedIn<DB: QueueBackend>: StoredIn<DB> + Selectable<DB> {
    /// Whether the selection always has the same text.
    const SELECTION_IS_STATIC: bool;

    /// Writes the selection. It is a method, because a supertrait that bounds `SelectExpression` keeps the compiler from
    /// seeing `Selectable` in generic code over one connection.
    fn push_selection<'b>(selection: &'b Self::SelectExpression, out: AstPass<'_, 'b, DB>) -> QueryResult<()>;
}

impl<Q, DB> SelectedIn<DB> for Q
where
    Q: StoredIn<DB> + Selectable<DB, SelectExpression: QueryFragment<DB> + QueryId>,
    DB: QueueBackend,
{
    const SELECTION_IS_STATIC: bool = Q::SelectExpression::HAS_STATIC_QUERY_ID;

    fn push_selection<'b>(selection: &'b Q::SelectExpression, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        selection.walk_ast(out)
    }
}
