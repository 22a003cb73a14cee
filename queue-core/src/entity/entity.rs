//! The traits that the derive implements: an entity, with its key, its settings and its mode, and its table as a queue.

use std::cmp::Ordering;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use diesel::Column;
use diesel::query_source::Table;
use serde::{Deserialize, Serialize};

use super::claim_condition::ClaimCondition;
use super::retry::{Retry, RetryPolicy};
use crate::backend::QueueBackend;
use crate::row::{ColumnNames, Options, Stage};

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

    /// The condition `key columns > value`, in the order of the columns.
    type IsAfter: 'static;

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

    /// Returns the condition that picks the rows after this key.
    fn is_after(key: Self::Key) -> Self::IsAfter;

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

/// One queue on one table: the table and the names of its queue columns.
///
/// The derive implements it for a marker type in the module that it writes (`payment_queue::Queue`). The queue columns
/// are generic over this marker and not over the entity, so that entities with lifetimes and type parameters have plain
/// constants as columns.
pub trait QueueTable: Sized + 'static {
    /// The table as `diesel::table!` declares it.
    type Table: Table + Sync + 'static;

    /// The table's value.
    const TABLE: &'static Self::Table;

    /// The names of the queue's columns.
    const COLUMNS: ColumnNames;

    /// What the entity asks for beyond the five columns.
    const OPTIONS: Options = Options::NONE;

    /// The condition on the domain's columns, for one backend. A row is claimed only while it holds. `None`: there is
    /// no condition.
    fn claim_condition<DB: QueueBackend>() -> Option<ClaimCondition<DB>> {
        None
    }
}

/// A value of a primary key: every type that [`Entity::Key`](super::entity::Entity::Key) can be.
pub trait Key: Clone + Debug + Send + Sync + 'static {}

impl<K: Clone + Debug + Send + Sync + 'static> Key for K {}

/// One message, one transaction: the default. It is for short handlers whose effects are in the database.
#[derive(Debug, Clone, Copy)]
pub enum TransactionMode {}

/// Many messages, one transaction, a savepoint for each: `#[queue(group = 50)]`. It is for many small handlers whose
/// effects are in the database.
///
/// A worker claims the due rows together, writes their successes by one statement, and commits once for all of them.
/// Effects in the database still happen exactly once, and a message that fails is undone alone. The differences from
/// [`TransactionMode`] are:
///
/// - A worker never waits for a group to fill up. The group's size follows the backlog: one message while little is
///   due, twice as many each time the group comes back full, half as many after a failure, at most what the attribute
///   says (on PostgreSQL 60, because more savepoints slow down every other session).
/// - `#[queue(group = auto)]` leaves the size to the queue. The messages of a group then take 50 milliseconds together at
///   most: the slower they are, the smaller is the group, and one that takes longer than that is committed alone. So no message
///   waits long for the end of its neighbours, and no row is locked for long. A group has 200 messages at most.
/// - The timeout is the group's. A group whose handlers have used half of it is closed early, and a message that takes
///   longer than the rest is tried again alone, with the whole timeout.
/// - Row locks that a handler takes last as long as the group. Handlers that update shared rows block each other's
///   groups, or deadlock. Name the shared row's column by `order_in_group = company_id`, and the worker handles the
///   messages of a group in its order. Statements of a group wait a quarter of a second for a lock (on MySQL one
///   second). After a longer wait, a deadlock or a lost connection the group is rolled back, no try is used, and the
///   entity's messages run one by one for five seconds.
/// - After a crash the external calls of a whole group are repeated, not those of one message.
/// - While a group runs, its handlers see their own row's next attempt time and error text as the group has set them.
///
/// `#[queue(group(50, optimistic))]` gives the group one savepoint instead of one for each message: for handlers that seldom
/// fail and have effects in the database only. At the first failure the group is rolled back and its messages run one by one.
///
/// A handler that processes the whole group by a few statements implements
/// [`Handler::handle_group`](crate::Handler::handle_group) too.
///
/// The worker detects a handler that ends the group's transaction, by `COMMIT` or by DDL on MySQL. That handler's
/// message fails. The messages before it succeed if the handler has committed their effects, and run again if not. In
/// `handle_group`, and in an optimistic group on MySQL and SQLite, the worker cannot tell which handler it was. Every
/// message that was handled then becomes `FAILED`, with a text that says that its effects may be committed.
///
/// PostgreSQL refuses the `COMMIT` of a group's handler, rolls the group back and ends the session: a handler that
/// ignores the error writes nothing more, and all messages but its own run again. Its own message fails with a text
/// that says so. If the handler has used the connection again, its message runs again alone instead, as in
/// [`TransactionMode`].
///
/// This protection is a cursor that is open while the group runs. `CLOSE ALL` and `DISCARD ALL` in a handler close it.
/// The worker then does not commit the group, runs its messages one by one, and logs why. After a handler's `ROLLBACK`
/// nothing is protected any more: what the handler writes then, or commits after a `BEGIN` of its own, stays. The
/// session ends only if the poller's role may call `pg_terminate_backend`, as every role may by default. Where that right
/// was revoked, the session goes on after a refusal, and what is written after it stays, too.
#[derive(Debug, Clone, Copy)]
pub enum GroupMode {}

