//! The calls about the control table, which leave a row if somebody is named who asks, and if there is a table for that.

use diesel::query_builder::QueryFragment;

use super::Author;
use super::record::{CONTROL_WAIT, Record};
use crate::backend::{AsQueueConnection, OwnTable, QueueConnection};
use crate::control::{self, LONGEST_BY, Limits, Pause, PauseScope, check_text, expect_control, name_of};
use crate::entity::{QueueTable, StoredIn};
use crate::error::Error;
use crate::row::printable;
use crate::statement::{NO_QUEUE, PauseEnd};

/// Begins the record of a call, of which the queue, the action and what it is about are given.
fn record<C: QueueConnection>(
    connection: &mut C,
    author: Option<&Author>,
    (queue, action, of): (&str, &str, &str),
) -> Result<Record, Error> {
    let Some(author) = author else { return Ok(Record::default()) };
    author.check()?;
    if !connection.has_own(OwnTable::Audit)? {
        return Ok(Record::default());
    }
    Record::begin(connection, author, (queue.to_owned(), action.to_owned(), of.to_owned()), CONTROL_WAIT, false)
}

/// Writes a pause of the whole queue, or of a stage.
pub(crate) fn pause<Q, C>(connection: &mut C, pause: &Pause<Q>) -> Result<(), Error>
where
    C: QueueConnection,
    Q: StoredIn<C::Backend>,
{
    pause.check()?;
    expect_control(connection)?;
    write_pause(connection, pause, &PauseScope::of(pause.stage))
}

/// Writes a pause of the rows whose column has this value.
pub fn pause_where<Q, C>(
    connection: &mut C,
    column: &str,
    value: &dyn QueryFragment<C::Backend>,
    pause: &Pause<Q>,
) -> Result<(), Error>
where
    C: QueueConnection,
    Q: StoredIn<C::Backend>,
{
    pause.check()?;
    if let Some(stage) = pause.stage {
        let (setting, found) = ("a pause of a value", format!("the stage {stage}"));
        return Err(Error::Setting { setting, found, expected: "a pause of all stages" });
    }
    expect_control(connection)?;
    let of = PauseScope::of_value(connection, Q::SQL, column, value)?;
    write_pause(connection, pause, &of)
}

fn write_pause<Q, C>(connection: &mut C, pause: &Pause<Q>, of: &PauseScope) -> Result<(), Error>
where
    C: QueueConnection,
    Q: StoredIn<C::Backend>,
{
    let end = match pause.end {
        PauseEnd::Never => String::new(),
        PauseEnd::At(time) => format!(" until {}", time.0),
        PauseEnd::After(time) => format!(" for {time:?}"),
    };
    let author = Author { by: pause.by.clone(), reason: pause.reason.clone() };
    let record = record(connection, Some(&author), (&name_of(Q::SQL)?, &format!("pause{end}"), &of.words))?;
    control::pause(connection, pause, of, |connection, statement| record.beside(connection, statement))
}

/// Ends a pause of the whole queue, or of a stage. Returns whether there was one.
pub(crate) fn unpause<Q, C>(connection: &mut C, stage: Option<&str>, author: Option<&Author>) -> Result<bool, Error>
where
    C: QueueConnection,
    Q: StoredIn<C::Backend>,
{
    expect_control(connection)?;
    end_pause::<Q, C>(connection, &PauseScope::of(stage), author)
}

/// Ends a pause of the rows whose column has this value. Returns whether there was one.
pub(crate) fn unpause_where<Q, C>(
    connection: &mut C,
    column: &str,
    value: &dyn QueryFragment<C::Backend>,
    author: Option<&Author>,
) -> Result<bool, Error>
where
    C: QueueConnection,
    Q: StoredIn<C::Backend>,
{
    expect_control(connection)?;
    let of = PauseScope::of_value(connection, Q::SQL, column, value)?;
    end_pause::<Q, C>(connection, &of, author)
}

