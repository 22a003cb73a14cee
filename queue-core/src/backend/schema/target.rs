//! Where a queue is in the database: its table, its columns and the names of its indexes. [`Schema`] is the DDL.

use diesel::result::QueryResult;

use super::declared::DeclaredColumn;
use super::table_name;
use super::table_name::TableName;
use crate::error::Finding;
use crate::event::Counts;
use crate::row::{ColumnNames, Options, OrderColumn};

/// Where a queue's columns and index are, in the terms of the catalogue and of the DDL.
#[derive(Debug, Clone)]
pub struct Target {
    /// The entity's name, for findings.
    pub entity: &'static str,
    /// The table.
    pub table: TableName,
    /// The names of the queue's columns.
    pub columns: ColumnNames,
    /// The options beyond the columns.
    pub options: Options,
    /// The names of the primary key's columns.
    pub key: Vec<String>,
    /// Whether the index of lanes ends with the primary key.
    pub ties_by_key: bool,
    /// Whether the application has said that its columns of these names are the queue's.
    pub adopts: bool,
    /// Whether the steps of a migration may keep writers from the table while they build an index.
    pub blocks_writers: bool,
}

impl Target {
    /// Returns the name of the index that serves the claim: `queueable_<table>_<hash of table and column>`, cut to the
    /// 63 bytes that every database takes. The hash distinguishes what underscores cannot: the queue `x_` of
    /// `payments`, and the one of `payments_x`.
    pub fn index(&self) -> String {
        index_of(&self.table, self.columns)
    }

    /// Returns the name of the channel for notifications of rows that become due: `queueable_<table>_<hash of table and
    /// column>`. It does not contain the schema, because one program may name it and another not.
    pub fn channel(&self) -> String {
        table_name::with_fingerprint("queueable_", &self.table.name, self.columns.status)
    }
}

pub(crate) fn index_of(table: &TableName, columns: ColumnNames) -> String {
    table_name::with_fingerprint("queueable_", &table.name, columns.next_attempt_time)
}

/// Returns the name of the second index, for an entity with its own order. Each order has its own name, because the
/// queue recognizes an index by its name.
pub(crate) fn ordered_index_of(table: &TableName, columns: ColumnNames, options: &Options) -> String {
    let order = words_of(options);
    let kind = if options.exclusive { "key" } else { "time" };
    let of = format!("{}\n{order}\n{kind}", columns.next_attempt_time);
    table_name::with_fingerprint("queueable_order_", &table.name, &of)
}

/// Returns the name of the index of stages.
pub(crate) fn stage_index_of(table: &TableName, columns: ColumnNames, options: &Options) -> String {
    stage_index_named(table, columns, options.stages.map_or("", |stages| stages.column))
}

/// Returns the same for a column of this name.
pub(super) fn stage_index_named(table: &TableName, columns: ColumnNames, stage: &str) -> String {
    table_name::with_fingerprint("queueable_stage_", &table.name, &format!("{}\n{stage}", columns.next_attempt_time))
}

/// Returns the name of the index of lanes: each column and order has its own.
pub(crate) fn lane_index_of(table: &TableName, columns: ColumnNames, options: &Options) -> String {
    let lane = options.lanes.map_or("", |lanes| lanes.column);
    let of = format!("{}\n{lane}\n{}", columns.next_attempt_time, words_of(options));
    table_name::with_fingerprint("queueable_lane_", &table.name, &of)
}

/// Returns the name of the index of the rows that hold lanes back.
pub(crate) fn strict_index_of(table: &TableName, columns: ColumnNames, options: &Options) -> String {
    let lane = options.lanes.map_or("", |lanes| lanes.column);
    table_name::with_fingerprint("queueable_strict_", &table.name, &format!("{}\n{lane}", columns.next_attempt_time))
}

/// Returns the columns of an order, as words.
fn words_of(options: &Options) -> String {
    let word = |column: &OrderColumn| format!("{}{}", column.name, if column.descending { " DESC" } else { "" });
    options.order.iter().flat_map(|order| order.columns).map(word).collect::<Vec<_>>().join(", ")
}

/// Returns the name of the column that marks the pending rows, on databases whose indexes cannot leave the others out.
pub(crate) fn pending_flag_of(table: &TableName, columns: ColumnNames) -> String {
    table_name::with_fingerprint("queueable_pending_", &table.name, columns.next_attempt_time)
}

/// Returns the name of the index of the rows that reports look for.
pub(crate) fn report_index_of(table: &TableName, columns: ColumnNames) -> String {
    table_name::with_fingerprint("queueable_report_", &table.name, columns.next_attempt_time)
}

/// Returns the name of the column that has the value of another in these rows and is null in the others, on databases whose
/// indexes cannot leave the others out.
pub(crate) fn reported_of(table: &TableName, column: &str) -> String {
    table_name::with_fingerprint("queueable_reported_", &table.name, column)
}

pub(crate) fn finding(target: &Target, problem: String, mend: String) -> Finding {
    Finding { entity: target.entity.to_owned(), problem, mend }
}

/// One step of a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// A word for the file's name.
    pub name: &'static str,
    /// The statements that make the change, one by one.
    pub up: Vec<String>,
    /// The statements that undo it.
    pub down: Vec<String>,
    /// Whether the database allows it inside a transaction.
    pub in_transaction: bool,
    /// Whether the database takes a statement of it only as a text of its own.
    pub alone: bool,
}

