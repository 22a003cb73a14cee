//! What the derive implements: the table, the key, the names and the settings of an entity.

use std::cmp::Ordering;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use diesel::query_source::Table;
use serde::{Deserialize, Serialize};

use super::guard::Guard;
use super::retry::{Retry, RetryPolicy};
use crate::backend::QueueBackend;
use crate::row::{ColumnNames, Options};

/// One queue on one table: the table and the names of its queue columns.
///
/// The derive implements it for a marker type in the module it writes (`payment_queue::Queue`). The queue columns are
/// generic over this marker and not over the entity, so that entities with lifetimes and type parameters have plain
/// constants as columns.
pub trait QueueTable: Sized + 'static {
    /// The table as `diesel::table!` declares it.
    type Table: Table + 'static;

    /// The table's value.
    const TABLE: &'static Self::Table;

    /// The names of the queue's columns.
    const COLUMNS: ColumnNames;

    /// What is asked for beyond the five columns.
    const OPTIONS: Options = Options::NONE;

    /// The condition on the domain's columns without which a row is left alone, for one backend; `None` where there is none.
    fn guard<DB: QueueBackend>() -> Option<Guard<DB>> {
        None
    }
}

/// Settings of an entity that its attributes give and a poller may override.
///
/// ```
/// use queueable::Settings;
///
/// let settings = Settings::DEFAULT;
/// assert_eq!(settings.max_tries, 20);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Settings {
    /// After how many recorded attempts a failure becomes `FAILED`. The default, 20, is half a day of retries under the
    /// default policy.
    pub max_tries: u32,
    /// How long a handler may take. `None` means the mode's default: in transaction and group mode the backend's (30
    /// seconds, on SQLite one second, because its one writer blocks every other), in lease mode the lease.
    pub budget: Option<Duration>,
    /// Lease mode: for how long a claimed row belongs to its worker without a sign of life. The default is 60 seconds.
    pub lease: Duration,
    /// Group mode: how many rows share a transaction at most. The default is 50.
    pub group: u32,
    /// Group mode: whether the messages of a group share one savepoint, and run one by one only after a failure.
    pub optimistic: bool,
}

impl Settings {
    /// The settings of an entity whose attributes say nothing.
    pub const DEFAULT: Settings =
        Settings { max_tries: 20, budget: None, lease: Duration::from_secs(60), group: 50, optimistic: false };

    /// Sets after how many recorded attempts a failure becomes `FAILED`.
    pub const fn max_tries(self, max_tries: u32) -> Self {
        Settings { max_tries, ..self }
    }

    /// Sets how long a handler may take.
    pub const fn budget(self, budget: Duration) -> Self {
        Settings { budget: Some(budget), ..self }
    }

    /// Sets for how long a claimed row belongs to its worker without a sign of life.
    pub const fn lease(self, lease: Duration) -> Self {
        Settings { lease, ..self }
    }

    /// Sets how many rows share a transaction at most.
    pub const fn group(self, group: u32) -> Self {
        Settings { group, ..self }
    }

    /// Gives the messages of a group one savepoint in common.
    pub const fn optimistic(self) -> Self {
        Settings { optimistic: true, ..self }
    }
}

/// What the derive says of an entity: its table, its key, its settings. What users call is [`Queueable`](crate::Queueable).
///
/// It is implemented by `#[derive(Queueable)]`, which reads Diesel's own attributes for the table and the primary key.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a queue",
    note = "add `#[derive(Queueable)]` beside `#[derive(Queryable, Selectable)]`"
)]
pub trait Entity: Sized {
    /// The table with its queue columns.
    type Queue: QueueTable;

    /// The column of the primary key, or a tuple of them.
    type KeyColumns: 'static;

    /// The value of the primary key, or a tuple of them in the order of the columns.
    type Key: Clone + Debug + Send + Sync + 'static;

    /// The condition `key columns = value`.
    type IsKey;

    /// How its messages are worked: [`TransactionMode`](crate::TransactionMode), [`GroupMode`](crate::GroupMode) or
    /// [`LeaseMode`](crate::LeaseMode). It decides what a handler is, see [`HandlerFor`].
    type Mode: 'static;

    /// The entity's name in logs and errors: the name of the struct.
    const ENTITY: &'static str;

    /// The columns of the primary key.
    const KEY_COLUMNS: &'static Self::KeyColumns;

    /// The settings that the attributes gave.
    const SETTINGS: Settings;

    /// Whether all that is selected is columns of the row, so that what was read is as the row is for as long as that is the same.
    #[doc(hidden)]
    const IS_ITS_ROW: bool = false;

    /// Returns the condition that picks the row with this key.
    fn is_key(key: Self::Key) -> Self::IsKey;

    /// Compares two entities in the order in which a group handles them; all are equal unless `group_by` names a column.
    fn compare_in_group(&self, _other: &Self) -> Ordering {
        Ordering::Equal
    }

    /// Returns the retry policy that the attributes gave.
    fn retry_policy() -> Arc<dyn RetryPolicy> {
        Arc::new(Retry::DEFAULT)
    }
}