fn end_pause<Q, C>(connection: &mut C, of: &PauseScope, author: Option<&Author>) -> Result<bool, Error>
where
    C: QueueConnection,
    Q: StoredIn<C::Backend>,
{
    let record = record(connection, author, (&name_of(Q::SQL)?, "unpause", &of.words))?;
    control::unpause::<Q, C>(connection, of, |connection, statement| record.beside(connection, statement))
}

/// Ends a pause of a stage, of a value, or of the whole queue. Returns whether there was one.
pub fn unpause_scope<Q, C>(
    connection: &mut C,
    stage: Option<&str>,
    value: Option<(&str, &dyn QueryFragment<C::Backend>)>,
    (by, reason): (&str, &str),
) -> Result<bool, Error>
where
    C: QueueConnection,
    Q: StoredIn<C::Backend>,
{
    let author = Author { by: by.to_owned(), reason: reason.to_owned() };
    match value {
        Some((column, value)) => unpause_where::<Q, C>(connection, column, value, Some(&author)),
        None => unpause::<Q, C>(connection, stage, Some(&author)),
    }
}

/// Writes limits.
pub(crate) fn set_limits<Q, C>(connection: &mut C, limits: &Limits<Q>) -> Result<(), Error>
where
    C: QueueConnection,
    Q: StoredIn<C::Backend>,
{
    limits.check(&<Q::Queue as QueueTable>::OPTIONS)?;
    expect_control(connection)?;
    let author = Author { by: limits.by.clone(), reason: limits.reason.clone() };
    let action = format!("set_limits {}", limits.words());
    let record = record(connection, Some(&author), (&name_of(Q::SQL)?, &action, "the whole queue"))?;
    control::set_limits(connection, limits, |connection, statement| record.beside(connection, statement))
}

/// Ends limits. Returns whether there were any.
pub(crate) fn end_limits<Q, C>(connection: &mut C, author: Option<&Author>) -> Result<bool, Error>
where
    C: QueueConnection,
    Q: StoredIn<C::Backend>,
{
    expect_control(connection)?;
    let record = record(connection, author, (&name_of(Q::SQL)?, "end_limits", "the whole queue"))?;
    control::end_limits::<Q, C>(connection, |connection, statement| record.beside(connection, statement))
}

/// Gives the database to an environment, and returns the one to which it belonged: for a copy that is to work by itself. Before
/// that, look at what is due in the copy, and [skip](crate::QueueRows::skip) or [stop](crate::QueueRows::stop) what must not be
/// done twice.
///
/// A running poller of the former environment stops within two seconds. `by` says who asks for it, in 1 to 255 characters, and
/// `reason` why, in 1 to 1,000: both stand in the [audit](fn@crate::audit), if there is a [table](crate::Migrations::audit) for it.
///
/// ```
/// # use diesel::prelude::*;
/// # use diesel_migrations::MigrationHarness;
/// # use queueable::Migrations;
/// # let mut connection = SqliteConnection::establish(":memory:")?;
/// # connection.run_pending_migrations(Migrations::new().control())?;
/// assert_eq!(queueable::control::adopt_environment(&mut connection, "production", "ops@example.org", "set up")?, None);
/// let before = queueable::control::adopt_environment(&mut connection, "staging", "ops@example.org", "restored copy")?;
/// assert_eq!(before.as_deref(), Some("production"));
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
///
/// # Errors
///
/// [`Error::Control`] if there is no control table, [`Error::Setting`] for a text that is empty, too long, or not in one line, [`Error::Database`].
pub fn adopt_environment<C: AsQueueConnection>(
    connection: &mut C,
    name: &str,
    by: &str,
    reason: &str,
) -> Result<Option<String>, Error> {
    let connection = connection.as_queue_connection();
    check_text("the environment", name, LONGEST_BY)?;
    let author = Author { by: by.to_owned(), reason: reason.to_owned() };
    author.check()?;
    expect_control(connection)?;
    let action = format!("adopt_environment {}", printable(name, false));
    let record = record(connection, Some(&author), (NO_QUEUE, &action, "the database"))?;
    control::adopt(connection, name, |connection, statement| record.beside(connection, statement))
}
