//! Whose database this is: a name in the control table, which a copy of the database has too.

use diesel::connection::TransactionManager;
use diesel::result::QueryResult;

use super::table::{expect_control, given, rows};
use crate::backend::{AsQueueConnection, ErrorClass, OwnTable, QueueConnection, execute};
use crate::error::{Error, Finding};
use crate::row::{ControlRow, failure_text, printable};
use crate::statement::{NO_QUEUE, set_environment};

/// Returns the name that a row says, if it is the row of the environment.
pub(super) fn read((queue, scope, .., name): &ControlRow) -> Option<String> {
    given(name).filter(|_| queue == NO_QUEUE && scope.is_empty())
}

pub(crate) fn environment_in<C: QueueConnection>(connection: &mut C) -> QueryResult<Option<String>> {
    Ok(rows(connection, Some(NO_QUEUE))?.iter().find_map(read))
}

/// Returns the name of the environment to which the database belongs: that of the first poller with
/// [`environment`](crate::Poller::environment), or of the last [`adopt_environment`](crate::adopt_environment). `None`: it has none.
///
/// ```
/// # use diesel::prelude::*;
/// # use diesel_migrations::MigrationHarness;
/// # use queueable::Migrations;
/// # let mut connection = SqliteConnection::establish(":memory:")?;
/// # connection.run_pending_migrations(Migrations::new().control())?;
/// assert_eq!(queueable::control::environment(&mut connection)?, None);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
///
/// # Errors
///
/// [`Error::Control`] if there is no control table, [`Error::Database`].
pub fn environment<C: AsQueueConnection>(connection: &mut C) -> Result<Option<String>, Error> {
    let connection = connection.as_queue_connection();
    expect_control(connection)?;
    Ok(environment_in(connection)?)
}

/// Finds out whether the database belongs to this environment. If it belongs to none, it does from now on.
pub(crate) fn check_environment<C: QueueConnection>(connection: &mut C, name: &str) -> QueryResult<Option<Finding>> {
    let mut found = environment_in(connection)?;
    if found.is_none() {
        // Another process may be faster, and its name stays.
        connection.begin()?;
        let written = execute(connection, &set_environment(name, false)).and_then(|_| environment_in(connection));
        match written {
            Ok(written) => {
                C::TransactionManager::commit_transaction(connection)?;
                found = written;
            }
            Err(error) => {
                C::TransactionManager::rollback_transaction(connection)?;
                if C::classify(&error) != ErrorClass::Other {
                    return Err(error);
                }
                let (table, problem) = (OwnTable::Control.name(), failure_text(&error, 500));
                let grant = connection.grantee()?;
                let grant = grant.map(|grantee| format!("GRANT INSERT, UPDATE ON {table} TO {grantee}, or "));
                return Ok(Some(finding(
                    format!("the environment cannot be written into the table {table}: {problem}"),
                    format!(
                        "{}let an operator call `queueable::control::adopt_environment(.., {name:?}, ..)`",
                        grant.unwrap_or_default()
                    ),
                )));
            }
        }
    }
    let found = found.filter(|found| found != name);
    Ok(found.map(|found| {
        let found = printable(&found, false);
        finding(
            format!("the database belongs to the environment `{found}`, and the poller is one of `{name}`"),
            format!(
                "connect the poller to the database of `{name}`; or if this is a copy that is to work by itself, look at what is \
                 due in it, and let an operator call `queueable::control::adopt_environment(.., {name:?}, ..)`"
            ),
        )
    }))
}

fn finding(problem: String, mend: String) -> Finding {
    Finding { entity: "environment".to_owned(), problem, mend }
}
