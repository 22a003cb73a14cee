//! The interface of an entity: the functions that users call on the struct that derives `Queueable`.

use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::ExpressionMethods;
use diesel::r2d2::{ConnectionManager, Pool};

use crate::backend::{AsQueueConnection, Now, NowPlus, QueueConnection};
use crate::entity::{
    Entity, NextAttemptTime, QueueColumn, QueueStateColumns, QueueTable, StatusText, TryCount, queue_state,
};
use crate::error::Error;
use crate::poller::{HandlerFor, Poller};
use crate::queue::{AllFilters, EnqueueByVersion, ExplainOn, Explanation, Queue};
use crate::row::{Instant, Status, TimestampUtc};

/// The values that make a row due, for an insert or an update.
pub type Due<T, Time> = (
    diesel::dsl::Eq<QueueColumn<T, NextAttemptTime>, Time>,
    diesel::dsl::Eq<QueueColumn<T, StatusText>, Status>,
    diesel::dsl::Eq<QueueColumn<T, TryCount>, i32>,
);

/// An entity: a struct whose table is a queue. Every [`Entity`] is one.
///
/// `#[derive(Queueable)]` implements it, by way of [`Entity`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a queue",
    note = "add `#[derive(Queueable)]` beside `#[derive(Queryable, Selectable)]`"
)]
pub trait Queueable: Entity {
    /// Selects all queue columns as one [`QueueState`](crate::QueueState).
    fn queue_state() -> QueueStateColumns<Self::Queue> {
        queue_state()
    }

    /// Makes a row due at once, by the database's clock. The value goes into an insert or an update. An update enqueues
    /// the row anew: the status becomes `NOT_ATTEMPTED` and the tries start anew.
    fn due_now() -> Due<Self::Queue, Now> {
        crate::poller::announce::<Self::Queue>();
        due(Now)
    }

    /// Makes a row due at a given time.
    fn due_at(time: DateTime<Utc>) -> Due<Self::Queue, Instant> {
        crate::poller::announce::<Self::Queue>();
        due(Instant::from(time))
    }

    /// Makes a row due after a delay, by the database's clock. At most [`MAX_DELAY`](crate::MAX_DELAY) is added.
    fn due_in(delay: Duration) -> Due<Self::Queue, NowPlus> {
        crate::poller::announce::<Self::Queue>();
        due(NowPlus(delay))
    }

    /// Makes a row due for a version of its content, if the version in the column that `#[queue(version = ..)]` names
    /// is older than this one, or null. The call then stores the version, the status becomes `NOT_ATTEMPTED`, and the
    /// tries start anew. Returns whether it did so. News that arrives out of order, or twice, changes nothing. A
    /// skipped row is left alone. A missing row is not created: insert it first (Diesel's `on_conflict .. do_nothing`).
    /// A stopped row takes the version, and waits to be resumed.
    ///
    /// A row with stages begins with the first one.
    ///
    /// If a worker is processing the row under a lease, it loses the row: its answer is for an older version and is not
    /// written. The row of an exclusive entity is due when that lease would have ended, because the call runs until
    /// then. If a worker is processing the row in a transaction, this call waits for it.
    ///
    /// The version may be anything that Diesel can compare: a number, a time. The column must store it exactly: a whole
    /// number, text, or a time with all its digits (`DATETIME(6)` on MySQL and MariaDB, whose plain `DATETIME` has
    /// whole seconds). In a column that rounds, the same news is queued twice, or newer news of the same second is
    /// never queued.
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
            crate::poller::announce::<Self::Queue>();
        }
        Ok(changed > 0)
    }

    /// Returns a poller that serves this entity with a handler of the entity's mode: a [`Handler`](crate::Handler) or a
    /// closure, in lease mode a [`LeaseHandler`](crate::LeaseHandler) or two closures.
    ///
    /// [`Poller::serve`] adds further entities.
    fn poller<C>(pool: Pool<ConnectionManager<C>>, handler: impl HandlerFor<Self, C> + 'static) -> Poller<C>
    where
        C: QueueConnection,
        Self: 'static,
    {
        Poller::new(pool).serve::<Self>(handler)
    }

    /// Explains why the row with this key does not run now: that it is not queued, scheduled for later, held by another
    /// attempt, and so on; or that it is [due](Explanation::Due).
    ///
    /// It writes nothing and waits for nobody. To find out whether another session has locked the row, it takes the
    /// row's lock for a moment. It does not do so inside a transaction on MySQL, where the lock would stay, or in a
    /// session that may only read: there it calls a locked row due.
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

impl<Q: Entity> Queueable for Q {}

fn due<T, Time>(time: Time) -> Due<T, Time>
where
    T: QueueTable,
    Time: diesel::expression::AsExpression<diesel::sql_types::Nullable<TimestampUtc>>,
{
    (
        QueueColumn::<T, NextAttemptTime>::new().eq(time),
        QueueColumn::<T, StatusText>::new().eq(Status::NotAttempted),
        QueueColumn::<T, TryCount>::new().eq(0),
    )
}
