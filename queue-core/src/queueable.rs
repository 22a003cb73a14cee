//! The interface of an entity: the functions that users call on the struct that derives `Queueable`.

use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::ExpressionMethods;
use diesel::expression::AsExpression;
use diesel::query_builder::QueryFragment;
use diesel::query_source::Column;
use diesel::r2d2::R2D2Connection;
use diesel::sql_types::{Nullable, SqlType};

use crate::attempt::ComparesSchema;
use crate::audit::{self, Audit, AuditPage};
use crate::backend::{AsQueueConnection, ConnectionsFrom, Now, NowPlus, TriggerMigration, Waking};
use crate::control::{Limits, Pause, PausedPart, name_of};
use crate::doctor::examine_queue;
use crate::entity::{
    Entity, HasTraceParent, NextAttemptTime, QueueColumn, QueueStateColumns, QueueTable, StageOf, StatusText, StoredIn,
    TraceParent, TryCount, queue_state,
};
use crate::error::{Error, Finding};
use crate::event::current_context;
use crate::handler::{HandlerResult, Message};
use crate::ill::Ill;
use crate::poller::{HandlerFor, Poller};
use crate::queue::{AllFilters, EnqueueByVersion, Explains, Explanation, QueueRows};
use crate::row::{Instant, Stage, Status, TimestampUtc};

/// The backend of a connection, or of the connection behind a pooled one.
type BackendOf<C> = <<C as AsQueueConnection>::Connection as diesel::Connection>::Backend;

/// A time as Diesel binds or writes it.
type AsTime<Time> = <Time as AsExpression<Nullable<TimestampUtc>>>::Expression;

