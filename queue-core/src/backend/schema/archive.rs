//! Archives: tables that take the rows of a queue's table, whole. This is what the three databases share: the creation
//! of archives, and their comparison with the table whose rows they take.

use diesel::Connection;
use diesel::deserialize::QueryableByName;
use diesel::result::QueryResult;
use diesel::sql_types::{Bool, Nullable, Text};

use super::live_table::{LiveColumn, LiveTable, until_done};
use super::table_name::TableName;
use super::target::{Step, Target, finding};
use crate::error::{Finding, refused};
use crate::row::OnFinish;

/// A column of a unique index.
#[derive(QueryableByName)]
pub(crate) struct UniqueColumn {
    #[diesel(sql_type = Text)]
    pub(crate) index_name: String,
    /// `None`: this part of the index is an expression.
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) column_name: Option<String>,
    /// Whether the index belongs to a constraint.
    #[diesel(sql_type = Bool)]
    #[allow(dead_code, reason = "MySQL drops a constraint as it drops an index")]
    pub(crate) is_constraint: bool,
    /// Whether the index leaves out rows, or is not built yet.
    #[diesel(sql_type = Bool)]
    is_partial: bool,
}

/// A database's answers about archives.
pub(crate) trait ArchiveSchema<DB = <Self as Connection>::Backend>: LiveTable<DB> {
    /// Returns the columns of a table's unique indexes, those of each one together.
    fn unique_columns(&mut self, table: &TableName) -> QueryResult<Vec<UniqueColumn>>;

    /// Tells whether the database keeps two rows from having one key.
    fn key_is_unique(&mut self, target: &Target) -> QueryResult<bool> {
        Ok(has_unique_key(&self.unique_columns(&target.table)?, target))
    }

    /// Writes the statements that create an archive. A script does not know the live table's columns, so it gets the
    /// statements that come closest.
    fn create_archive(target: &Target, archive: &TableName, columns: Option<&[LiveColumn]>) -> Vec<String>;

    /// Runs the statement that creates an archive.
    fn run_ddl(&mut self, ddl: &str) -> QueryResult<()> {
        self.alter(ddl)
    }

    /// Writes the SQL that gives a column this type and lets it be null, unless it is one of the key's.
    fn retype(archive: &TableName, column: &str, sql_type: &str, is_key: bool) -> String;

    /// Writes the SQL that removes a unique index.
    fn drop_unique(archive: &TableName, index: &UniqueColumn) -> String;

    /// Tells whether a value of the first type is stored in the second without a change.
    fn same_type(live: &str, archive: &str) -> bool {
        live.eq_ignore_ascii_case(archive)
    }
}

/// Tells whether a unique index of all rows has only columns of the key.
pub(crate) fn has_unique_key(columns: &[UniqueColumn], target: &Target) -> bool {
    let is_key = |name: &String| target.key.iter().any(|key| key.eq_ignore_ascii_case(name));
    let is_of_key = |column: &UniqueColumn| !column.is_partial && column.column_name.as_ref().is_some_and(is_key);
    columns.chunk_by(|one, other| one.index_name == other.index_name).any(|index| index.iter().all(is_of_key))
}

/// Returns the archives that the entity's options name.
fn archives(target: &Target) -> Vec<TableName> {
    let archive = |on_finish| if let OnFinish::Archive(name) = on_finish { Some(name) } else { None };
    let mut names: Vec<_> =
        [target.options.on_success, target.options.on_failure].into_iter().filter_map(archive).collect();
    names.dedup();
    names.into_iter().map(|name| target.table.beside(name)).collect()
}

/// Returns the step of a migration that creates the archives. Its reverse leaves them, because their rows are nowhere
/// else.
pub(crate) fn step<A: ArchiveSchema>(target: &Target) -> Option<Step> {
    let up: Vec<_> = archives(target).iter().flat_map(|archive| A::create_archive(target, archive, None)).collect();
    let down = vec!["/* the archive and its rows stay */ SELECT 1".to_owned()];
    (!up.is_empty()).then(|| A::step("archive", up, down))
}

/// Creates the archives that are missing.
pub(crate) fn add<A: ArchiveSchema>(connection: &mut A, target: &Target) -> QueryResult<()> {
    for archive in archives(target) {
        let left_to_do = |connection: &mut A| match connection.columns(&archive)?.is_empty() {
            true => Ok(A::create_archive(target, &archive, Some(&connection.columns(&target.table)?))),
            false => Ok(Vec::new()),
        };
        until_done(connection, left_to_do, A::run_ddl)?;
    }
    Ok(())
}

