//! What the derive writes about an entity, and what its attributes ask for.
//!
//! The table, the key, the settings, the queue's columns as Diesel expressions, and the migration that adds the
//! columns.

mod claim_condition;
mod column;
mod entity;
#[doc(hidden)]
pub mod field_check;
mod migration;
mod queue_sql;
mod release;
mod retry;
mod schedule;
mod selection;
mod time_operand;
mod window;

pub use self::claim_condition::{
    ClaimCondition, ConditionFor, RowCondition, TakeCondition, assert_condition, condition_on, unwritable_condition,
};
pub use self::column::{
    BeginTime, ChangeCount, ColumnKind, CreatedTime, Cron, EndTime, KeyColumn, LaneType, LastAttemptErrorMessage,
    LastAttemptTime, NextAttemptTime, Occasion, OrderType, OtherOrderType, Period, Priority, QueueColumn,
    QueueStateColumns, ScheduledTime, StageText, StatusText, TimeZone, TraceParent, TryCount, UpdatedTime,
};
pub use self::entity::{Entity, GroupMode, Key, LeaseMode, QueueTable, Settings, TransactionMode};
pub use self::entity::{HasArchive, HasKeep, HasPriority, HasSchedule, HasStages, HasTraceParent, HasVersion, StageOf};
pub use self::migration::Migrations;
pub use self::queue_sql::{IsKey, KeyedRow, QueueSql, SelectedIn, StoredIn, TableIn};
pub use self::retry::{Retry, RetryPolicy};
pub use self::schedule::{InvalidSchedule, Schedule};
pub use self::selection::{
    Embedded, EmbeddedSelection, SelectableEntity, SelectedFrom, assert_selectable, assert_selected_from, selection_of,
};
pub use self::time_operand::TimeOperand;
pub use self::window::{InvalidWindow, Window};

pub(crate) use self::column::{name_of_column, queue_state};
pub(crate) use self::queue_sql::integer_bits;
pub(crate) use self::retry::jittered;
pub(crate) use self::schedule::{NoSchedule, Recurrence};
