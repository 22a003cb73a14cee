//! What the queue's statements know of an entity, as values of types that do not name it.
//!
//! Code that is generic over the entity is compiled anew for each of an application's entities. The statements are
//! generic over the database alone.

use std::any::{Any, TypeId};
use std::rc::Rc;

use diesel::query_builder::QueryFragment;
use diesel::result::QueryResult;

use super::claim_condition::ClaimCondition;
use crate::backend::{QueueBackend, TableName, Target, column_names};
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
    /// Whether the key is one whole number.
    pub has_integer_key: fn() -> bool,
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

    /// Says where the columns and the index of the queue live.
    pub(crate) fn target(&self) -> QueryResult<Target> {
        let backend = &DB::default();
        Ok(Target {
            entity: self.entity,
            table: TableName::of(self.table, backend)?,
            columns: self.names,
            options: *self.options,
            key: column_names(self.key_columns, backend)?,
            adopts: false,
            blocks_writers: false,
        })
    }
}

/// Tells whether keys of this type are whole numbers.
pub(crate) fn is_integer<K: Any>() -> bool {
    [TypeId::of::<i16>(), TypeId::of::<i32>(), TypeId::of::<i64>()].contains(&TypeId::of::<K>())
}
