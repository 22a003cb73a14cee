//! What the derive implements: the table, the key, the names and the settings of an entity.

use std::cmp::Ordering;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::ExpressionMethods;
use diesel::query_source::Table;
use diesel::r2d2::{ConnectionManager, Pool};
use serde::{Deserialize, Serialize};

use crate::backend::{AsQueueConnection, QueueBackend, QueueConnection};
use crate::column::{self, QueueColumn, QueueStateColumns};
use crate::error::Error;
use crate::guard::Guard;
use crate::instant::{Instant, Now, NowPlus, TimestampUtc};
use crate::mode::HandlerFor;
use crate::options::Options;
use crate::poller::Poller;
use crate::queue::Queue;
use crate::report::{ExplainOn, Explanation};
use crate::retry::{Retry, RetryPolicy};
use crate::selection::AllFilters;
use crate::statement::QueueOn;
use crate::status::Status;
use crate::version::EnqueueByVersion;

/// The names of the queue's columns on one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ColumnNames {
    /// The column of the [`Status`].
    pub status: &'static str,
    /// The column that alone decides whether a row is pending: null means that it is not to be processed.
    pub next_attempt_time: &'static str,
    /// The column that counts the recorded attempts.
    pub try_count: &'static str,
    /// The column of the last attempt's end.
    pub last_attempt_time: &'static str,
    /// The column of the last failure's text.
    pub last_attempt_error_message: &'static str,
}

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

/// What goes into an insert or an update to make a row due.
pub type Due<T, Time> = (
    diesel::dsl::Eq<QueueColumn<T, column::NextAttemptTime>, Time>,
    diesel::dsl::Eq<QueueColumn<T, column::StatusText>, Status>,
    diesel::dsl::Eq<QueueColumn<T, column::TryCount>, i32>,
);

/// An entity: a struct whose table is a queue.
///
/// It is implemented by `#[derive(Queueable)]`, which reads Diesel's own attributes for the table and the primary key.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a queue",
    note = "add `#[derive(Queueable)]` beside `#[derive(Queryable, Selectable)]`"
)]
pub trait Queueable: Sized {
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

    /// Selects all queue columns as one [`QueueState`](crate::QueueState).
    fn queue_state() -> QueueStateColumns<Self::Queue> {
        column::queue_state()
    }

    /// Makes a row due at once, by the database's clock. The value goes into an insert or an update; in an update it
    /// is a new enqueueing: the status becomes `NOT_ATTEMPTED` and the tries start anew.
    fn due_now() -> Due<Self::Queue, Now> {
        crate::wake::announce::<Self::Queue>();
        due(Now)
    }

    /// Makes a row due at a given time.
    fn due_at(time: DateTime<Utc>) -> Due<Self::Queue, Instant> {
        crate::wake::announce::<Self::Queue>();
        due(Instant::from(time))
    }

    /// Makes a row due after a delay, counted by the database's clock. At most [`MAX_DELAY`](crate::MAX_DELAY) is added.
    fn due_in(delay: Duration) -> Due<Self::Queue, NowPlus> {
        crate::wake::announce::<Self::Queue>();
        due(NowPlus(delay))
    }

