//! The rights that a poller needs: at start it runs every kind of statement that it will need, without an effect on any
//! row.

use diesel::connection::TransactionManager;
use diesel::result::{Error, QueryResult};

use super::table_name::TableName;
use super::target::{Target, finding};
use crate::backend::connection::{ErrorClass, QueueConnection};
use crate::backend::dialect::Dialect;
use crate::error::Finding;
use crate::row::{OnFinish, failure_text};

/// A right, the finding if it is missing, and the statement that needs it.
struct Right {
    /// The right as a GRANT names it: `UPDATE (status)`.
    name: String,
    table: TableName,
    /// The column that is written, if the right is on a column.
    column: Option<&'static str>,
    statement: String,
}

/// A right that the database denies to the queue.
pub(crate) struct MissingRight {
    pub(crate) finding: Finding,
    /// Whether the error says that a right is missing, on databases that hide what the account may not use. Otherwise
    /// the statement may have failed for another reason.
    pub(crate) is_denied: bool,
    /// Whether the database takes no writes at all.
    pub(crate) is_read_only: bool,
}

/// Runs the kinds of statements that a poller needs on a valid table, without effect, and returns the rights that are
/// missing.
///
/// An EXPLAIN would ask for fewer rights, and for none on SQLite.
pub(crate) fn check_rights<C: QueueConnection>(connection: &mut C, target: &Target) -> QueryResult<Vec<MissingRight>> {
    check_rights_by(connection, target, tried)
}

/// Has the server explain the same statements, which takes no lock on a row and works in a session that may only read.
pub(crate) fn explain_rights<C: QueueConnection>(
    connection: &mut C,
    target: &Target,
) -> QueryResult<Vec<MissingRight>> {
    check_rights_by(connection, target, |connection, statement| {
        connection.bounded(|connection| connection.batch_execute(&format!("EXPLAIN {statement}")))
    })
}

fn check_rights_by<C: QueueConnection>(
    connection: &mut C,
    target: &Target,
    run: impl Fn(&mut C, &str) -> QueryResult<()>,
) -> QueryResult<Vec<MissingRight>> {
    let mut missing = Vec::new();
    let mut missing_columns: Vec<(String, Error)> = Vec::new();
    for right in needed_rights(connection, target)? {
        let Err(error) = run(connection, &right.statement) else { continue };
        if C::refuses_writes(&error) {
            let problem = format!("the database takes no writes: {}", failure_text(&error, 500));
            let mend = "connect to the primary server, or to a file that may be written".to_owned();
            return Ok(vec![MissingRight {
                finding: finding(target, problem, mend),
                is_denied: false,
                is_read_only: true,
            }]);
        }
        match C::classify(&error) {
            ErrorClass::Other => {}
            // Another session's lock is in the way. That says nothing about rights, so the check waits for it once.
            ErrorClass::Conflict => break,
            _ => return Err(error),
        }
        match right.column {
            Some(column) => missing_columns.push((right.table.quoted(column), error)),
            None => {
                let (lacks, mend) = lack::<C>(connection, &error, &right.name, &right.table)?;
                let problem = format!("it {lacks} {} on {}: {}", right.name, right.table, failure_text(&error, 500));
                let (finding, is_denied) = (finding(target, problem, mend), C::denies_right(&error));
                missing.push(MissingRight { finding, is_denied, is_read_only: false });
            }
        }
    }
    if let Some((_, error)) = missing_columns.first() {
        let columns: Vec<_> = missing_columns.iter().map(|(column, _)| column.as_str()).collect();
        let columns = columns.join(", ");
        let (lacks, mend) = lack::<C>(connection, error, &format!("UPDATE ({columns})"), &target.table)?;
        let text = failure_text(error, 500);
        let problem = format!("it {lacks} write the columns {columns} of {}: {text}", target.table);
        let (finding, is_denied) = (finding(target, problem, mend), C::denies_right(error));
        missing.push(MissingRight { finding, is_denied, is_read_only: false });
    }
    Ok(missing)
}

