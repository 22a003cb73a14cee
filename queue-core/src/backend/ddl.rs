//! The DDL that the three databases share: in which order a queue is added to its table, and how the live table is
//! compared with what the queue needs.

use diesel::Connection;
use diesel::result::QueryResult;

use super::archive::{self, ArchiveSchema};
use super::bystanders;
use super::index::{Index, indexes, no_index};
use super::live_table::until_done;
use super::schema::{NeededColumn, Types, column_steps, compare, missing, needed_columns, present, tell_of_unmarked};
use super::target::{Step, Target, finding};
use super::trigger::{self, Triggers};
use super::unknown_columns;
use crate::error::{Finding, refused};

/// A database's words for columns and indexes.
pub(crate) trait Ddl<DB = <Self as Connection>::Backend>: Triggers<DB> + ArchiveSchema<DB> {
    /// The SQL types of the columns.
    const TYPES: Types;

    /// Writes the statements that add the columns.
    fn add_columns(target: &Target, columns: &[NeededColumn]) -> Vec<String>;

    /// Writes the statements that drop the columns with these names.
    fn drop_columns(target: &Target, names: &[&str]) -> Vec<String>;

    /// Writes the SQL that gives an existing column its definition, with the queue's mark if it had that.
    fn redefine(target: &Target, column: &NeededColumn, marked: bool) -> String;

    /// Writes the SQL that marks an existing column as the queue's.
    fn mark(target: &Target, column: &NeededColumn) -> String {
        Self::redefine(target, column, true)
    }

    /// Returns the steps of a migration that create an index.
    fn index_steps(target: &Target, index: &Index) -> Vec<Step>;

    /// Returns the statements that are still to be run for an index; none if the live table has it, or one that serves
    /// as well.
    fn lacking(&mut self, target: &Target, index: &Index) -> QueryResult<Vec<String>>;
}

/// Returns the columns that the queue needs on this database.
pub(crate) fn needed<D: Ddl>(target: &Target) -> Vec<NeededColumn> {
    needed_columns(target, &D::TYPES)
}

/// Returns the steps that add the queue to a table that has none of it.
pub(crate) fn steps<D: Ddl>(target: &Target) -> Vec<Step> {
    let columns = |(name, columns): (_, &[NeededColumn])| Step {
        name,
        up: D::add_columns(target, columns),
        down: D::drop_columns(target, &columns.iter().map(|column| column.name).collect::<Vec<_>>()),
        in_transaction: D::ALTERS_IN_TRANSACTION,
        alone: false,
    };
    column_steps(&needed::<D>(target))
        .map(columns)
        .chain(indexes::<D::Backend>(target).iter().flat_map(|index| D::index_steps(target, index)))
        .chain(trigger::steps::<D>(target))
        .chain(archive::step::<D>(target))
        .collect()
}

/// Adds the columns that are missing.
///
/// # Errors
///
/// If it is no table that can have a queue.
pub(crate) fn add_columns<D: Ddl>(connection: &mut D, target: &Target) -> QueryResult<()> {
    if let Some(kind) = connection.other_kind(target)? {
        return Err(refused(format!("{}; {}", kind.problem(target), kind.mend())));
    }
    until_done(
        connection,
        |connection| missing_columns(connection, target),
        // One statement at a time: what is left to do is looked up after each.
        |connection, missing| connection.alter(&D::add_columns(target, missing)[0]),
    )
}

/// Returns the columns that are missing; `None` if there are none.
pub(crate) fn missing_columns<D: Ddl>(connection: &mut D, target: &Target) -> QueryResult<Option<Vec<NeededColumn>>> {
    let live = connection.live_columns(target)?;
    missing(target, needed::<D>(target), &live, |column, marked| D::redefine(target, column, marked))
}

/// Returns the names of the queue's columns that the live table has.
pub(crate) fn present_columns<D: Ddl>(connection: &mut D, target: &Target) -> QueryResult<Vec<&'static str>> {
    present(target, &needed::<D>(target), &connection.live_columns(target)?)
}

/// Builds an index if it is missing.
#[allow(dead_code, reason = "PostgreSQL builds an index without blocking writers")]
pub(crate) fn add_index<D: Ddl>(connection: &mut D, target: &Target, index: &Index) -> QueryResult<()> {
    until_done(
        connection,
        |connection| Ok(Some(connection.lacking(target, index)?).filter(|lacking| !lacking.is_empty())),
        |connection, lacking| connection.alter(&lacking[0]),
    )
}

/// Adds what comes after the indexes: triggers and archives.
pub(crate) fn add_rest<D: Ddl>(connection: &mut D, target: &Target) -> QueryResult<()> {
    trigger::add(connection, target)?;
    archive::add(connection, target)
}

/// Returns the findings about the columns; if there are none, about the indexes; if there are none either, about the
/// triggers.
pub(crate) fn check<D: Ddl>(connection: &mut D, target: &Target) -> QueryResult<Vec<Finding>> {
    if let Some(kind) = connection.other_kind(target)? {
        return Ok(vec![finding(target, kind.problem(target), kind.mend().to_owned())]);
    }
    let live = connection.live_columns(target)?;
    let add = |column: &NeededColumn| D::add_columns(target, std::slice::from_ref(column)).join("; ");
    let retype = |column: &NeededColumn, marked| D::redefine(target, column, marked);
    let needed = needed::<D>(target);
    let findings = compare(target, &needed, &live, add, retype);
    if !findings.is_empty() {
        return Ok(findings);
    }
    tell_of_unmarked(target, &needed, &live);
    let mut findings = check_indexes(connection, target)?;
    let drop = |names: &[&str]| D::drop_columns(target, names);
    findings.extend(unknown_columns::check(connection, target, &needed, &live, drop)?);
    if findings.is_empty() {
        findings = trigger::check(connection, target)?;
    }
    if findings.is_empty() {
        bystanders::tell(connection, target)?;
    }
    Ok(findings)
}

/// Returns the findings about the indexes.
pub(crate) fn check_indexes<D: Ddl>(connection: &mut D, target: &Target) -> QueryResult<Vec<Finding>> {
    let mut findings = Vec::new();
    for index in indexes::<D::Backend>(target) {
        let mend = connection.lacking(target, &index)?;
        if !mend.is_empty() {
            findings.push(no_index(target, &index, &mend));
        }
    }
    Ok(findings)
}

/// Writes `ALTER TABLE .. ADD COLUMN .., ADD COLUMN ..`, for databases that add several columns by one statement.
/// `comment` follows each definition.
#[allow(dead_code, reason = "SQLite adds one column by one statement")]
pub(crate) fn add_together(target: &Target, columns: &[NeededColumn], comment: &str) -> String {
    let name = |column: &NeededColumn| target.table.quoted(column.name);
    let add = |column: &NeededColumn| format!("ADD COLUMN {} {}{comment}", name(column), column.definition);
    format!("ALTER TABLE {} {}", target.table, columns.iter().map(add).collect::<Vec<_>>().join(", "))
}

/// Writes `ALTER TABLE .. DROP COLUMN .., DROP COLUMN ..`, for databases that drop several columns by one statement.
/// `drop` is the word before each name.
#[allow(dead_code, reason = "SQLite drops one column by one statement")]
pub(crate) fn drop_together(target: &Target, drop: &str, names: &[&str]) -> String {
    let drops: Vec<_> = names.iter().map(|name| format!("{drop} {}", target.table.quoted(name))).collect();
    format!("ALTER TABLE {} {}", target.table, drops.join(", "))
}
