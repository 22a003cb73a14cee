//! The trait that the derive implements: the table, the key, the names and the settings of an entity.

use std::cmp::Ordering;
use std::fmt::Debug;
use std::sync::Arc;

use super::retry::{Retry, RetryPolicy};
use super::settings::Settings;
use super::table::QueueTable;

/// What the derive knows about an entity: its table, its key, its settings. Users call [`Queueable`](crate::Queueable)
/// instead.
///
/// `#[derive(Queueable)]` implements it. The derive reads Diesel's own attributes for the table and the primary key.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a queue",
    note = "add `#[derive(Queueable)]` beside `#[derive(Queryable, Selectable)]`"
)]
pub trait Entity: Sized {
    /// The table with its queue columns.
    type Queue: QueueTable;

    /// The column of the primary key, or a tuple of them.
    type KeyColumns: Sync + 'static;

    /// The value of the primary key, or a tuple of them in the order of the columns.
    type Key: Clone + Debug + Send + Sync + 'static;

    /// The condition `key columns = value`.
    type IsKey: 'static;

    /// How its messages are handled: [`TransactionMode`](crate::TransactionMode), [`GroupMode`](crate::GroupMode) or
    /// [`LeaseMode`](crate::LeaseMode). The mode decides what a handler is, see [`HandlerFor`](crate::HandlerFor).
    type Mode: 'static;

    /// The entity's name in logs and errors: the name of the struct.
    const ENTITY: &'static str;

    /// The columns of the primary key.
    const KEY_COLUMNS: &'static Self::KeyColumns;

    /// How many columns the primary key has.
    const KEY_PARTS: usize = 1;

    /// The settings from the attributes.
    const SETTINGS: Settings;

    /// Whether the selection consists of columns of the row alone. An entity that was read is then valid for as long as
    /// its row stays the same.
    #[doc(hidden)]
    const IS_ITS_ROW: bool = false;

    /// Returns the condition that picks the row with this key.
    fn is_key(key: Self::Key) -> Self::IsKey;

    /// Compares two entities in the order in which a group handles them. All are equal unless `order_in_group` names a
    /// column.
    fn compare_in_group(&self, _other: &Self) -> Ordering {
        Ordering::Equal
    }

    /// Returns the retry policy from the attributes.
    fn retry_policy() -> Arc<dyn RetryPolicy> {
        Arc::new(Retry::DEFAULT)
    }
}