/// Says what the queue lacks, before a verb, and returns the statement that mends it.
fn lack<C: QueueConnection>(
    connection: &mut C,
    error: &Error,
    right: &str,
    table: &TableName,
) -> QueryResult<(&'static str, String)> {
    // PostgreSQL, of a table in a publication that has no primary key, or another identity than that.
    if failure_text(error, 500).contains("does not have a replica identity") {
        return Ok(("cannot", format!("ALTER TABLE {table} REPLICA IDENTITY FULL")));
    }
    Ok(("has no right to", grant(connection, right, table)?))
}

fn grant<C: QueueConnection>(connection: &mut C, right: &str, table: &TableName) -> QueryResult<String> {
    Ok(match connection.grantee()? {
        Some(grantee) => format!("GRANT {right} ON {table} TO {grantee}"),
        None => format!("let the process write the database's file, for {right} on {table}"),
    })
}

/// Runs this statement in a transaction that is rolled back.
fn tried<C: QueueConnection>(connection: &mut C, statement: &str) -> QueryResult<()> {
    connection.begin()?;
    let tried = connection.batch_execute(statement);
    C::TransactionManager::rollback_transaction(connection)?;
    tried
}

fn needed_rights<C: QueueConnection>(connection: &mut C, target: &Target) -> QueryResult<Vec<Right>> {
    let table = &target.table;
    let read = [table.quoted_all(&target.key), table.quoted_all(read_columns(target))].join(", ");
    let right = |name: String, table: &TableName, statement: String| Right {
        name,
        table: table.clone(),
        column: None,
        statement: format!("{statement} WHERE 1 = 0"),
    };
    let mut rights = vec![right(format!("SELECT ({read})"), table, format!("SELECT {read} FROM {table}"))];
    rights.extend(written_columns(target).map(|column| {
        let name = table.quoted(column);
        let update = format!("UPDATE {table} SET {name} = {name}");
        Right { column: Some(column), ..right(format!("UPDATE ({name})"), table, update) }
    }));
    for on_finish in [target.options.on_success, target.options.on_failure] {
        if let OnFinish::Archive(name) = on_finish {
            let (columns, archive) = (table.quoted_all(connection.copied_columns(table)?), table.beside(name));
            let own_keys = <C::Backend as Dialect>::INSERT_OWN_KEYS;
            let insert = format!("INSERT INTO {archive} ({columns}){own_keys} SELECT {columns} FROM {table}");
            rights.push(right("INSERT".to_owned(), &archive, insert));
        }
    }
    let leaves = [target.options.on_success, target.options.on_failure].iter().any(|end| *end != OnFinish::Keep);
    if leaves || target.options.leaving().next().is_some() {
        rights.push(right("DELETE".to_owned(), table, format!("DELETE FROM {table}")));
    }
    Ok(rights)
}

/// Returns the queue's columns that a poller reads.
fn read_columns(target: &Target) -> impl Iterator<Item = &'static str> + use<> {
    let periodic = target.options.periodic;
    written_columns(target)
        .chain(periodic.into_iter().flat_map(|periodic| [periodic.period, periodic.cron, periodic.time_zone]))
        .chain(target.options.rerun_on_change.map(|rerun| rerun.change_count))
}

/// Returns the queue's columns that a poller writes. A trigger that writes others needs no right of the poller's for
/// that.
fn written_columns(target: &Target) -> impl Iterator<Item = &'static str> + use<> {
    let (options, timestamps) = (target.options, target.options.timestamps);
    let names = target.columns.all().into_iter();
    names
        .chain(options.stages.map(|stages| stages.column))
        .chain(options.periodic.map(|periodic| periodic.scheduled_time))
        .chain(options.occasion)
        .chain([timestamps.begin, timestamps.end, timestamps.updated].into_iter().flatten())
}
