//! Which entities a database can store: what the statements ask of an entity, said once.

use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::{Expression, Selectable};

use super::entity::Entity;
use super::table::QueueTable;
use crate::backend::QueueBackend;

/// A queue's table in databases of one kind. It is implemented for every table that Diesel can name there.
pub trait TableIn<DB: QueueBackend>: QueueTable<Table: QueryFragment<DB>> {}

impl<T, DB> TableIn<DB> for T
where
    T: QueueTable<Table: QueryFragment<DB>>,
    DB: QueueBackend,
{
}

/// An entity in databases of one kind. It is implemented for every entity whose key Diesel can store there.
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

/// The same of an entity whose fields are selected there.
pub trait SelectedIn<DB: QueueBackend>: StoredIn<DB> + Selectable<DB> {
    /// Whether the text of what is selected is always the same.
    const SELECTION_IS_STATIC: bool;

    /// Writes what is selected. It is a method, because a supertrait that bounds `SelectExpression` keeps the compiler from
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
