//! Compares the rows with what an assertion asks. Each check returns the message of the assertion, if it fails.

use queue_core::internals::statement::StateCondition;

use super::asked::Asked;
use super::rows::{Inspects, Row, Which, unread};
use super::shown::{Message, SHOWN};
use crate::__derive::{OnFinish, QueueTable};
use crate::bounds::ReadsRows;
use crate::testing::now;
use crate::{QueueRows, Queueable, Status};

/// As many rows as there are.
const ALL: usize = i64::MAX as usize;

/// Panics with the message of an assertion that fails.
#[track_caller]
pub fn passes(checked: Result<(), String>) {
    if let Err(message) = checked {
        panic!("{message}");
    }
}

/// Joins the messages of the assertions that fail.
pub fn all(checked: impl IntoIterator<Item = Result<(), String>>) -> Result<(), String> {
    let messages: Vec<_> = checked.into_iter().filter_map(Result::err).collect();
    if messages.is_empty() { Ok(()) } else { Err(messages.join("\n")) }
}

/// Checks that rows are pending: one or more, or as many as asked.
pub fn enqueued<Q, F, C>(connection: &mut C, rows: QueueRows<Q, F>, asked: Asked) -> Result<(), String>
where
    Q: Queueable,
    C: Inspects<Q> + ReadsRows<Q, F>,
{
    let now = now(connection).map_err(unread)?;
    let due = asked.due(now)?;
    let rows = <C as ReadsRows<Q, F>>::condition(&rows, &[]);
    let pending = connection.read(rows, Which::Pending, ALL)?;
    // A row whose time cannot be read is due at none that is asked for.
    let is_due = |row: &Row<_>| due.is_any() || row.next.is_some_and(|next| due.distance(next).is_zero());
    let (found, mut others): (Vec<_>, Vec<_>) = pending.into_iter().partition(is_due);
    if asked.times.map_or(!found.is_empty(), |times| found.len() == times) {
        return Ok(());
    }
    let number = match asked.times {
        None => "a pending row".to_owned(),
        Some(0) => "no pending row".to_owned(),
        Some(1) => "1 pending row".to_owned(),
        Some(times) => format!("{times} pending rows"),
    };
    let filter = rows.filter_text();
    let with = filter.as_ref().map_or_else(String::new, |filter| format!(" with {filter}"));
    let expected = format!("{number} of {}{with}{}", Q::ENTITY, due.words);
    let is_missing = asked.times.is_none_or(|times| found.len() < times);
    let mut message = Message::new(connection, now, (&expected, &number_of(&found)), filter.as_deref())?;
    message.rows(these(&found), found)?;
    if is_missing && !others.is_empty() {
        others.sort_by_key(|row| row.next.map(|next| due.distance(next)));
        message.rows("these match all but the time, the nearest first", others)?;
    } else if is_missing {
        let ended = message.connection().read(rows, Which::NotPending, SHOWN)?;
        message.rows("these match and are not pending", ended)?;
        message.first_rows("these are pending and come next", Which::Pending)?;
    }
    message.fails()
}

/// Checks that no row is pending.
pub fn not_enqueued<Q, F, C>(connection: &mut C, rows: QueueRows<Q, F>, asked: Asked) -> Result<(), String>
where
    Q: Queueable,
    C: Inspects<Q> + ReadsRows<Q, F>,
{
    enqueued(connection, rows, asked.times(0))
}

/// Checks a row's status, and that its error contains a text.
pub fn settled<Q, C>(connection: &mut C, key: &Q::Key, status: Status, error: Option<&str>) -> Result<(), String>
where
    Q: Queueable,
    C: Inspects<Q>,
{
    let rows = connection.read_row(key)?;
    let has_error = |row: &Row<_>| error.is_none_or(|part| row.error.as_ref().is_some_and(|text| text.contains(part)));
    if rows.iter().any(|row| row.status == status.as_str() && has_error(row)) {
        return Ok(());
    }
    let with = error.map_or_else(String::new, |part| format!(" with a failure that contains {part:?}"));
    not_so(connection, rows, &format!("{} {key:?} to be {status}{with}", Q::ENTITY))
}

/// Checks when a row is due.
pub fn next<Q, C>(connection: &mut C, key: &Q::Key, asked: Asked) -> Result<(), String>
where
    Q: Queueable,
    C: Inspects<Q>,
{
    let due = asked.due(now(connection).map_err(unread)?)?;
    let rows = connection.read_row(key)?;
    if rows.iter().any(|row| row.next.is_some_and(|next| due.distance(next).is_zero())) {
        return Ok(());
    }
    not_so(connection, rows, &format!("{} {key:?} to be pending{}", Q::ENTITY, due.words))
}

/// Fails with the row that is there; without one, with the last rows of the table.
fn not_so<Q, C>(connection: &mut C, rows: Vec<Row<Q::Key>>, expected: &str) -> Result<(), String>
where
    Q: Queueable,
    C: Inspects<Q>,
{
    let now = now(connection).map_err(unread)?;
    let options = &<Q::Queue as QueueTable>::OPTIONS;
    let is_deleted = [options.on_success, options.on_failure].map(|on_finish| on_finish == OnFinish::Delete);
    let found = match (rows.is_empty(), is_deleted) {
        (false, _) => "another state",
        (true, [false, false]) => "no such row",
        (true, [true, false]) => "no such row (the queue deletes rows that succeed)",
        (true, [false, true]) => "no such row (the queue deletes rows that fail)",
        (true, [true, true]) => "no such row (the queue deletes rows that succeed or fail)",
    };
    let is_missing = rows.is_empty();
    let mut message = Message::new(connection, now, (expected, found), None)?;
    message.rows("this is the row", rows)?;
    if is_missing {
        message.first_rows("these rows have the highest keys", Which::Last)?;
    }
    message.fails()
}

/// Checks that no row of an entity is due.
pub fn nothing_due<Q: Queueable, C: Inspects<Q>>(connection: &mut C) -> Result<(), String> {
    let due = connection.read(C::rows_in(&[StateCondition::Due]), Which::Pending, ALL)?;
    if due.is_empty() {
        return Ok(());
    }
    let now = now(connection).map_err(unread)?;
    let expected = format!("no due row of {}", Q::ENTITY);
    let mut message = Message::new(connection, now, (&expected, &number_of(&due)), None)?;
    message.rows(these(&due), due)?;
    message.fails()
}

fn number_of<T>(rows: &[T]) -> String {
    if rows.is_empty() { "none".to_owned() } else { rows.len().to_string() }
}

fn these<T>(rows: &[T]) -> &'static str {
    if rows.len() == 1 { "this one" } else { "these" }
}
