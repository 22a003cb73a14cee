//! Turns an existing Diesel table into a reliable queue: the domain row *is* the message.
//!
//! `#[derive(Queueable)]` comes with a migration that adds five columns to the table. A poller then processes due rows
//! in one database transaction per message, so that the handler's writes and the queue state commit together or not at
//! all.
//!
//! ```
//! use diesel::prelude::*;
//! use diesel::r2d2::{ConnectionManager, Pool};
//! use diesel_migrations::MigrationHarness;
//! use queueable::{HandlerResult, Message, Migrations, Outcome, Queueable, Status};
//!
//! diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }
//! diesel::table! { ledger (payment_id) { payment_id -> BigInt, amount_cents -> BigInt, } }
//!
//! #[derive(Queryable, Selectable, Queueable)]
//! #[queue(retry = exponential("10s", max = "1h"), max_tries = 10)]
//! struct Payment {
//!     id: i64,
//!     amount_cents: i64,
//! }
//!
//! fn charge(payment: &Payment, message: &mut Message<'_, SqliteConnection>) -> HandlerResult {
//!     diesel::insert_into(ledger::table) // commits together with the queue state, or not at all
//!         .values((ledger::payment_id.eq(payment.id), ledger::amount_cents.eq(payment.amount_cents)))
//!         .execute(message.connection())?; // any error: rolled back and retried by the policy
//!     Ok(Outcome::Done)
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! # let directory = tempfile::tempdir()?;
//! # let file = directory.path().join("app.sqlite").display().to_string();
//! let pool = Pool::new(ConnectionManager::<SqliteConnection>::new(file))?;
//! let mut connection = pool.get()?;
//! # use diesel::connection::SimpleConnection;
//! # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, amount_cents BIGINT NOT NULL);
//! #     CREATE TABLE ledger (payment_id BIGINT NOT NULL PRIMARY KEY, amount_cents BIGINT NOT NULL)")?;
//! connection.run_pending_migrations(Migrations::new().entity::<Payment>())?; // existing rows are not queued
//!
//! diesel::insert_into(payments::table)
//!     .values((payments::amount_cents.eq(100), Payment::due_now()))
//!     .execute(&mut connection)?;
//! # drop(connection);
//! # let mut connection = pool.get()?;
//! let done = Payment::poller(pool.clone(), charge).run_until_idle()?; // or `start()`, which serves until it is told to stop
//! assert_eq!(done.succeeded, 1);
//!
//! let successes = payments::table.filter(payment_queue::status.eq(Status::Success)).count();
//! assert_eq!(successes.get_result::<i64>(&mut connection)?, 1);
//! # Ok(()) }
//! ```
//!
//! # The three things to know
//!
//! - [`Queueable`]: the derive, and what it gives an entity: [`due_now`](Queueable::due_now) for inserts and updates,
//!   [`poller`](Queueable::poller), [`queue`](Queueable::queue), and a module of columns (`payment_queue::status`).
//! - [`Handler`]: the code that you write, as a struct or a closure. It answers with an [`Outcome`] or a [`Failure`].
//!   For work that calls the outside world or takes long, write a [`LeaseHandler`].
//! - [`QueueRows`]: the operations that an operator runs by domain filter: count, retry, postpone, stop, rerun, skip,
//!   delete, purge, archive. A [dry run](QueueRows::dry_run) says what each would do.
//!
//! # A map
//!
//! | to | see |
//! |---|---|
//! | name columns, set retries, tries and timeout | the [derive's attributes](derive@Queueable) |
//! | choose between one transaction per message, groups, and leases | [choosing a mode](modes) |
//! | order, conditions, stages, schedules, windows, reruns, archives | [kinds of work](derive@Queueable#kinds-of-work), [`Outcome::next`], [`Schedule`], [`Window`] |
//! | purge, archive, redrive, back-fill, and see in advance what a call would do | [`QueueRows::purge`], [`QueueRows::archive`], [`QueueRows::redrive`], [`QueueRows::enqueue_existing`], [`QueueRows::dry_run`] |
//! | add the columns and the index | [`Migrations`] |
//! | serve several entities with one pool | [`Poller`], [`PollerSettings`], [`PollerHandle`] |
//! | write async handlers, and have any pool | `Async`, `AsyncHandler`, `AsyncPgSession`, [`Poller::with_own_connections`] |
//! | write a retry policy of your own | [`RetryPolicy`] |
//! | know the backlog, the finished work, and the errors | [`QueueRows::backlog`], [`QueueRows::statistics`], [`QueueRows::errors`] |
//! | pause a queue while it runs | [`Queueable::pause`], [`Pause`], [`Migrations::control`], [`Poller::control`] |
//! | limit a queue while it runs | [`Queueable::set_limits`], [`control::Limits`], [`control::limits`] |
//! | know which processes serve the queues | [`Poller::register`], [`Migrations::pollers`], [`pollers`] |
//! | keep a copy of a database from working | [`Poller::environment`], [`control::adopt_environment`] |
//! | know who has changed what, and why | [`QueueRows::by`], [`Migrations::audit`], [`control::audit`] |
//! | hear what happens in a poller | [`Poller::on_event`], [`Event`] |
//! | link an attempt's span to the trace that enqueued its row | [`Queueable::traced`], [`set_trace_context`] |
//! | know whether a poller is well | [`PollerHandle::health`], [`Health`] |
//! | know what makes a queue slow or unsafe, and what mends it | [`Queueable::examine`], [`report::examine`] |
//! | know why a row does not run | [`Queueable::explain`], [`Explanation`] |
//! | test handlers in a transaction that is rolled back, with a clock that moves | `testing` |
//! | read a row's queue state | [`QueueState`], [`Status`] |
//! | know why a poller does not start | [`Error`], [`Finding`] |
//! | name an answer, a column or a bound in a signature | [`report`], [`columns`], [`bounds`] |
//!
//! # Features
//!
//! `postgres`, `mysql` (MariaDB too) and `sqlite` switch on a database; `bundled` builds SQLite from source. None is on by
//! default. `async-postgres` and `async-mysql` switch on a database through diesel-async, without its client library, and async
//! handlers. `tokio` adds `AsyncCalls`: calls of lease mode that wait on the application's tokio runtime. `time` reads queue columns
//! as, and compares them with, the `OffsetDateTime` of the crate `time`; chrono's `DateTime` and `SystemTime` need no feature.
//! `metrics` adds `Poller::metrics`, which counts through the facade of that name. `testing` adds a test kit, which is for the
//! `[dev-dependencies]` of an application.

