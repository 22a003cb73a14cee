//! The runtime of [queueable](https://docs.rs/queueable). Use it through that crate.

// For the list of the tuples that a `table!` of 128 columns may have.
#![recursion_limit = "256"]
#![cfg_attr(
    not(any(feature = "_postgres", feature = "_mysql", feature = "sqlite")),
    allow(dead_code, unused_imports, unused_macros, reason = "without a database nothing uses the shared rooms")
)]

mod attempt;
mod audit;
mod backend;
mod batch;
mod claim;
mod control;
mod crash;
mod doctor;
mod entity;
mod error;
mod event;
mod gauges;
mod group;
mod handler;
mod ill;
mod lease;
mod log;
mod minutes;
mod poller;
mod queue;
mod queueable;
mod row;
mod statement;
mod sync;
#[cfg(feature = "testing")]
mod testing;

pub use self::attempt::{ComparesSchema, Tally};
pub use self::audit::{Audit, AuditPage, Audited, adopt_environment, audit};
#[cfg(feature = "async-mysql")]
pub use self::backend::AsyncMysqlSession;
#[cfg(feature = "async-postgres")]
pub use self::backend::AsyncPgSession;
#[cfg(feature = "_async")]
pub use self::backend::DieselAsyncSession;
#[doc(hidden)]
pub use self::backend::backends;
pub use self::backend::{
    AsQueueConnection, ConnectionSource, ConnectionsFrom, Now, NowPlus, QueueBackend, QueueConnection, TriggerMigration,
};
pub use self::claim::ClaimStyle;
pub use self::control::{
    Limited, Limits, Pause, Paused, PollerProcess, PollerState, ProcessedQueue, RunningMessage, Unserved, environment,
    limits, pauses, pollers,
};
pub use self::crash::CrashAccounting;
pub use self::doctor::examine;
#[doc(hidden)]
pub use self::entity::field_check;
pub use self::entity::{
    BeginTime, ChangeCount, ClaimCondition, ColumnKind, CreatedTime, Cron, EndTime, Entity, GroupMode, HasArchive,
    HasKeep, HasPriority, HasSchedule, HasStages, HasTraceParent, HasVersion, InvalidSchedule, InvalidWindow,
    LastAttemptErrorMessage, LastAttemptTime, LeaseMode, Migrations, NextAttemptTime, Occasion, Period, Priority,
    QueueColumn, QueueStateColumns, QueueTable, Retry, RetryPolicy, RowCondition, Schedule, ScheduledTime, SelectedIn,
    Settings, StageOf, StageText, StatusText, StoredIn, TableIn, TimeOperand, TimeZone, TraceParent, TransactionMode,
    TryCount, UpdatedTime, Window,
};
#[doc(hidden)]
pub use self::entity::{
    ConditionFor, Embedded, EmbeddedSelection, KeyColumn, LaneType, OrderType, OtherOrderType, SelectableEntity,
    SelectedFrom, TakeCondition, assert_condition, assert_selectable, assert_selected_from, condition_on, selection_of,
    unwritable_condition,
};
pub use self::error::{ConnectFailure, Error, Finding};
pub use self::event::{AttemptEvent, Event, set_trace_context};
#[cfg(feature = "_async")]
pub use self::handler::{Async, AsyncHandler};
#[cfg(feature = "tokio")]
pub use self::handler::{AsyncCalls, AsyncLeaseHandler, CallFuture};
pub use self::handler::{
    Failure, Group, Handler, HandlerResult, Lease, LeaseHandler, LeaseLost, Message, Outcome, When,
};
pub use self::ill::{Ill, IllKind, Severity};
pub use self::log::{PoolErrorLog, Redact};
pub use self::poller::{
    ConnectionFor, EntityHealth, HandlerFor, Health, Poller, PollerHandle, PollerSettings, Shutdown,
};
#[doc(hidden)]
pub use self::queue::Tabular;
pub use self::queue::{
    AllFilters, AttemptCounts, Backlog, By, ChangesRows, Chosen, Counted, Cursor, DryRun, EnqueueByVersion,
    EnqueueExisting, ErrorGroup, ErrorReport, EveryRow, ExplainedRows, Explains, Explanation, Explanations, Filtered,
    Interval, LoadsRows, MovesRows, NoFilter, OddTimes, Page, Part, PeriodCounts, Preview, PreviewedRow, Progress,
    QueueRows, ReadsRows, Redriven, Selection, Statistics, StatusCounts,
};
#[doc(hidden)]
pub use self::queueable::assert_no_differences;
pub use self::queueable::{Due, Queueable};
#[doc(hidden)]
pub use self::row::stage_named;
pub use self::row::{
    ColumnNames, Instant, Keep, LaneValues, Lanes, MAX_DELAY, Missed, OnFinish, Options, Order, OrderColumn, Periodic,
    QueueState, RerunOnChange, Stage, Stages, Status, TimestampUtc, Timestamps, UnknownStatus, ValueKind,
};
pub use self::statement::QueueOn;

