//! The parts of a queue in its table: columns, indexes, triggers, archives, and the control table beside it. A migration
//! adds them, and a start compares them with the live table.
//!
//! [`Schema`] is written once for all databases, in terms of [`Ddl`] and its supertraits: a database's words.

mod archive;
mod bystanders;
mod columns;
mod declared;
mod differences;
mod index;
mod live_table;
mod part;
mod rights;
mod table_name;
mod target;
mod trigger;

pub use self::declared::{DeclaredColumn, DeclaredTypes, Holds};
pub use self::table_name::TableName;
pub use self::target::{OwnTable, Schema, Step, Target, TriggerMigration};

#[allow(unused_imports, reason = "not without a database")]
pub(crate) use self::declared::of_sql_types;
pub(crate) use self::rights::{check_rights, explain_rights};
pub(crate) use self::table_name::{column_names, fingerprint, literal};
pub(crate) use self::target::Named;

// The traits that a database implements, and what it does so with.
#[allow(unused_imports, reason = "no database needs all of it")]
pub(crate) use self::{
    archive::{ArchiveSchema, UniqueColumn, has_unique_key},
    bystanders::{compares_nothing, has_no_columns, with_columns},
    columns::{ColumnType, Ddl, NeededColumn, Types, needed_columns},
    index::{Computed, Index, IndexKey, IndexedRows, KeyOrder, indexes},
    live_table::{LiveColumn, LiveTable, MARK, OtherKind, PATIENCE, find_column, patiently, until_done},
    part::{add_together, drop_together},
    table_name::with_fingerprint,
    target::finding,
    trigger::{HOLDING, LiveTrigger, Rerun, Trigger, Triggers, is_free, trigger_name},
};