/// The claim is committed, the work runs without a transaction, and a short transaction writes its result:
/// `#[queue(lease = "60s")]`. It is for handlers that call external services or take long.
#[derive(Debug, Clone, Copy)]
pub enum LeaseMode {}

/// Settings of an entity. Its attributes give them, and a poller may override them.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The number of recorded attempts after which a failure becomes `FAILED`. The default, 20, is half a day of
    /// retries under the default policy.
    pub max_tries: u32,
    /// How long a handler may take. `None` means the mode's default: in transaction and group mode the backend's (30
    /// seconds, on SQLite one second, because its one writer blocks every other), in lease mode the lease.
    pub timeout: Option<Duration>,
    /// Lease mode: how long a claimed row belongs to its worker without a heartbeat. The default is 60 seconds.
    pub lease: Duration,
    /// Group mode: the largest number of rows that share a transaction. `None`, the default, means that it follows from the
    /// backlog and from how long a message takes.
    pub group: Option<u32>,
    /// Group mode: whether the messages of a group share one savepoint, and run one by one only after a failure.
    pub optimistic: bool,
}

/// How many rows share a transaction at most, where the attribute does not say it. Measured with a hand-written loop on SQLite:
/// in memory 50 rows are as quick as 1,000 (15,600 messages a second). On a busy disk, where a commit took a tenth of a second,
/// groups of 50, 200 and 1,000 made 250, 940 and 1,600. More than 200 gain less than they lose with a failure.
const MOST: u32 = 200;

/// How long the messages of such a group may take together: a fifth of the time for which a statement of a group waits for a
/// lock, so that a few groups in a row can wait for one another.
const TOGETHER: Duration = Duration::from_millis(50);

impl Settings {
    /// The settings of an entity whose attributes give none.
    pub const DEFAULT: Settings =
        Settings { max_tries: 20, timeout: None, lease: Duration::from_secs(60), group: None, optimistic: false };

    /// Returns how many rows a group has at most, and how long they may take together, as far as their timeout allows it.
    pub(crate) fn most_together(self) -> (u32, Duration) {
        self.group.map_or((MOST, TOGETHER), |rows| (rows, Duration::MAX))
    }
}

/// A queue whose rows have a priority: `#[queue(priority)]`. The derive implements it.
#[diagnostic::on_unimplemented(message = "this queue has no priority", note = "add `#[queue(priority)]` to the entity")]
pub trait HasPriority: QueueTable {}

/// A queue whose rows know the trace context in which they were enqueued: `#[queue(traceparent)]`. The derive implements it.
#[diagnostic::on_unimplemented(
    message = "this queue has no column for the trace context",
    note = "add `#[queue(traceparent)]` to the entity"
)]
pub trait HasTraceParent: QueueTable {}

/// A queue whose rows pass through the stages of the enum `S`: `#[queue(stage = ..)]`. The derive implements it. The enum
/// is a parameter, so that it may be more private than the entity.
#[diagnostic::on_unimplemented(
    message = "this queue has no stages",
    note = "add `#[queue(stage = MyStage)]` to the entity, where `MyStage` is an enum that derives `Stage`"
)]
pub trait HasStages<S>: QueueTable {}

