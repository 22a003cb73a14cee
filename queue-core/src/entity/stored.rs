//! Which entities a database can store: the bounds of all statements on an entity, in one place.

use std::rc::Rc;

use diesel::query_builder::{QueryFragment, QueryId};
use diesel::{Expression, Selectable};

use super::entity::Entity;
use super::queue_sql::{IsKey, KeyedRow, QueueSql, is_integer};
use super::table::QueueTable;
use crate::backend::QueueBackend;

/// A queue's table in databases of one kind. Every table that Diesel can name there implements it.
pub trait TableIn<DB: QueueBackend>: QueueTable<Table: QueryFragment<DB>> {}

impl<T: QueueTable<Table: QueryFragment<DB>>, DB: QueueBackend> TableIn<DB> for T {}

/// An entity in databases of one kind. Every entity whose key Diesel can store there implements it.
pub trait StoredIn<DB: QueueBackend>:
    Entity<Queue: TableIn<DB>, KeyColumns: QueryFragment<DB> + Expression, IsKey: QueryFragment<DB>>
{
    /// What statements know of the entity.
    #[doc(hidden)]
    const SQL: &'static QueueSql<DB>;

    /// Returns the row with this key, for a statement.
    #[doc(hidden)]
    fn row(key: &Self::Key) -> KeyedRow<DB>;

    /// Returns the conditions that pick the rows with some keys.
    #[doc(hidden)]
    fn rows<'k>(keys: impl IntoIterator<Item = &'k Self::Key>) -> Vec<IsKey<DB>>;
}

impl<Q, DB> StoredIn<DB> for Q
where
    Q: Entity<Queue: TableIn<DB>, KeyColumns: QueryFragment<DB> + Expression, IsKey: QueryFragment<DB>>,
    DB: QueueBackend,
{
    const SQL: &'static QueueSql<DB> = &QueueSql {
        entity: Q::ENTITY,
        table: Q::Queue::TABLE,
        key_columns: Q::KEY_COLUMNS,
        key_parts: Q::KEY_PARTS,
        has_integer_key: is_integer::<Q::Key>,
        names: Q::Queue::COLUMNS,
        options: &Q::Queue::OPTIONS,
        claim_condition: Q::Queue::claim_condition::<DB>,
    };

    fn row(key: &Q::Key) -> KeyedRow<DB> {
        KeyedRow { queue: Q::SQL, is_key: is_key::<Q, DB>(key) }
    }

    fn rows<'k>(keys: impl IntoIterator<Item = &'k Q::Key>) -> Vec<IsKey<DB>> {
        keys.into_iter().map(is_key::<Q, DB>).collect()
    }
}

fn is_key<Q: Entity<IsKey: QueryFragment<DB>>, DB: QueueBackend>(key: &Q::Key) -> IsKey<DB> {
    Rc::new(Q::is_key(key.clone()))
}

/// An entity that Diesel can also select there.
pub trait SelectedIn<DB: QueueBackend>: StoredIn<DB> + Selectable<DB> {
    /// Whether the selection always has the same text.
    const SELECTION_IS_STATIC: bool;

    /// Returns the selection. It is a method, because a supertrait that bounds `SelectExpression` keeps the compiler from
    /// seeing `Selectable` in generic code over one connection.
    fn selection() -> Box<dyn QueryFragment<DB>>;
}

impl<Q, DB> SelectedIn<DB> for Q
where
    Q: StoredIn<DB> + Selectable<DB, SelectExpression: QueryFragment<DB> + QueryId + 'static>,
    DB: QueueBackend,
{
    const SELECTION_IS_STATIC: bool = Q::SelectExpression::HAS_STATIC_QUERY_ID;

    fn selection() -> Box<dyn QueryFragment<DB>> {
        Box::new(Q::construct_selection())
    }
}
