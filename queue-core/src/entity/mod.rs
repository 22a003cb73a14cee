//! What the derive writes about an entity, and what its attributes ask for.
//!
//! The table, the key, the settings, the queue's columns as Diesel expressions, and the migration that adds the
//! columns.

mod claim_condition;
mod column;
mod entity;
#[doc(hidden)]
pub mod field_check;
mod grouping;
mod key;
mod key_column;
mod kinds;
mod lane_column;
mod migration;
mod mode;
#[cfg(feature = "time")]
mod offset_date_time;
mod own_migration;
mod queue_sql;
mod recurrence;
mod release;
mod retry;
mod row_condition;
mod schedule;
mod selectable;
mod settings;
mod stored;
mod table;
mod time_operand;
mod window;

pub use self::claim_condition::{
    ClaimCondition, ConditionFor, TakeCondition, assert_condition, condition_on, unwritable_condition,
};
pub use self::column::{
    BeginTime, ChangeCount, ColumnKind, CreatedTime, Cron, EndTime, LastAttemptErrorMessage, LastAttemptTime,
    NextAttemptTime, Occasion, Period, Priority, QueueColumn, QueueStateColumns, ScheduledTime, StageText, StatusText,
    TimeZone, TryCount, UpdatedTime,
};
pub use self::entity::Entity;
pub use self::key::Key;
pub use self::key_column::KeyColumn;
pub use self::kinds::{HasArchive, HasPriority, HasSchedule, HasStages, HasVersion, StageOf};
pub use self::lane_column::LaneType;
pub use self::migration::Migrations;
pub use self::mode::{GroupMode, LeaseMode, TransactionMode};
pub use self::queue_sql::{IsKey, KeyedRow, QueueSql};
pub use self::retry::{Retry, RetryPolicy};
pub use self::row_condition::RowCondition;
pub use self::schedule::{InvalidSchedule, Schedule};
pub use self::selectable::{
    Embedded, EmbeddedSelection, SelectableEntity, SelectedFrom, assert_selectable, assert_selected_from, selection_of,
};
pub use self::settings::Settings;
pub use self::stored::{SelectedIn, StoredIn, TableIn};
pub use self::table::QueueTable;
pub use self::time_operand::TimeOperand;
pub use self::window::{InvalidWindow, Window};

pub(crate) use self::column::queue_state;
pub(crate) use self::queue_sql::is_integer;
pub(crate) use self::recurrence::{NoSchedule, Recurrence};
pub(crate) use self::retry::jittered;