/// Returns the columns of a table that are not generated from others.
pub(crate) fn copied_columns<A: ArchiveSchema>(connection: &mut A, table: &TableName) -> QueryResult<Vec<String>> {
    let columns = connection.columns(table)?;
    if columns.is_empty() {
        return Err(refused(format!("there is no table {table}, or it cannot be read")));
    }
    Ok(columns.into_iter().filter(|column| !column.computed).map(|column| column.name).collect())
}

/// Compares the archives with the live table: whether they can take each of its rows.
pub(crate) fn check<A: ArchiveSchema>(connection: &mut A, target: &Target) -> QueryResult<Vec<Finding>> {
    let mut findings = Vec::new();
    let archives = archives(target);
    if archives.is_empty() {
        return Ok(findings);
    }
    let live = connection.columns(&target.table)?;
    if live.is_empty() {
        return Ok(findings);
    }
    for archive in archives {
        if archive.name == target.table.name {
            let mend = "name another table in #[queue(archive(..))]".to_owned();
            findings.push(finding(target, format!("the table {archive} cannot be its own archive"), mend));
            continue;
        }
        let stored = connection.columns(&archive)?;
        if stored.is_empty() {
            let mend = A::create_archive(target, &archive, Some(&live)).join("; ");
            findings.push(finding(target, format!("there is no archive {archive}"), mend));
            continue;
        }
        findings.extend(compare::<A>(target, &archive, &live, &stored));
        findings.extend(refusing_indexes(connection, target, &archive)?);
    }
    Ok(findings)
}

fn compare<A: ArchiveSchema>(
    target: &Target,
    archive: &TableName,
    live: &[LiveColumn],
    stored: &[LiveColumn],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut found = |problem: String, mend: String| findings.push(finding(target, problem, mend));
    let is_key = |name: &str| target.key.iter().any(|key| key.eq_ignore_ascii_case(name));
    for LiveColumn { name, whole_type, nullable, .. } in live.iter().filter(|column| !column.computed) {
        let retyped = || A::retype(archive, name, whole_type, is_key(name));
        match stored.iter().find(|column| column.name.eq_ignore_ascii_case(name)) {
            None => found(
                format!("the archive {archive} has no column {name}, which its rows have"),
                format!("ALTER TABLE {archive} ADD COLUMN {} {whole_type}", archive.quoted(name)),
            ),
            Some(column) if column.computed => found(
                format!("the column {name} of the archive {archive} is computed and takes no value"),
                format!("replace it by a plain column of type {whole_type}"),
            ),
            Some(column) if !A::same_type(whole_type, &column.whole_type) => {
                let other = &column.whole_type;
                found(
                    format!("the column {name} of the archive {archive} is of type {other}, expected {whole_type}"),
                    retyped(),
                );
            }
            Some(column) if *nullable && !column.nullable && !is_key(name) => {
                found(
                    format!("the column {name} of the archive {archive} is NOT NULL, its rows' may be null"),
                    retyped(),
                );
            }
            Some(_) => {}
        }
    }
    for LiveColumn { name, whole_type, nullable, has_default, computed, .. } in stored {
        let is_copied = live.iter().any(|column| !column.computed && column.name.eq_ignore_ascii_case(name));
        if !is_copied && !nullable && !has_default && !computed && !is_key(name) {
            found(
                format!(
                    "the column {name} of the archive {archive} is NOT NULL without a default, and its rows have none"
                ),
                A::retype(archive, name, whole_type, false),
            );
        }
    }
    findings
}

/// Returns the unique indexes that may refuse a row although its key is new: values that are unique among the live rows
/// need not be unique among all rows that ever existed. Only an index that contains the key's columns cannot refuse.
fn refusing_indexes<A: ArchiveSchema>(
    connection: &mut A,
    target: &Target,
    archive: &TableName,
) -> QueryResult<Vec<Finding>> {
    let columns = connection.unique_columns(archive)?;
    let mut findings = Vec::new();
    for index in columns.chunk_by(|one, other| one.index_name == other.index_name) {
        let names: Vec<_> = index.iter().filter_map(|column| column.column_name.as_deref()).collect();
        let has_key = target.key.iter().all(|key| names.iter().any(|name| name.eq_ignore_ascii_case(key)));
        if !has_key {
            findings.push(finding(
                target,
                format!(
                    "the unique index {} of the archive {archive} may refuse a row: values that are unique among live rows \
                     need not be unique among all rows that ever existed",
                    index[0].index_name
                ),
                A::drop_unique(archive, &index[0]),
            ));
        }
    }
    Ok(findings)
}