/// Items that the project's own tests use.
#[doc(hidden)]
pub mod internals {
    pub use crate::claim::{LowWater, LowWaterFloor, claim_one, claim_some};
    pub use crate::doctor::examine_from;
    pub use crate::entity::{IsKey, Key, KeyedRow, QueueSql};
    pub use crate::minutes::{Minutes, merge_minutes};
    pub use crate::row::{
        BoundValue, CountRow, CountRowType, Details, DueTime, ErrorText, Fence, GlanceRow, GlanceRowType, Lane,
        LaneValue, PendingRow, PendingRowType, RowKey, SumRow, SumRowType, TextForm,
    };
    pub use crate::sync::ErasedEntity;

    /// For the tests of applications.
    #[cfg(feature = "testing")]
    pub mod testing {
        pub use crate::handler::{AroundHandlers, CallOfHandler, around_handlers};
        pub use crate::testing::{
            AtPoints, ByHand, Closed, Enqueued, HeldClock, OfferedCalls, Thrown, Turned, Workbench, at_points,
            end_lease, end_listening, fail_commit, fail_no_more, freeze, hold_clock, listen, offer_second_calls,
            present, second_call, time_out, travel, travel_back, travel_to,
        };
    }

    /// For programs that know an entity's columns only by their names, such as a console.
    pub mod by_name {
        pub use crate::audit::{pause, unpause};
        pub use crate::backend::{DeclaredColumn, Holds};
        pub use crate::control::PausedPart;
        pub use crate::doctor::{LIBRARY_VERSION, Size, plans, settings, sizes, version};
        pub use crate::queue::{
            Figures, GroupTexts, Operate, Operated, Picked, TextPage, TextRow, is_timeout, key_names, limit_session,
            pattern, queue_name_of,
        };
        pub use crate::row::printable;
        pub use crate::statement::{Figure, PageOrder, TextColumn};
    }

    /// The traits and types of the backends.
    pub mod backend {
        pub use crate::backend::{
            AfterFinish, AsQueueConnection, Binds, Connections, DeclaredColumn, DeclaredTypes, Dialect, ErrorClass,
            ErrorClasses, Exclusion, Holds, LeadersDuty, Loads, Now, NowPlus, OneRoundTrip, OwnTable, Place,
            QueueBackend, QueueConnection, Schema, SessionLimits, SessionSettings, SessionSetup, Sql, Statement, Step,
            TableName, Target, TextSql, TimeSql, Transactions, Unfinished,
        };
    }

    /// The statements.
    pub mod statement {
        pub use crate::statement::{
            And, Archive, AuditEntry, Change, Claim, ClaimFloor, ClaimSome, Claimable, Claimed, ClaimedRow,
            ClaimedRowType, Condition, ErasedQueue, ErrorExampleRow, ErrorTextRow, ErrorTextRowType, FinishedRow,
            FinishedRowType, FromLane, IfAny, InspectedRow, InspectedRowType, KeyRow, KeyTextRow, LeaseDueRow,
            LeasedAtOnce, ListedRow, Next, PageFrom, PageOrder, PauseEnd, Pick, PollerEntry, QueueOn, Row, RowVersion,
            SampleRow, Scope, Settle, SplitBy, StateCondition, TypedLeaseDueRow, TypedRow, UnusableRow, WithTexts,
            ahead_due, ahead_key, change_all, claim_key, claim_keys, copy_rows, count, count_by_status, count_by_value,
            count_finished, count_pending, due_among_first, due_keys, due_lanes, end_limits, end_pause,
            enqueue_if_newer, error_examples, error_sample, error_texts, finish, finish_block, first_pending, head,
            insert_audit, insert_poller, inspect, inspect_pending, is_archived, is_same, key_texts, keys_found,
            lane_of, lane_value, lease_due, leased_in, load_rows, lock_expired, lock_keys, lock_leased, lock_version,
            longest_text, next_lanes, next_rows, next_time, oldest_due, pass_on, poison_among_last, prefetch_rows,
            present, probe_due, read_audit, read_control, read_details, read_keys, read_page, read_pollers, recall,
            recall_last_attempt, recall_reservation, remove_all, remove_poller, retake, sample, set_aside,
            set_environment, set_limits, set_pause, set_priority, sum_by_value, take, taken, texts_after,
            unknown_stages, update_audit, update_poller,
        };
    }
}