    /// Makes a row due for a version of its content, if the version in the column that `#[queue(version = ..)]` names is older
    /// than this one, or null: the version is stored, the status becomes `NOT_ATTEMPTED` and the tries start anew. Returns
    /// whether it was. News that arrives out of order, or twice, changes nothing. A skipped row is left alone, and so is one
    /// that is not there: insert it first (Diesel's `on_conflict .. do_nothing`). A stopped row takes the version, and waits
    /// to be resumed.
    ///
    /// A row that is worked under a lease meanwhile is taken from its worker, whose answer is for an older version and is not
    /// written. A row that is worked in a transaction is waited for.
    ///
    /// The version is whatever Diesel can compare: a number, a time. The column must store it exactly: a whole number, text,
    /// or a time with all its digits (`DATETIME(6)` on MySQL and MariaDB, whose plain `DATETIME` has whole seconds). In a
    /// column that rounds, the same news is queued twice, or newer news of the same second never.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel::connection::SimpleConnection;
    /// # use diesel_migrations::MigrationHarness;
    /// # use queueable::{Migrations, Queueable};
    /// # diesel::table! { documents (id) { id -> BigInt, revision -> Nullable<BigInt>, } }
    /// #[derive(Queryable, Selectable, Queueable)]
    /// #[queue(version = revision)]
    /// struct Document { id: i64 }
    ///
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// # connection.batch_execute("CREATE TABLE documents (id INTEGER PRIMARY KEY NOT NULL, revision BIGINT)")?;
    /// # connection.run_pending_migrations(Migrations::new().entity::<Document>())?;
    /// # connection.batch_execute("INSERT INTO documents (id) VALUES (7)")?;
    /// assert!(Document::enqueue_if_newer(&mut connection, &7, 3)?);
    /// assert!(!Document::enqueue_if_newer(&mut connection, &7, 2)?);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Database`].
    fn enqueue_if_newer<C, V>(connection: &mut C, key: &Self::Key, version: V) -> Result<bool, Error>
    where
        C: AsQueueConnection,
        Self: EnqueueByVersion<C::Connection, V>,
    {
        let changed = Self::enqueue_version(connection.as_queue_connection(), key, version)?;
        if changed > 0 {
            crate::wake::announce::<Self::Queue>();
        }
        Ok(changed > 0)
    }

    /// Returns a poller that serves this entity with `handler`, which is what the entity's mode wants: a
    /// [`Handler`](crate::Handler) or a closure, in lease mode a [`LeaseHandler`](crate::LeaseHandler) or two closures.
    ///
    /// [`Poller::serve`] adds further entities.
    fn poller<C>(pool: Pool<ConnectionManager<C>>, handler: impl HandlerFor<Self, C> + 'static) -> Poller<C>
    where
        C: QueueConnection,
        Self: QueueOn<C>,
    {
        Poller::new(pool).serve::<Self>(handler)
    }

    /// Tells why the row with this key does not run now: that it is not queued, scheduled for later, held by another attempt,
    /// and so on; or that it is [due](Explanation::Due).
    ///
    /// It writes nothing and waits for nobody. Whether another session has locked the row is found out by taking its lock
    /// for a moment, except inside a transaction on MySQL, where the lock would stay, and in a session that may only read:
    /// there a row that is locked is called due.
    ///
    /// # Errors
    ///
    /// [`Error::Database`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel::connection::SimpleConnection;
    /// # use diesel_migrations::MigrationHarness;
    /// # use queueable::{Explanation, Migrations, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL)")?;
    /// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
    /// diesel::insert_into(payments::table)
    ///     .values((payments::id.eq(7), Payment::due_in(std::time::Duration::from_secs(60))))
    ///     .execute(&mut connection)?;
    /// match Payment::explain(&mut connection, &7)? {
    ///     Explanation::ScheduledFor { time } => println!("payment 7 runs at {time}"),
    ///     other => panic!("{other}"),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    fn explain<C: AsQueueConnection>(connection: &mut C, key: &Self::Key) -> Result<Explanation, Error>
    where
        Self: ExplainOn<C::Connection>,
    {
        Ok(Self::explain_row(connection.as_queue_connection(), key)?)
    }

    /// Starts an operation on the queue's rows: search, count, retry, postpone, stop, delete.
    fn queue() -> Queue<Self, AllFilters>
    where
        Self: 'static,
    {
        Queue::new()
    }
}

fn due<T, Time>(time: Time) -> Due<T, Time>
where
    T: QueueTable,
    Time: diesel::expression::AsExpression<diesel::sql_types::Nullable<TimestampUtc>>,
{
    (
        QueueColumn::<T, column::NextAttemptTime>::new().eq(time),
        QueueColumn::<T, column::StatusText>::new().eq(Status::NotAttempted),
        QueueColumn::<T, column::TryCount>::new().eq(0),
    )
}
