//! The calls about the control table, which leave a row if somebody is named who asks, and if there is a table for that.

use diesel::Connection;
use diesel::query_builder::QueryFragment;

use super::Author;
use super::record::{CONTROL_WAIT, Record};
use crate::backend::{AsQueueConnection, OwnTable, QueueConnection};
use crate::control::{
    LONGEST_BY, Limits, Pause, PauseScope, PausedPart, check_text, environment_in, expect_control, name_of,
};
use crate::entity::QueueSql;
use crate::error::Error;
use crate::row::printable;
use crate::statement::{self, NO_QUEUE, PauseEnd, set_environment};

/// Begins the record of a call, of which the queue, the action and what it is about are given. `author` says who asks, and why.
fn record<C: QueueConnection>(
    connection: &mut C,
    author: Option<(String, String)>,
    (queue, action, of): (&str, &str, &str),
) -> Result<Record, Error> {
    let Some((by, reason)) = author else { return Ok(Record::default()) };
    let author = Author { by, reason };
    author.check()?;
    if !connection.has_own(OwnTable::Audit)? {
        return Ok(Record::default());
    }
    Record::begin(connection, &author, (queue.to_owned(), action.to_owned(), of.to_owned()), CONTROL_WAIT, false)
}

type QueueOf<C> = &'static QueueSql<<C as Connection>::Backend>;

/// Writes a pause of the whole queue, of the stage that the pause names, or of the rows whose column has a value.
pub fn pause<Q, C: QueueConnection>(
    connection: &mut C,
    queue: QueueOf<C>,
    value: Option<(&str, &dyn QueryFragment<C::Backend>)>,
    pause: &Pause<Q>,
) -> Result<(), Error> {
    pause.check()?;
    let part = match (pause.stage, value) {
        (Some(stage), Some(_)) => {
            let (setting, found) = ("a pause of a value", format!("the stage {stage}"));
            return Err(Error::Setting { setting, found, expected: "a pause of all stages" });
        }
        (None, Some((column, value))) => PausedPart::Value(column, value),
        (stage, None) => stage.map_or(PausedPart::Whole, PausedPart::Stage),
    };
    expect_control(connection)?;
    let of = PauseScope::of(connection, queue, part)?;
    let end = match pause.end {
        PauseEnd::Never => String::new(),
        PauseEnd::At(time) => format!(" until {}", time.0),
        PauseEnd::After(time) => format!(" for {time:?}"),
    };
    let (Pause { by, reason, .. }, name) = (pause, name_of(queue)?);
    let author = Some((by.clone(), reason.clone()));
    let record = record(connection, author, (&name, &format!("pause{end}"), &of.words))?;
    pause.check_end(connection)?;
    let set = statement::set_pause((&name, &of.scope), (by, reason), of.value.as_deref(), pause.end);
    record.beside(connection, &set)?;
    Ok(())
}

/// Ends a pause. Returns whether there was one.
pub fn unpause<C: QueueConnection>(
    connection: &mut C,
    queue: QueueOf<C>,
    part: PausedPart<'_, C::Backend>,
    author: Option<(String, String)>,
) -> Result<bool, Error> {
    expect_control(connection)?;
    let (of, name) = (PauseScope::of(connection, queue, part)?, name_of(queue)?);
    let record = record(connection, author, (&name, "unpause", &of.words))?;
    Ok(record.beside(connection, &statement::end_pause(&name, &of.scope))? > 0)
}

/// Writes limits.
pub(crate) fn set_limits<Q, C: QueueConnection>(
    connection: &mut C,
    queue: QueueOf<C>,
    limits: &Limits<Q>,
) -> Result<(), Error> {
    limits.check(queue.options)?;
    expect_control(connection)?;
    let (Limits { by, reason, .. }, name) = (limits, name_of(queue)?);
    let action = format!("set_limits {}", limits.words());
    let record = record(connection, Some((by.clone(), reason.clone())), (&name, &action, "the whole queue"))?;
    record.beside(connection, &statement::set_limits(&name, (by, reason), limits.numbers()))?;
    Ok(())
}

/// Ends limits. Returns whether there were any.
pub(crate) fn end_limits<C: QueueConnection>(
    connection: &mut C,
    queue: QueueOf<C>,
    author: Option<(String, String)>,
) -> Result<bool, Error> {
    expect_control(connection)?;
    let name = name_of(queue)?;
    let record = record(connection, author, (&name, "end_limits", "the whole queue"))?;
    Ok(record.beside(connection, &statement::end_limits(&name))? > 0)
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
    let record = record(connection, Some((author.by, author.reason)), (NO_QUEUE, &action, "the database"))?;
    let before = environment_in(connection)?;
    record.beside(connection, &set_environment(name, true))?;
    Ok(before)
}
