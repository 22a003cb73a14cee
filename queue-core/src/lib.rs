//! The runtime of [queueable](https://docs.rs/queueable). Use it through that crate.

#![cfg_attr(
    not(any(feature = "postgres", feature = "mysql", feature = "sqlite")),
    allow(
        dead_code,
        unused_imports,
        unused_macros,
        reason = "without a database nobody asks the shared rooms anything"
    )
)]

mod aftermath;
mod ahead;
mod attempt;
mod attempt_begin;
mod attempt_end;
pub mod backend;
mod before_start;
mod claim_size;
mod column;
mod conclude;
mod contained;
mod crash;
mod crew;
mod details;
mod entity;
mod error;
mod failpoint;
mod failure_text;
mod gate;
mod group;
mod group_end;
mod group_handle;
mod group_lane;
mod group_release;
mod group_size;
mod guard;
mod handler;
mod heart;
mod hold;
mod in_turn;
mod instant;
mod lane;
mod lease;
mod lease_attempt;
mod lease_beat;
mod lease_claim;
mod lease_lane;
mod link;
mod listener;
mod literal;
mod low_water;
mod migration;
mod misfortune;
mod mode;
mod noise;
mod off_index;
mod options;
mod pauses;
mod planted;
mod poller;
mod priority;
mod queue;
mod queueable;
mod recurrence;
mod report;
mod reserve;
mod retry;
mod rows_ahead;
mod schedule;
mod scout;
mod selectable;
mod selection;
mod session;
mod settings;
mod slot;
mod stage;
pub mod statement;
mod status;
mod substitute;
mod tally;
mod target;
mod update_then_select;
mod verdict;
mod version;
mod wake;
mod watch;
mod window;
mod worker;

pub use self::column::{
    BeginTime, ChangeCount, ColumnKind, CreatedTime, Cron, EndTime, LastAttemptErrorMessage, LastAttemptTime,
    NextAttemptTime, Period, Priority, QueueColumn, QueueState, QueueStateColumns, ScheduledTime, StageText,
    StatusText, TimeZone, TryCount, UpdatedTime,
};
pub use self::crash::CrashAccounting;
pub use self::details::Details;
pub use self::entity::{ColumnNames, Entity, QueueTable, Settings};
pub use self::error::{Error, Finding};
pub use self::guard::Guard;
#[doc(hidden)]
pub use self::guard::{GuardFor, UnwritableGuard, WritableGuard, assert_condition, backends, same_backend};
pub use self::handler::{Failure, Group, Handler, HandlerResult, Message, Outcome, When};
pub use self::instant::{Instant, MAX_DELAY, Now, NowPlus, TimestampUtc};
pub use self::lease::{Lease, LeaseHandler, LeaseLost};
#[doc(hidden)]
pub use self::low_water::{LowWater, Reach};
pub use self::migration::Migrations;
pub use self::mode::{GroupMode, HandlerFor, LeaseMode, TransactionMode};
#[doc(hidden)]
pub use self::off_index::{claim_one, claim_some};
pub use self::options::{
    Fate, HasArchive, HasPriority, HasSchedule, HasStages, HasVersion, Metrics, Missed, Options, Order, Periodic,
    Rerun, Stages,
};
pub use self::poller::{Poller, PollerHandle, Shutdown};
pub use self::priority::PrioritizeOn;
pub use self::queue::{
    ArchiveOn, ChangeOn, DryRun, EnqueueExisting, LoadOn, Preview, PreviewOn, PreviewedRow, Progress, Queue, ReadOn,
    Redriven, SweepOn,
};
pub use self::queueable::{Due, Queueable};
#[doc(hidden)]
pub use self::report::Tabular;
pub use self::report::{
    Backlog, BacklogOn, By, ErrorGroup, ErrorReport, ErrorsOn, ExplainOn, Explanation, Interval, Part, PeriodCounts,
    PreviewErrorsOn, RetryErrorsOn, Statistics, StatisticsOn, StatusCounts,
};
pub use self::retry::{Retry, RetryPolicy};
pub use self::schedule::{InvalidSchedule, Schedule};
#[doc(hidden)]
pub use self::selectable::{SelectableEntity, assert_selectable};
pub use self::selection::{AllFilters, Chosen, EveryRow, Filtered, NoFilter, Selection};
pub use self::settings::{ClaimStyle, PollerSettings};
pub use self::stage::Stage;
#[doc(hidden)]
pub use self::stage::stage_named;
pub use self::status::{Status, UnknownStatus};
pub use self::tally::Tally;
pub use self::version::EnqueueByVersion;
pub use self::window::{InvalidWindow, Window};