pub use queue_core::{
    AttemptEvent, ClaimStyle, ConnectFailure, ConnectionSource, CrashAccounting, DryRun, Entity, Error, Event,
    Explanation, Failure, Finding, Group, Handler, HandlerResult, Health, InvalidSchedule, InvalidWindow, Lease,
    LeaseHandler, LeaseLost, Message, Migrations, Outcome, Pause, Paused, Poller, PollerHandle, PollerSettings,
    PoolErrorLog, QueueRows, QueueState, Queueable, Redact, Retry, RetryPolicy, Schedule, Stage, Status, Tally, When,
    Window, assert_schema, pauses, pollers, set_trace_context,
};
pub use queue_derive::{Queueable, Stage};

// One line for each gate, so that the compiler says which feature a name needs.
#[cfg(feature = "async-mysql")]
pub use queue_core::AsyncMysqlSession;
#[cfg(feature = "async-postgres")]
pub use queue_core::AsyncPgSession;
#[cfg(any(feature = "async-postgres", feature = "async-mysql"))]
pub use queue_core::{Async, AsyncHandler, DieselAsyncSession};
#[cfg(feature = "tokio")]
pub use queue_core::{AsyncCalls, AsyncLeaseHandler, CallFuture};

#[cfg(feature = "testing")]
pub mod testing;

/// What operators ask of running queues: limits at run time; whose database this is; and who has changed what.
///
/// [`Pause`] and [`pollers`] are beside this module.
pub mod control {
    pub use queue_core::{Audit, AuditPage, Audited, Limits, adopt_environment, audit, environment, limits};
}

/// The answers of reports, operations and a poller's shutdown; and [`examine`](report::examine), which says what makes queues slow
/// or unsafe on a database.
pub mod report {
    pub use queue_core::{
        AttemptCounts, Backlog, By, Counted, Cursor, EnqueueExisting, EntityHealth, ErrorGroup, ErrorReport,
        ExplainedRows, Explanations, Ill, IllKind, Interval, Limited, OddTimes, Page, Part, PeriodCounts,
        PollerProcess, PollerState, Preview, PreviewedRow, ProcessedQueue, Progress, Redriven, RunningMessage,
        Severity, Shutdown, Statistics, StatusCounts, TriggerMigration, Unserved, examine,
    };
}

/// The queue's columns as Diesel expressions, and the times that they are compared with.
///
/// Each entity has constants of these types in the module that the derive writes, such as `payment_queue::status`.
pub mod columns {
    pub use queue_core::{
        BeginTime, ChangeCount, CreatedTime, Cron, Due, EndTime, Instant, LastAttemptErrorMessage, LastAttemptTime,
        MAX_DELAY, NextAttemptTime, Now, NowPlus, Occasion, Period, Priority, QueueColumn, QueueStateColumns,
        ScheduledTime, StageText, StatusText, TimeZone, TimestampUtc, TraceParent, TryCount, UnknownStatus,
        UpdatedTime,
    };
    #[doc(hidden)]
    pub use queue_core::{ColumnKind, TimeOperand};
}

/// The bounds that generic code names: an entity on a connection, its handlers, its mode, and the filters of a
/// [`QueueRows`].
pub mod bounds {
    // Bounds that stand for what Diesel asks. They have no methods to call, and the compiler names the one that is missing.
    pub use queue_core::{
        AllFilters, EveryRow, Filtered, GroupMode, HandlerFor, LeaseMode, NoFilter, QueueConnection, QueueOn,
        TransactionMode,
    };
    #[doc(hidden)]
    pub use queue_core::{
        AsQueueConnection, ChangesRows, Chosen, ComparesSchema, ConnectionFor, ConnectionsFrom, EnqueueByVersion,
        Explains, LoadsRows, MovesRows, QueueBackend, ReadsRows, RowCondition, SelectedIn, Selection, StoredIn,
        TableIn,
    };
}

/// The names that the derive and the macros write.
#[doc(hidden)]
pub mod __derive {
    pub use queue_core::{
        ClaimCondition, ColumnNames, HasArchive, HasKeep, HasPriority, HasSchedule, HasStages, HasTraceParent,
        HasVersion, Keep, KeyColumn, LaneType, LaneValues, Lanes, Missed, OnFinish, Options, Order, OrderColumn,
        OrderType, OtherOrderType, Periodic, QueueTable, RerunOnChange, Settings, StageOf, Stages, Timestamps,
        ValueKind, assert_condition, assert_embedded, assert_selectable, assert_selected_from, claim_condition,
        field_check, selection_of, stage_named,
    };
}

#[doc = include_str!("../docs/choosing-a-mode.md")]
pub mod modes {}

/// Runs the examples of the README and of the attribute reference.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../queue-derive/docs/derive.md")]
struct Documents;

/// Runs the examples about async applications.
#[cfg(all(doctest, feature = "async-postgres"))]
#[doc = include_str!("../docs/async.md")]
mod async_documents {}