/// The values that make a row due, for an insert or an update.
pub type Due<T, Time> = (
    diesel::dsl::Eq<QueueColumn<T, NextAttemptTime>, Waking<AsTime<Time>>>,
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
        due(Now)
    }

    /// Makes a row due at a given time.
    fn due_at(time: DateTime<Utc>) -> Due<Self::Queue, Instant> {
        due(Instant::from(time))
    }

    /// Makes a row due after a delay, by the database's clock. At most [`MAX_DELAY`](crate::MAX_DELAY) is added.
    fn due_in(delay: Duration) -> Due<Self::Queue, NowPlus> {
        due(NowPlus(delay))
    }

    /// Stores the trace context in which a row is enqueued, beside what makes it due. The spans of its attempts then have a
    /// link to it. It needs `#[queue(traceparent)]`, and [`set_trace_context`](crate::set_trace_context); without a context
    /// the value is null.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel::connection::SimpleConnection;
    /// # use diesel_migrations::MigrationHarness;
    /// # use queueable::{Migrations, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, company_id -> BigInt, } }
    /// #[derive(Queryable, Selectable, Queueable)]
    /// #[queue(traceparent)]
    /// struct Payment { id: i64 }
    ///
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, company_id BIGINT NOT NULL)")?;
    /// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
    /// diesel::insert_into(payments::table)
    ///     .values((payments::company_id.eq(3345), Payment::due_now(), Payment::traced()))
    ///     .execute(&mut connection)?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    fn traced() -> diesel::dsl::Eq<QueueColumn<Self::Queue, TraceParent>, Option<String>>
    where
        Self::Queue: HasTraceParent,
    {
        QueueColumn::<Self::Queue, TraceParent>::new().eq(current_context())
    }

    /// Makes a row due for a version of its content, if the version in the column that `#[queue(version = ..)]` names
    /// is older than this one, or null. The call then stores the version, the status becomes `NOT_ATTEMPTED`, and the
    /// tries start anew. Returns whether it did so. News that arrives out of order, or twice, changes nothing. A
    /// skipped row is left alone. A missing row is not created: insert it first (Diesel's `on_conflict .. do_nothing`).
    /// A stopped row takes the version, and waits to be restarted.
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

    /// Returns a poller that serves this entity, on connections from the database's URL or from a pool, see
    /// [`Poller::new`]. The handler is one of the entity's mode: a [`Handler`](crate::Handler) or a
    /// closure, in lease mode a [`LeaseHandler`](crate::LeaseHandler) or two closures. The arguments of a closure need their
    /// types here, and none with [`poller_with`](Queueable::poller_with).
    ///
    /// [`Poller::serve`] adds further entities.
    fn poller<C>(connections: impl ConnectionsFrom<C>, handler: impl HandlerFor<Self, C> + 'static) -> Poller<C>
    where
        C: R2D2Connection + 'static,
        Self: 'static,
    {
        Poller::new(connections).serve::<Self>(handler)
    }

    /// Returns a poller that serves this entity with a closure, whose arguments need no types.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel::r2d2::{ConnectionManager, Pool};
    /// # use queueable::{Outcome, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64, amount_cents: i64 }
    /// # fn poller(pool: Pool<ConnectionManager<SqliteConnection>>) {
    /// let poller = Payment::poller_with(pool, |payment, message| {
    ///     println!("payment {} of {}, try {}", payment.id, payment.amount_cents, message.try_number());
    ///     Ok(Outcome::Done)
    /// });
    /// # }
    /// ```
    ///
    /// In lease mode, see [`Poller::serve_lease_with`].
    fn poller_with<C>(
        connections: impl ConnectionsFrom<C>,
        handle: impl Fn(&Self, &mut Message<'_, C>) -> HandlerResult + HandlerFor<Self, C> + 'static,
    ) -> Poller<C>
    where
        C: R2D2Connection + 'static,
        Self: 'static,
    {
        Poller::new(connections).serve_with::<Self>(handle)
    }

    /// Explains why the row with this key does not run now: that it is not queued, scheduled for later, held by another
    /// attempt, and so on; or that it is [due](Explanation::Due).
    ///
    /// It writes nothing and does not wait. To find out whether another session has locked the row, it takes the row's
    /// lock for a moment. It does not do so inside a transaction on MySQL, where the lock would stay, or in a session
    /// that may only read: there it calls a locked row due.
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
    fn explain<C: Explains<Self>>(connection: &mut C, key: &Self::Key) -> Result<Explanation, Error> {
        Ok(connection.explain_row_of(key)?)
    }

    /// Pauses the queue, or one of its stages, in all processes whose pollers take part in
    /// [control](crate::Poller::control): no attempt begins later than two seconds after the commit, not even of rows that
    /// are enqueued later. Running attempts finish. The pause writes nothing on the rows; only rows that a worker in lease
    /// mode has claimed ahead, and not begun, are given back as they were.
    ///
    /// The pause ends at its end, if it has one, or by [`unpause`](Queueable::unpause); then work begins again within
    /// about two seconds. A second pause of the same queue or stage replaces the first. [`pauses`](crate::pauses),
    /// [`explain`](Queueable::explain), the [backlog](crate::QueueRows::backlog) and the pollers' logs say who has paused it,
    /// when and why.
    ///
    /// In the caller's transaction, the pause is a part of that transaction.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel::connection::SimpleConnection;
    /// # use diesel_migrations::MigrationHarness;
    /// # use queueable::{Migrations, Pause, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// # connection.run_pending_migrations(Migrations::new().control())?;
    /// Payment::pause(&mut connection, Pause::new("bank down", "ops@example.org"))?;
    /// assert!(Payment::unpause(&mut connection)?);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Control`] if there is no [control table](crate::Migrations::control), [`Error::Setting`] for a reason, a
    /// name or an end that [`Pause`] does not take, [`Error::Database`]. If there is a [table of the audit](crate::Migrations::audit),
    /// the pause leaves a row there, in the same transaction, and [`Error::Control`] says if the account may not write it.
    fn pause<C: AsQueueConnection>(connection: &mut C, pause: Pause<Self>) -> Result<(), Error>
    where
        Self: StoredIn<BackendOf<C>>,
    {
        audit::pause(connection.as_queue_connection(), Self::SQL, None, &pause)
    }

    /// Ends the [pause](Queueable::pause) of the whole queue. Returns whether there was one, also one whose end had come.
    /// Pauses of single stages stay. It does not say who asks, so it leaves no row in the audit:
    /// [`unpause_by`](Queueable::unpause_by) does.
    ///
    /// # Errors
    ///
    /// [`Error::Control`] if there is no control table, [`Error::Database`].
    fn unpause<C: AsQueueConnection>(connection: &mut C) -> Result<bool, Error>
    where
        Self: StoredIn<BackendOf<C>>,
    {
        audit::unpause(connection.as_queue_connection(), Self::SQL, PausedPart::Whole, None)
    }

    /// Ends the [pause](Queueable::pause) of one stage. Returns whether there was one, also one whose end had come. A
    /// pause of the whole queue stays.
    ///
    /// # Errors
    ///
    /// Those of [`unpause`](Queueable::unpause).
    fn unpause_stage<C: AsQueueConnection>(connection: &mut C, stage: impl StageOf<Self>) -> Result<bool, Error>
    where
        Self: StoredIn<BackendOf<C>>,
    {
        audit::unpause(connection.as_queue_connection(), Self::SQL, PausedPart::Stage(Stage::name(stage)), None)
    }

    /// Ends the [pause](Queueable::pause) of the whole queue, as [`unpause`](Queueable::unpause) does, and leaves a row in the
    /// [audit](fn@crate::audit) if there is a [table](crate::Migrations::audit) for it: `by` says who asks, in 1 to 255
    /// characters, and `reason` why, in 1 to 1,000.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel_migrations::MigrationHarness;
    /// # use queueable::{Migrations, Pause, Queueable};
    /// # use queueable::control::Audit;
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// # connection.run_pending_migrations(Migrations::new().control().audit())?;
    /// Payment::pause(&mut connection, Pause::new("bank down", "ops@example.org"))?;
    /// assert!(Payment::unpause_by(&mut connection, "ops@example.org", "the bank is back")?);
    /// assert_eq!(Payment::audit(&mut connection, &Audit::new())?.rows.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`unpause`](Queueable::unpause), [`Error::Setting`] for a name or a reason that is empty, too long, or not in one
    /// line, and [`Error::Control`] if the account may not write the table of the audit. Then nothing is changed.
    fn unpause_by<C: AsQueueConnection>(
        connection: &mut C,
        by: impl Into<String>,
        reason: impl Into<String>,
    ) -> Result<bool, Error>
    where
        Self: StoredIn<BackendOf<C>>,
    {
        let author = Some((by.into(), reason.into()));
        audit::unpause(connection.as_queue_connection(), Self::SQL, PausedPart::Whole, author)
    }

    /// Ends the [pause](Queueable::pause) of one stage, as [`unpause_stage`](Queueable::unpause_stage) does, and leaves a row in
    /// the audit, as [`unpause_by`](Queueable::unpause_by) does.
    ///
    /// # Errors
    ///
    /// Those of [`unpause_by`](Queueable::unpause_by).
    fn unpause_stage_by<C: AsQueueConnection>(
        connection: &mut C,
        stage: impl StageOf<Self>,
        by: impl Into<String>,
        reason: impl Into<String>,
    ) -> Result<bool, Error>
    where
        Self: StoredIn<BackendOf<C>>,
    {
        let author = Some((by.into(), reason.into()));
        audit::unpause(connection.as_queue_connection(), Self::SQL, PausedPart::Stage(Stage::name(stage)), author)
    }

    /// Reads what operators have changed in this queue, as [`audit`](fn@crate::audit) reads it of all: the newest first, a page at
    /// a time.
    ///
    /// # Errors
    ///
    /// [`Error::Control`] if there is no [table of the audit](crate::Migrations::audit), [`Error::Database`].
    fn audit<C: AsQueueConnection>(connection: &mut C, audit: &Audit) -> Result<AuditPage, Error>
    where
        Self: StoredIn<BackendOf<C>>,
    {
        audit::audit(connection, &audit.clone().queue(name_of(Self::SQL)?))
    }

    /// Pauses the rows whose column has this value, as [`pause`](Queueable::pause) pauses all of them; rows of other values go on. The
    /// column is the one by which rows take turns: that of `serial_by`, `fair_by` or `at_most(.., by = ..)`. Claims pass over a
    /// paused value along that column's index, however many of its rows are due.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel::connection::SimpleConnection;
    /// # use diesel_migrations::MigrationHarness;
    /// # use queueable::{Migrations, Pause, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, company_id -> BigInt, } }
    /// #[derive(Queryable, Selectable, Queueable)]
    /// #[queue(fair_by = company_id)]
    /// struct Payment { id: i64, company_id: i64 }
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, company_id BIGINT NOT NULL)")?;
    /// # connection.run_pending_migrations(Migrations::new().entity::<Payment>().control())?;
    ///
    /// let pause = Pause::new("their bank is down", "ops@example.org");
    /// Payment::pause_where(&mut connection, payments::company_id, 3345, pause)?;
    /// assert_eq!(queueable::pauses(&mut connection)?[0].value.as_deref(), Some("company_id = 3345"));
    /// assert!(Payment::unpause_where(&mut connection, payments::company_id, 3345)?);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`pause`](Queueable::pause), and [`Error::Setting`] for another column, for null, and for a pause of a stage.
    fn pause_where<C, S, V>(connection: &mut C, column: S, value: V, pause: Pause<Self>) -> Result<(), Error>
    where
        C: AsQueueConnection,
        Self: StoredIn<BackendOf<C>>,
        S: Column<Table = <Self::Queue as QueueTable>::Table>,
        S::SqlType: SqlType,
        V: AsExpression<S::SqlType, Expression: QueryFragment<BackendOf<C>>>,
    {
        let (_, value) = (column, value.as_expression());
        audit::pause(connection.as_queue_connection(), Self::SQL, Some((S::NAME, &value)), &pause)
    }

    /// Ends the [pause](Queueable::pause_where) of the rows whose column has this value. Returns whether there was one, also one
    /// whose end had come.
    ///
    /// # Errors
    ///
    /// Those of [`unpause`](Queueable::unpause), and [`Error::Setting`] for another column and for null.
    fn unpause_where<C, S, V>(connection: &mut C, column: S, value: V) -> Result<bool, Error>
    where
        C: AsQueueConnection,
        Self: StoredIn<BackendOf<C>>,
        S: Column<Table = <Self::Queue as QueueTable>::Table>,
        S::SqlType: SqlType,
        V: AsExpression<S::SqlType, Expression: QueryFragment<BackendOf<C>>>,
    {
        let (_, value) = (column, value.as_expression());
        audit::unpause(connection.as_queue_connection(), Self::SQL, PausedPart::Value(S::NAME, &value), None)
    }

    /// Ends the [pause](Queueable::pause_where) of the rows whose column has this value, as
    /// [`unpause_where`](Queueable::unpause_where) does, and leaves a row in the audit, as [`unpause_by`](Queueable::unpause_by) does.
    ///
    /// # Errors
    ///
    /// Those of [`unpause_where`](Queueable::unpause_where) and [`unpause_by`](Queueable::unpause_by).
    fn unpause_where_by<C, S, V>(
        connection: &mut C,
        column: S,
        value: V,
        by: impl Into<String>,
        reason: impl Into<String>,
    ) -> Result<bool, Error>
    where
        C: AsQueueConnection,
        Self: StoredIn<BackendOf<C>>,
        S: Column<Table = <Self::Queue as QueueTable>::Table>,
        S::SqlType: SqlType,
        V: AsExpression<S::SqlType, Expression: QueryFragment<BackendOf<C>>>,
    {
        let (author, _, value) = (Some((by.into(), reason.into())), column, value.as_expression());
        audit::unpause(connection.as_queue_connection(), Self::SQL, PausedPart::Value(S::NAME, &value), author)
    }

    /// Limits the queue in all processes whose pollers take part in [control](crate::Poller::control), within two seconds: fewer
    /// workers, fewer rows at the same time, another delay of retries. Running attempts finish. The limits replace those that the
    /// queue had, also the ones that these do not name. They last until [`end_limits`](Queueable::end_limits), and
    /// [`limits`](crate::limits) and the pollers' logs say who has set them, when and why.
    ///
    /// In the caller's transaction, the limits are a part of that transaction.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel_migrations::MigrationHarness;
    /// # use queueable::control::Limits;
    /// # use queueable::{Migrations, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// # connection.run_pending_migrations(Migrations::new().control())?;
    /// Payment::set_limits(&mut connection, Limits::new("bank is slow", "ops@example.org").workers(2))?;
    /// assert!(Payment::end_limits(&mut connection)?);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Control`] if there is no [control table](crate::Migrations::control), [`Error::Setting`] for what [`Limits`] does
    /// not take, [`Error::Database`].
    fn set_limits<C: AsQueueConnection>(connection: &mut C, limits: Limits<Self>) -> Result<(), Error>
    where
        Self: StoredIn<BackendOf<C>>,
    {
        audit::set_limits(connection.as_queue_connection(), Self::SQL, &limits)
    }

    /// Ends the [limits](Queueable::set_limits) of the queue. Returns whether there were any.
    ///
    /// # Errors
    ///
    /// [`Error::Control`] if there is no control table, [`Error::Database`].
    fn end_limits<C: AsQueueConnection>(connection: &mut C) -> Result<bool, Error>
    where
        Self: StoredIn<BackendOf<C>>,
    {
        audit::end_limits(connection.as_queue_connection(), Self::SQL, None)
    }

    /// Ends the [limits](Queueable::set_limits) of the queue, as [`end_limits`](Queueable::end_limits) does, and leaves a row in the
    /// audit, as [`unpause_by`](Queueable::unpause_by) does.
    ///
    /// # Errors
    ///
    /// Those of [`unpause_by`](Queueable::unpause_by).
    fn end_limits_by<C: AsQueueConnection>(
        connection: &mut C,
        by: impl Into<String>,
        reason: impl Into<String>,
    ) -> Result<bool, Error>
    where
        Self: StoredIn<BackendOf<C>>,
    {
        let author = Some((by.into(), reason.into()));
        audit::end_limits(connection.as_queue_connection(), Self::SQL, author)
    }

    /// Compares the derive, the application's `table!` and the live table, and returns all differences; none if a poller
    /// would start. Each has the SQL or the change that mends it.
    ///
    /// It finds what a [start](crate::Poller::start) finds, and also: columns of `table!` that the live table lacks,
    /// columns that the queue writes although no migration of the queue has added them, and columns of the queue that
    /// `table!` lists with another nullability. It finds everything at once, where a start stops at the first kind of
    /// finding. It writes nothing. In a transaction, such as Diesel's test transaction, it checks neither the account's
    /// rights nor the claim itself. [`assert_schema!`](crate::assert_schema) calls it in a test.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel::connection::SimpleConnection;
    /// # use queueable::Queueable;
    /// # diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL)")?;
    /// let differences = Payment::check_schema(&mut connection)?;
    /// assert!(differences.iter().any(|found| found.problem.starts_with("`table!` has a column amount_cents")));
    /// assert!(differences.iter().any(|found| found.mend.starts_with("ALTER TABLE `payments` ADD COLUMN `status`")));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Database`].
    fn check_schema<C: AsQueueConnection>(connection: &mut C) -> Result<Vec<Finding>, Error>
    where
        C::Connection: ComparesSchema<Self>,
    {
        Ok(ComparesSchema::<Self>::differences_of(connection.as_queue_connection())?)
    }

    /// Examines the queue for everything that makes it slow or unsafe on its database: the schema, the account's rights, the health
    /// of the table and of its indexes, triggers, and rows that stand still. Returns what it finds, the worst first, each with
    /// what mends it. [`report::examine`](crate::examine) examines what all queues of a database share.
    ///
    /// It only reads, locks no row, and works on a standby and in sessions that may only read. It reads catalogues and
    /// statistics, and at most some thousand rows along an index, so it is safe beside a running queue of any size. On
    /// PostgreSQL, MySQL and MariaDB no look takes longer than five seconds. What the account may not read becomes a
    /// [note](crate::IllKind::Unread). On SQLite, the rights show when a poller starts.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel::connection::SimpleConnection;
    /// # use diesel_migrations::MigrationHarness;
    /// # use queueable::{Migrations, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL)")?;
    /// connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
    /// assert_eq!(Payment::examine(&mut connection)?, []);
    ///
    /// connection.batch_execute("INSERT INTO payments (status, next_attempt_time) VALUES ('WAITING', '2026-03-01 12:00:00.000')")?;
    /// let ills = Payment::examine(&mut connection)?;
    /// assert_eq!(ills[0].kind.to_string(), "unknown-status");
    /// assert!(ills[0].mend.starts_with("UPDATE `payments` SET `status` = 'NOT_ATTEMPTED' WHERE `status` = 'WAITING'"));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Database`] if the connection is lost.
    fn examine<C: AsQueueConnection>(connection: &mut C) -> Result<Vec<Ill>, Error>
    where
        C::Connection: ComparesSchema<Self>,
    {
        Ok(examine_queue::<Self, C::Connection>(connection.as_queue_connection())?)
    }

    /// Makes the SQL after which the application's triggers no longer run at each write of the queue, from the triggers of
    /// the live table. Put it into a migration of your own; this function writes nothing.
    ///
    /// On PostgreSQL and SQLite it gives each trigger that runs at every update a list of all columns that are not the
    /// queue's. If you add a column to the table later, add it to the list too. MySQL and MariaDB know no such list: there
    /// it makes a trigger for each column with `ON UPDATE CURRENT_TIMESTAMP`, which keeps the column as it is while no
    /// other column of the application changes; an update of this column alone then changes nothing.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel::connection::SimpleConnection;
    /// # use diesel_migrations::MigrationHarness;
    /// # use queueable::{Migrations, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// connection.batch_execute(
    ///     "CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, amount_cents BIGINT NOT NULL, updated_at TEXT);
    ///      CREATE TRIGGER set_updated_at AFTER UPDATE ON payments
    ///          BEGIN UPDATE payments SET updated_at = CURRENT_TIMESTAMP WHERE id = NEW.id; END",
    /// )?;
    /// connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
    /// let migration = Payment::trigger_migration(&mut connection)?;
    /// assert!(migration.up.contains("AFTER UPDATE OF `id`, `amount_cents`, `updated_at` ON payments"));
    /// connection.batch_execute(&migration.up)?;
    /// assert_eq!(Payment::trigger_migration(&mut connection)?.up, "");
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Database`].
    fn trigger_migration<C: AsQueueConnection>(connection: &mut C) -> Result<TriggerMigration, Error>
    where
        C::Connection: ComparesSchema<Self>,
    {
        Ok(ComparesSchema::<Self>::trigger_migration_of(connection.as_queue_connection())?)
    }

    /// Starts an operation on the queue's rows: search, count, retry, postpone, stop, delete.
    fn queue() -> QueueRows<Self, AllFilters>
    where
        Self: 'static,
    {
        QueueRows::new()
    }
}

impl<Q: Entity> Queueable for Q {}

/// Asserts that the derive, `table!` and the live table agree, for one entity or several. Call it in a test of your CI,
/// on a database that your migrations have made.
///
/// ```
/// use diesel::prelude::*;
/// # use diesel::connection::SimpleConnection;
/// use diesel_migrations::MigrationHarness;
/// use queueable::{Migrations, Queueable, assert_schema};
///
/// diesel::table! { payments (id) { id -> BigInt, } }
/// diesel::table! { invoices (id) { id -> BigInt, } }
///
/// #[derive(Queryable, Selectable, Queueable)]
/// struct Payment { id: i64 }
///
/// #[derive(Queryable, Selectable, Queueable)]
/// struct Invoice { id: i64 }
///
/// // #[test]
/// fn the_database_has_what_the_queues_need() {
///     let connection = &mut SqliteConnection::establish(":memory:").unwrap();
/// #   connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL)").unwrap();
/// #   connection.batch_execute("CREATE TABLE invoices (id INTEGER PRIMARY KEY NOT NULL)").unwrap();
///     connection.run_pending_migrations(Migrations::new().entity::<Payment>().entity::<Invoice>()).unwrap();
///     assert_schema!(connection, Payment, Invoice);
/// }
/// # the_database_has_what_the_queues_need();
/// ```
///
/// # Panics
///
/// If there is a difference, or the database returns an error. The message has the differences of all entities, each
/// with what mends it. [`Queueable::check_schema`] returns them.
#[macro_export]
macro_rules! assert_schema {
    ($connection:expr, $($entity:ty),+ $(,)?) => {
        match &mut *$connection {
            connection => $crate::assert_no_differences([
                $((
                    <$entity as $crate::Entity>::ENTITY,
                    <$entity as $crate::Queueable>::check_schema(&mut *connection),
                )),+
            ]),
        }
    };
}

/// Panics if there are differences. [`assert_schema!`] calls it.
#[doc(hidden)]
#[track_caller]
pub fn assert_no_differences(checked: impl IntoIterator<Item = (&'static str, Result<Vec<Finding>, Error>)>) {
    let mut differences = String::new();
    for (entity, checked) in checked {
        match checked {
            Ok(found) => found.iter().for_each(|finding| differences += &format!("\n- {finding}")),
            Err(error) => differences += &format!("\n- {entity}: cannot be compared: {error}"),
        }
    }
    assert!(differences.is_empty(), "the derive, `table!` and the live table differ:{differences}");
}

fn due<T, Time>(time: Time) -> Due<T, Time>
where
    T: QueueTable,
    Time: AsExpression<Nullable<TimestampUtc>>,
{
    let time = Waking::new(time.as_expression(), crate::poller::announce::<T>);
    (
        QueueColumn::<T, NextAttemptTime>::new().eq(time),
        QueueColumn::<T, StatusText>::new().eq(Status::NotAttempted),
        QueueColumn::<T, TryCount>::new().eq(0),
    )
}