/// The SQL after which the application's triggers no longer run at each write of the queue, for a migration of your own.
///
/// [`Queueable::trigger_migration`](crate::Queueable::trigger_migration) makes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TriggerMigration {
    /// The statements that restrict the triggers, each with its semicolon; empty if there is nothing to do.
    pub up: String,
    /// The statements that make the triggers what they were.
    pub down: String,
    /// The triggers that each write of the queue still runs, in the order of their names, and why.
    pub skipped: Vec<(String, &'static str)>,
}

/// The DDL of a database, and its catalogue's view of a live table.
pub trait Schema {
    /// Returns the steps that add the queue to a table that has none of it.
    fn steps(target: &Target) -> Vec<Step>
    where
        Self: Sized;

    /// Adds what is missing. A second call changes nothing.
    fn add_queue(&mut self, target: &Target) -> QueryResult<()>;

    /// Removes the queue's index and columns, as far as they exist.
    fn remove_queue(&mut self, target: &Target) -> QueryResult<()>;

    /// Returns the columns of a table that hold values of their own and are not generated from others.
    ///
    /// # Errors
    ///
    /// If there is no such table.
    fn copied_columns(&mut self, table: &TableName) -> QueryResult<Vec<String>>;

    /// Returns the names and the types of a table's columns; none if there is no such table.
    fn column_types(&mut self, target: &Target) -> QueryResult<Vec<(String, String)>>;

    /// Compares the live table and the server's settings with what the queue needs.
    fn check(&mut self, target: &Target) -> QueryResult<Vec<Finding>>;

    /// Returns what [`check`](Schema::check) finds about the indexes, of a table that has the queue's columns.
    fn index_findings(&mut self, target: &Target) -> QueryResult<Vec<Finding>>;

    /// Returns the names of the queue's indexes.
    fn index_names(target: &Target) -> Vec<String>
    where
        Self: Sized;

    /// Finds a change of the table that no row shows: a column of the queue that can no longer hold what it writes, or one that
    /// another build of the entity has added, which has one more key.
    fn altered_columns(&mut self, target: &Target) -> QueryResult<Option<Finding>>;

    /// Compares the live table with the application's `table!`, and finds what [`check`](Schema::check) leaves out
    /// because of its own findings.
    fn differences(&mut self, target: &Target, declared: &[DeclaredColumn]) -> QueryResult<Vec<Finding>>;

    /// Makes the SQL that restricts the application's triggers to updates of the application's columns.
    fn trigger_migration(&mut self, target: &Target) -> QueryResult<TriggerMigration>;

    /// Returns the step of a migration that creates a table of the library's own.
    fn own_step(table: OwnTable) -> Step
    where
        Self: Sized;

    /// Creates such a table, unless it exists.
    ///
    /// # Errors
    ///
    /// If another table has its name.
    fn add_own(&mut self, table: OwnTable) -> QueryResult<()>;

    /// Drops such a table, if it exists.
    fn remove_own(&mut self, table: OwnTable) -> QueryResult<()>;

    /// Tells whether there is such a table that this session can see, without a read of it.
    fn has_own(&mut self, table: OwnTable) -> QueryResult<bool>;

    /// Tells the same, and whether the account may read it.
    fn may_read_own(&mut self, table: OwnTable) -> QueryResult<bool>;

    /// Returns the names of the columns that such a table lacks; `None` if there is none of its name.
    fn own_lacks(&mut self, table: OwnTable) -> QueryResult<Option<Vec<String>>>;
}

/// The columns of the table of pollers beside its key.
pub(crate) const POLLER_COLUMNS: [&str; 10] =
    ["host", "pid", "version", "application", "state", "workers", "queues", "running", "started_at", "seen_at"];

/// A table of the library's own. It has no schema: a session finds it where it finds a new table of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnTable {
    /// What operators ask of the queues, and the name of the environment.
    Control,
    /// What the queues have done, minute by minute.
    Minutes,
    /// The processes whose pollers serve the queues.
    Pollers,
    /// What operators have changed.
    Audit,
}

impl OwnTable {
    /// Returns its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            OwnTable::Control => "queueable_control",
            OwnTable::Minutes => "queueable_minutes",
            OwnTable::Pollers => "queueable_pollers",
            OwnTable::Audit => "queueable_audit",
        }
    }

    /// Returns its columns.
    pub(crate) fn columns(self) -> Vec<String> {
        let control = ["queue", "scope", "paused_at", "paused_until", "paused_by", "pause_reason", "paused_value"];
        let limits = ["workers", "at_most", "retry_delay_ms", "limited_at", "limited_by", "limit_reason"];
        let minutes = ["queue", "period_start", "part", "stage", "seconds"].map(str::to_owned);
        let audit = ["changed_at", "id", "changed_by", "reason", "queue", "action", "filter", "row_count"];
        match self {
            OwnTable::Control => control.into_iter().chain(limits).chain(["environment"]).map(str::to_owned).collect(),
            OwnTable::Audit => audit.map(str::to_owned).into(),
            OwnTable::Minutes => minutes.into_iter().chain(Counts::columns()).collect(),
            OwnTable::Pollers => std::iter::once("id").chain(POLLER_COLUMNS).map(str::to_owned).collect(),
        }
    }
}
