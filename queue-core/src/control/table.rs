//! The control table: its rows, and whether a session can use it. So too for the other tables of the library's own.

use chrono::{DateTime, Utc};
use diesel::result::QueryResult;

use crate::backend::{ErrorClass, OwnTable, QueueBackend, QueueConnection, TableName, load};
use crate::entity::QueueSql;
use crate::error::{Error, Finding};
use crate::row::{ControlRow, ControlType, failure_text, printable, queue_name};
use crate::statement::read_control;

/// A row of the control table that means nothing, although somebody has written it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Nonsense {
    pub(crate) queue: String,
    pub(crate) problem: String,
}

impl Nonsense {
    pub(super) fn of(queue: &str, scope: &str, problem: &str) -> Self {
        let [shown, scope] = [queue, scope].map(|text| printable(text, false));
        Nonsense { problem: format!("{problem} (queue `{shown}`, scope `{scope}`)"), queue: queue.to_owned() }
    }
}

/// Reads the rows of one queue, or of all.
pub(super) fn rows<C: QueueConnection>(connection: &mut C, queue: Option<&str>) -> QueryResult<Vec<ControlRow>> {
    load::<ControlType, ControlRow, _>(connection, &read_control(queue))
}

/// Returns a time that was read in microseconds since 1970.
pub(super) fn time_of(microseconds: Option<i64>) -> Option<DateTime<Utc>> {
    microseconds.and_then(DateTime::from_timestamp_micros)
}

/// Returns a text that says something.
pub(super) fn given(text: &Option<String>) -> Option<String> {
    text.clone().filter(|text| !text.trim().is_empty())
}

/// Returns a time as people read it.
pub(super) fn utc(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// Refuses what cannot be done without a table of the library's own. `migration`: what makes it.
pub(crate) fn expect_own<C: QueueConnection>(
    connection: &mut C,
    table: OwnTable,
    migration: &str,
) -> Result<(), Error> {
    if connection.has_own(table)? {
        return Ok(());
    }
    let (problem, mend) = missing(table, migration, &connection.own_lacks(table)?.unwrap_or_default());
    Err(Error::Control(format!("{problem}: {mend}")))
}

pub(crate) fn expect_control<C: QueueConnection>(connection: &mut C) -> Result<(), Error> {
    expect_own(connection, OwnTable::Control, "control")
}

/// Returns why a table cannot be used that is not there or lacks columns, and what to do.
pub(super) fn missing(table: OwnTable, migration: &str, lacks: &[String]) -> (String, String) {
    let name = table.name();
    if lacks.is_empty() {
        let problem = format!("there is no table {name} that this session can see");
        return (problem, format!("run the migration of `Migrations::new().{migration}()`"));
    }
    let problem =
        format!("the table {name} lacks the columns {}: another release made it, or it is another's", lacks.join(", "));
    (
        problem,
        format!(
            "rename it, and run the migration of `Migrations::new().{migration}()` again: revert it, or delete its row from \
                       `__diesel_schema_migrations`, before"
        ),
    )
}

/// Finds out whether the session can read the control table. `asked`: the setting that asks for it.
pub(crate) fn check_control<C: QueueConnection>(connection: &mut C, asked: &str) -> QueryResult<Option<Finding>> {
    check_own(connection, OwnTable::Control, (asked, "control", "SELECT"), |connection| {
        rows(connection, None).map(drop)
    })
}

/// Finds out whether the session can use a table of the library's own. `asked`: the setting that asks for it, the
/// migration that makes it, and the rights.
pub(crate) fn check_own<C: QueueConnection>(
    connection: &mut C,
    table: OwnTable,
    (asked, migration, rights): (&str, &str, &str),
    try_it: impl FnOnce(&mut C) -> QueryResult<()>,
) -> QueryResult<Option<Finding>> {
    let (name, finding) = (table.name(), |problem, mend| Some(Finding { entity: asked.to_owned(), problem, mend }));
    let grant = match connection.grantee()? {
        Some(grantee) => format!("GRANT {rights} ON {name} TO {grantee}"),
        None if rights == "SELECT" => "let the process read the database's file".to_owned(),
        None => "let the process read and write the database's file".to_owned(),
    };
    if !connection.has_own(table)? {
        let lacks = connection.own_lacks(table)?.unwrap_or_default();
        let (problem, mend) = missing(table, migration, &lacks);
        let or_grant = match lacks.is_empty() {
            true => format!("; or if there is one, {grant}, and put its schema into the search path of the session"),
            false => String::new(),
        };
        return Ok(finding(format!("{problem}, and `{asked}` needs it"), mend + &or_grant));
    }
    match try_it(connection) {
        Err(error) if C::classify(&error) == ErrorClass::Other => {
            Ok(finding(format!("the table {name} cannot be used: {}", failure_text(&error, 500)), grant))
        }
        // Another session's lock is in the way. That says nothing about the table.
        Err(error) if C::classify(&error) == ErrorClass::Conflict => Ok(None),
        tried => tried.map(|()| None),
    }
}

/// The longest name of an operator who pauses a queue, and the longest reason, in characters.
pub(crate) const LONGEST_BY: usize = 255;
pub(crate) const LONGEST_REASON: usize = 1000;

/// Checks who asks for something, and why. Each comes with its name in an error.
pub(crate) fn check_author(by: (&'static str, &str), reason: (&'static str, &str)) -> Result<(), Error> {
    check_text(reason.0, reason.1, LONGEST_REASON)?;
    check_text(by.0, by.1, LONGEST_BY)
}

/// Refuses a text that is empty, has several lines or more than this many characters.
pub(crate) fn check_text(setting: &'static str, text: &str, longest: usize) -> Result<(), Error> {
    let expected =
        if longest == LONGEST_BY { "1 to 255 characters, in one line" } else { "1 to 1,000 characters, in one line" };
    let length = text.chars().count();
    let found = if text.trim().is_empty() {
        "empty".to_owned()
    } else if length > longest {
        format!("{length} characters long")
    } else if text.contains(char::is_control) {
        format!("{text:?}")
    } else {
        return Ok(());
    };
    Err(Error::Setting { setting, found, expected })
}

/// Returns the queue's name in the control table.
pub(crate) fn name_of<DB: QueueBackend>(queue: &'static QueueSql<DB>) -> QueryResult<String> {
    let table = TableName::of(queue.table, &DB::default())?;
    Ok(queue_name(table.schema.as_deref(), &table.name, queue.names.status))
}