/// A stage of the entity `Q`: a value of the enum that `#[queue(stage = ..)]` names. There is nothing to implement by
/// hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a stage of `{Q}`",
    label = "no stage of `{Q}`",
    note = "the stages of an entity are the values of the enum in `#[queue(stage = MyStage)]`"
)]
pub trait StageOf<Q>: Stage {}

#[diagnostic::do_not_recommend]
impl<Q: Entity<Queue: HasStages<S>>, S: Stage> StageOf<Q> for S {}

/// A queue whose rows have schedules: `#[queue(periodic)]`. The derive implements it.
///
/// A row whose `period` (seconds) or `cron` is set is due again after each run, at the next time on its schedule. Its
/// status is `SUCCESS` or, after a run that failed for good, `ERROR` with the failure's text. A row with neither runs
/// once, as in any other queue. The first run is at the time for which the row is enqueued, and a period is counted
/// from there:
///
/// ```
/// # use diesel::prelude::*;
/// # use diesel_migrations::MigrationHarness;
/// use queueable::{Queueable, Schedule};
///
/// # diesel::table! { jobs (id) { id -> BigInt, name -> Text, } }
/// #[derive(Queryable, Selectable, Queueable)]
/// #[queue(periodic)]
/// struct Job {
///     id: i64,
///     name: String,
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// # let mut connection = SqliteConnection::establish(":memory:")?;
/// # diesel::connection::SimpleConnection::batch_execute(&mut connection,
/// #     "CREATE TABLE jobs (id INTEGER PRIMARY KEY NOT NULL, name TEXT NOT NULL)")?;
/// # connection.run_pending_migrations(queueable::Migrations::new().entity::<Job>())?;
/// let every_minute = (jobs::name.eq("ping"), job_queue::period.eq(60), Job::due_now());
/// diesel::insert_into(jobs::table).values(every_minute).execute(&mut connection)?;
///
/// let first = Schedule::cron("30 2 * * Mon-Fri", "Europe/Berlin")?.next(chrono::Utc::now()).expect("it never ends");
/// let nightly = (job_queue::cron.eq("30 2 * * Mon-Fri"), job_queue::time_zone.eq("Europe/Berlin"), Job::due_at(first));
/// diesel::insert_into(jobs::table).values((jobs::name.eq("books"), nightly)).execute(&mut connection)?;
/// # Ok(()) }
/// ```
///
/// Each run is an occasion of its own, with its own [idempotency key](crate::Message::idempotency_key): `occasion`
/// counts them.
///
/// `scheduled_time` is the scheduled time of the run that comes next, or of one that is not finished yet. A retry, or
/// an operator's [`retry_now`](crate::QueueRows::retry_now), moves the next attempt and not the schedule. To begin a
/// schedule anew, also after a change of its columns, set `scheduled_time` to null together with `due_at(..)`. The
/// queue sets a row aside as `FAILED` when the row has ended its process three times, and when its columns make no
/// valid schedule. The text on the row says which.
#[diagnostic::on_unimplemented(
    message = "this queue has no schedules",
    note = "add `#[queue(periodic)]` to the entity"
)]
pub trait HasSchedule: QueueTable {}

/// A queue whose rows have a version: `#[queue(version = ..)]`. The derive implements it.
#[diagnostic::on_unimplemented(
    message = "this queue has no version",
    note = "add `#[queue(version = my_column)]` to the entity"
)]
pub trait HasVersion: QueueTable {
    /// The column.
    type Column: Column<Table = Self::Table> + Default;
}

/// A queue whose finished rows can be archived: `#[queue(archive(..))]`. The derive implements it.
#[diagnostic::on_unimplemented(
    message = "this queue has no archive",
    note = "add `#[queue(archive(success = my_table, failed = my_other_table))]` to the entity"
)]
pub trait HasArchive: QueueTable {}

/// A queue whose finished rows are kept for a limited time: `#[queue(keep(..))]`. The derive implements it.
#[diagnostic::on_unimplemented(
    message = "the rows of this queue do not expire",
    note = "add `#[queue(keep(success = \"30d\", failed = \"1y\"))]` to the entity"
)]
pub trait HasKeep: QueueTable {}
