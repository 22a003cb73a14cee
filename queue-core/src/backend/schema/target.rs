//! Where a queue is in the database: its table, its columns and the names of its indexes. [`Schema`] is the DDL.

use diesel::result::QueryResult;

use super::declared::DeclaredColumn;
use super::table_name;
use super::table_name::TableName;
use crate::backend::dialect::TextSql;
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
        self.name_of(Named::Index)
    }

    pub(crate) fn name_of(&self, named: Named<'_>) -> String {
        named.of(&self.table, self.columns, &self.options)
    }

    /// Returns the SQL that puts one text of a column in the place of another: it mends pending rows with a value that means
    /// nothing. Like a claim it compares exactly, so that it leaves other rows alone.
    pub(crate) fn replacing<DB: TextSql>(&self, column: &str, from: &str, to: &str) -> String {
        let [column, next] = [column, self.columns.next_attempt_time].map(|column| self.table.quoted(column));
        let ((before, after), [from, to]) = (DB::EXACTLY, [from, to].map(table_name::literal));
        let table = &self.table;
        format!("UPDATE {table} SET {column} = {to} WHERE {before}{column}{after} = {from} AND {next} IS NOT NULL")
    }

    /// Returns the name of the channel for notifications of rows that become due: `queueable_<table>_<hash of table and
    /// column>`. It does not contain the schema, because one program may name it and another not.
    pub fn channel(&self) -> String {
        table_name::with_fingerprint("queueable_", &self.table.name, self.columns.status)
    }
}

/// What has a name made of its table's and its queue's.
#[derive(Clone, Copy)]
pub(crate) enum Named<'a> {
    /// The index that serves the claim.
    Index,
    /// The second index, for an entity with its own order. Each order has its own name, because the queue recognizes an
    /// index by its name.
    Order,
    /// The index of stages, by this column.
    Stages(&'a str),
    /// The index of lanes: each column and order has its own.
    Lanes,
    /// The index of the rows that hold lanes back.
    Strict,
    /// The column that marks the pending rows, on databases whose indexes cannot leave the others out.
    PendingFlag,
    /// The index of the rows that reports look for.
    Reports,
    /// The column that has the value of this one in these rows and is null in the others, on databases whose indexes cannot
    /// leave the others out.
    Reported(&'a str),
}

impl Named<'_> {
    pub(crate) fn of(self, table: &TableName, columns: ColumnNames, options: &Options) -> String {
        let (next, lane) = (columns.next_attempt_time, options.lanes.map_or("", |lanes| lanes.column));
        let by_key = if options.exclusive { format!("\n{}", words_of(options)) } else { String::new() };
        let (prefix, of) = match self {
            Named::Index => ("queueable_", next.to_owned()),
            Named::Order => {
                let kind = if options.exclusive { "key" } else { "time" };
                ("queueable_order_", format!("{next}\n{}\n{kind}", words_of(options)))
            }
            Named::Stages(stage) => ("queueable_stage_", format!("{next}\n{stage}{by_key}")),
            Named::Lanes => {
                // It may have the key besides.
                let serial = if options.lanes.is_some_and(|lanes| lanes.serial) { "\nserial" } else { "" };
                ("queueable_lane_", format!("{next}\n{lane}\n{}{serial}", words_of(options)))
            }
            Named::Strict => ("queueable_strict_", format!("{next}\n{lane}")),
            Named::PendingFlag => ("queueable_pending_", next.to_owned()),
            Named::Reports => ("queueable_report_", next.to_owned()),
            Named::Reported(column) => ("queueable_reported_", column.to_owned()),
        };
        table_name::with_fingerprint(prefix, &table.name, &of)
    }
}

/// Returns the columns of an order, as words.
fn words_of(options: &Options) -> String {
    let word = |column: &OrderColumn| format!("{}{}", column.name, if column.descending { " DESC" } else { "" });
    options.order.iter().flat_map(|order| order.columns).map(word).collect::<Vec<_>>().join(", ")
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
        let limits =
            ["workers", "at_most", "retry_delay_ms", "limited_at", "limited_by", "limit_reason", "environment"];
        let minutes = ["queue", "period_start", "part", "stage", "seconds"].map(str::to_owned);
        let pollers = ["id", "host", "pid", "version", "application", "state", "workers", "queues", "running"];
        let audit = ["changed_at", "id", "changed_by", "reason", "queue", "action", "filter", "row_count"];
        let columns = match self {
            OwnTable::Minutes => return minutes.into_iter().chain(Counts::columns()).collect(),
            OwnTable::Control => [control, limits].concat(),
            OwnTable::Pollers => [&pollers[..], &["started_at", "seen_at"]].concat(),
            OwnTable::Audit => audit.to_vec(),
        };
        columns.into_iter().map(str::to_owned).collect()
    }
}
