//! What the queue's statements know of an entity, as values of types that do not name it.
//!
//! Code that is generic over the entity is compiled anew for each of an application's entities. The statements are
//! generic over the database alone. The bounds of all statements on an entity are here, in one place.

use std::any::{Any, TypeId};
use std::rc::Rc;

use diesel::query_builder::{QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::{Expression, Selectable};

use super::claim_condition::ClaimCondition;
use super::entity::{Entity, QueueTable};
use crate::backend::{Named, QueueBackend, TableName, Target, column_names};
use crate::row::{ColumnNames, Options};

/// A queue's table, key and settings, as statements write them on one kind of database.
pub struct QueueSql<DB: QueueBackend> {
    /// The entity's name in logs.
    pub entity: &'static str,
    /// The table.
    pub table: &'static (dyn QueryFragment<DB> + Sync),
    /// The columns of the primary key, separated by commas.
    pub key_columns: &'static (dyn QueryFragment<DB> + Sync),
    /// How many columns the primary key has.
    pub key_parts: usize,
    /// How many bits the key has, if it is one whole number.
    pub integer_bits: fn() -> Option<u32>,
    /// The names of the queue's columns.
    pub names: ColumnNames,
    /// What the entity asks for beyond the five columns.
    pub options: &'static Options,
    /// Returns the condition of `claim_if`.
    pub claim_condition: fn() -> Option<ClaimCondition<DB>>,
}

/// The condition `key columns = value`.
pub type IsKey<DB> = Rc<dyn QueryFragment<DB>>;

/// One row of a queue, by its primary key.
pub struct KeyedRow<DB: QueueBackend> {
    /// The queue.
    pub queue: &'static QueueSql<DB>,
    /// The condition that picks the row.
    pub is_key: IsKey<DB>,
}

// By hand, because a derive would require a database that can be cloned.
impl<DB: QueueBackend> Clone for KeyedRow<DB> {
    fn clone(&self) -> Self {
        self.queue.row(&self.is_key)
    }
}

impl<DB: QueueBackend> QueueSql<DB> {
    /// Returns the row that this condition picks.
    pub fn row(&'static self, is_key: &IsKey<DB>) -> KeyedRow<DB> {
        KeyedRow { queue: self, is_key: is_key.clone() }
    }

    /// Tells whether a statement has to name the primary key, so that rows of a lane with equal due times keep its order.
    /// `sorts`: it sorts the rows. A text is no part of an index that it might be too long for.
    pub(crate) fn orders_ties_by_key(&self, sorts: bool) -> bool {
        let is_serial = self.options.lanes.is_some_and(|lanes| lanes.serial);
        is_serial && (sorts || DB::TIES_NEED_KEY) && (self.integer_bits)().is_some()
    }

    /// Returns the name of an index or a column of the queue.
    pub(crate) fn name_of(&self, named: Named<'_>) -> QueryResult<String> {
        Ok(named.of(&TableName::of(self.table, &DB::default())?, self.names, self.options))
    }

    /// Says where the columns and the index of the queue live.
    pub(crate) fn target(&self) -> QueryResult<Target> {
        let backend = &DB::default();
        Ok(Target {
            entity: self.entity,
            table: TableName::of(self.table, backend)?,
            columns: self.names,
            options: *self.options,
            key: column_names(self.key_columns, backend)?,
            ties_by_key: self.orders_ties_by_key(false),
            adopts: false,
            blocks_writers: false,
        })
    }
}

/// Returns how many bits keys of this type have, if they are whole numbers.
pub(crate) fn integer_bits<K: Any>() -> Option<u32> {
    let types = [(TypeId::of::<i16>(), i16::BITS), (TypeId::of::<i32>(), i32::BITS), (TypeId::of::<i64>(), i64::BITS)];
    types.into_iter().find_map(|(id, bits)| (id == TypeId::of::<K>()).then_some(bits))
}

/// A queue's table in databases of one kind. Every table that Diesel can name there implements it.
pub trait TableIn<DB: QueueBackend>: QueueTable<Table: QueryFragment<DB>> {}

impl<T: QueueTable<Table: QueryFragment<DB>>, DB: QueueBackend> TableIn<DB> for T {}

/// An entity in databases of one kind. Every entity whose key Diesel can store there implements it.
pub trait StoredIn<DB: QueueBackend>:
    Entity<
        Queue: TableIn<DB>,
        KeyColumns: QueryFragment<DB> + Expression,
        IsKey: QueryFragment<DB>,
        IsAfter: QueryFragment<DB>,
    >
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

    /// Returns the condition that picks the rows after this key.
    #[doc(hidden)]
    fn after(key: &Self::Key) -> IsKey<DB>;
}

impl<Q, DB> StoredIn<DB> for Q
where
    Q: Entity<
            Queue: TableIn<DB>,
            KeyColumns: QueryFragment<DB> + Expression,
            IsKey: QueryFragment<DB>,
            IsAfter: QueryFragment<DB>,
        >,
    DB: QueueBackend,
{
    const SQL: &'static QueueSql<DB> = &QueueSql {
        entity: Q::ENTITY,
        table: Q::Queue::TABLE,
        key_columns: Q::KEY_COLUMNS,
        key_parts: Q::KEY_PARTS,
        integer_bits: integer_bits::<Q::Key>,
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

    fn after(key: &Q::Key) -> IsKey<DB> {
        Rc::new(Q::is_after(key.clone()))
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
