//! Where a queue is in the database: its table, its columns and the names of its indexes. [`Schema`] is the DDL.

use diesel::result::QueryResult;

use super::declared_column::DeclaredColumn;
use super::table_name::{self, TableName};
use crate::error::Finding;
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

    /// Compares the live table and the server's settings with what the queue needs.
    fn check(&mut self, target: &Target) -> QueryResult<Vec<Finding>>;

    /// Compares the live table with the application's `table!`, and finds what [`check`](Schema::check) leaves out
    /// because of its own findings.
    fn differences(&mut self, target: &Target, declared: &[DeclaredColumn]) -> QueryResult<Vec<Finding>>;

    /// Makes the SQL that restricts the application's triggers to updates of the application's columns.
    fn trigger_migration(&mut self, target: &Target) -> QueryResult<TriggerMigration>;

    /// Returns the step of a migration that creates the control table.
    fn control_step() -> Step
    where
        Self: Sized;

    /// Creates the control table, unless it exists.
    ///
    /// # Errors
    ///
    /// If another table has its name.
    fn add_control(&mut self) -> QueryResult<()>;

    /// Drops the control table, if it exists.
    fn remove_control(&mut self) -> QueryResult<()>;

    /// Tells whether there is a control table that this session can see, without a read of it.
    fn has_control(&mut self) -> QueryResult<bool>;
}
