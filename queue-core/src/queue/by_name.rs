//! Reads rows, counts them, and splits reports, by columns that are known by their names alone: for programs that show any entity,
//! such as a console. An application names its columns as Diesel does.

use std::slice;
use std::time::Duration;

use diesel::result::{Error as DieselError, QueryResult};

use super::operate::{Picked, archived, load_figures};
use super::queue::{QueueRows, Selection};
use super::read::{BackendOf, LoadsRows, ReadsRows};
use super::report::{beginning, pattern, troubled};
use crate::backend::{
    AsQueueConnection, DatabaseText, ErrorClass, ErrorClasses, Holds, QueueBackend, QueueConnection, SessionSetup,
    column_names,
};
use crate::control::name_of;
use crate::entity::{Entity, IsKey, QueueTable, StoredIn};
use crate::error::{Error, refused};
use crate::statement::{
    And, CHARACTERS_OF_TEXT, Condition, Figure, IfAny, PageFrom, PageOrder, QueueOn, TextColumn, WithBeginning, beyond,
    read_texts,
};

/// How a page of texts is read.
pub struct TextPage<'a, DB: QueueBackend> {
    /// The columns of the key, in their order.
    pub keys: &'a [TextColumn],
    /// The columns, in their order.
    pub columns: &'a [TextColumn],
    /// How many characters of a text are read.
    pub longest: u32,
    /// In which order the rows come.
    pub order: PageOrder,
    /// Whether they come the other way round: those before a row, the nearest first, or without a row the last ones.
    pub backwards: bool,
    /// After which row the page begins: the text of its time, if it has one, and the condition that picks the rows whose keys come after
    /// its key: with lower ones if the order [descends](PageOrder::descends).
    pub after: Option<(Option<String>, IsKey<DB>)>,
    /// How many rows are read.
    pub limit: usize,
}

/// A row as texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextRow<K> {
    /// Its key.
    pub key: K,
    /// The text of the time by which the page is ordered.
    pub time: Option<String>,
    /// The texts of its key's columns.
    pub parts: Vec<Option<String>>,
    /// The texts of its columns; `None` is null.
    pub values: Vec<Option<String>>,
}

/// The rows of a page whose failure has a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupTexts<K> {
    /// The rows.
    pub rows: Vec<TextRow<K>>,
    /// The last row at which it has looked, of this group or not: the next page begins after it. `None`: there are no more.
    pub stopped_at: Option<TextRow<K>>,
}

/// How many rows of a group a page has at most.
const MOST_OF_GROUP: usize = 1_000;

/// How many rows are read for them: with the 1,000 characters of each, it limits the time and the memory.
const MOST_SEEN: usize = 20_000;

/// How many rows are read at a time after the first page.
const PORTION: usize = 1_000;

/// How many rows there are, and the figures over them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figures {
    /// How many rows there are; if there are more than were to be counted, that many.
    pub rows: i64,
    /// Whether there are more.
    pub more: bool,
    /// The texts of the figures; `None` is null, a sum that is too large for the database, or that there are more rows.
    pub figures: Vec<Option<String>>,
}

/// Returns the names of the columns of an entity's key.
pub fn key_names<Q: StoredIn<DB>, DB: QueueBackend>() -> QueryResult<Vec<String>> {
    column_names(Q::SQL.key_columns, &DB::default())
}

/// Returns the name of an entity's queue in the control table.
pub fn queue_name_of<Q: StoredIn<DB>, DB: QueueBackend>() -> QueryResult<String> {
    name_of(Q::SQL)
}

/// Limits a session on which a program only reads, for as long as the session lasts. Call it outside a transaction.
///
/// A server ends a statement that takes longer, which [`is_timeout`] recognizes. MySQL, unlike MariaDB, does so only with statements
/// that read. A lock is waited for in whole seconds there. SQLite ends no statement, so only the bounds of each call limit its time.
pub fn limit_session<C: AsQueueConnection>(
    connection: &mut C,
    statement_timeout: Duration,
    lock_timeout: Duration,
) -> Result<(), Error> {
    Ok(connection.as_queue_connection().limit_session(statement_timeout, lock_timeout)?)
}

/// Tells whether the server has ended a statement because it took longer than the session's limit. A wait for a lock is another
/// error.
pub fn is_timeout<C: AsQueueConnection>(error: &Error) -> bool {
    match error {
        Error::Database(error) => C::Connection::is_timeout(error),
        Error::Interrupted { source, .. } => is_timeout::<C>(source),
        _ => false,
    }
}

impl<Q: Entity, F: Selection> QueueRows<Q, F> {
    /// Reads a page of rows as texts.
    #[doc(hidden)]
    pub fn texts<C>(&self, connection: &mut C, page: TextPage<'_, BackendOf<C>>) -> Result<Vec<TextRow<Q::Key>>, Error>
    where
        C: LoadsRows<Q, F>,
        Q: QueueOn<C::Connection>,
    {
        let condition = C::condition(self, &self.terms.states);
        Ok(read_page::<Q, _>(connection.as_queue_connection(), condition, page)?)
    }

    /// Reads the rows of a page whose failure has this pattern, at most 1,000. Of the others it reads no more than 20,000 that are as
    /// likely to have it: those whose texts begin as the pattern does.
    ///
    /// It is for a page by the latest attempt: with `#[queue(report_index)]` that reads no row that never failed, and of a selection of
    /// failed rows only those of the page. Otherwise it reads the whole table.
    #[doc(hidden)]
    pub fn texts_of_group<C>(
        &self,
        connection: &mut C,
        group: &str,
        page: TextPage<'_, BackendOf<C>>,
    ) -> Result<GroupTexts<Q::Key>, Error>
    where
        C: LoadsRows<Q, F>,
        Q: QueueOn<C::Connection>,
    {
        let TextPage { keys, columns, longest, order, backwards, mut after, limit } = page;
        let states = self.states_and(&troubled(&Q::Queue::OPTIONS));
        let condition = C::condition(self, &states);
        let begins = And(IfAny(condition.filter), WithBeginning(condition.queue, beginning(group)));
        let condition = Condition { filter: Some(&begins), ..condition };
        let text = condition.queue.names.last_attempt_error_message.to_owned();
        let text = TextColumn { name: text, holds: Holds::Texts };
        let columns: Vec<_> = columns.iter().cloned().chain([text]).collect();
        let limit = limit.clamp(1, MOST_OF_GROUP);
        let (mut rows, mut seen, mut portion) = (Vec::new(), 0, limit);
        loop {
            let longest_read = longest.max(CHARACTERS_OF_TEXT);
            let part =
                TextPage { keys, columns: &columns, longest: longest_read, order, backwards, after, limit: portion };
            let mut read = read_page::<Q, _>(connection.as_queue_connection(), condition, part)?.into_iter();
            let is_last_portion = read.len() < portion;
            seen += read.len();
            let mut last = None;
            for mut row in read.by_ref() {
                let text = row.values.pop().flatten().unwrap_or_default();
                row.values.iter_mut().flatten().for_each(|value| cut(value, longest));
                let is_of_group = pattern(first_characters(&text, CHARACTERS_OF_TEXT)) == group;
                rows.extend(is_of_group.then(|| row.clone()));
                last = Some(row);
                if rows.len() == limit {
                    break;
                }
            }
            if is_last_portion && read.len() == 0 {
                return Ok(GroupTexts { rows, stopped_at: None });
            }
            let (Some(row), true) = (&last, rows.len() < limit && seen < MOST_SEEN) else {
                return Ok(GroupTexts { rows, stopped_at: last });
            };
            let is_key = C::are_keys(slice::from_ref(&row.key)).remove(0);
            let is_beyond = beyond(order.descends(backwards), C::after(&row.key), is_key);
            after = Some((row.time.clone(), is_beyond));
            portion = PORTION;
        }
    }

    /// Reads rows that were picked, as texts, in the order of their keys.
    #[doc(hidden)]
    pub fn texts_of<C>(
        &self,
        connection: &mut C,
        picked: &Picked<Q::Key>,
        (keys, columns): (&[TextColumn], &[TextColumn]),
        longest: u32,
        limit: usize,
    ) -> Result<Vec<TextRow<Q::Key>>, Error>
    where
        C: LoadsRows<Q, F>,
        Q: QueueOn<C::Connection>,
    {
        let first: Vec<_> = picked.keys().take(limit).cloned().collect();
        let among = C::are_keys(&first);
        let there = archived(connection, picked.archive.as_ref(), columns, |column| &column.name)?;
        let columns: Vec<_> = there.iter().flatten().cloned().collect();
        let condition = C::condition(self, &[]).among(&among).within(picked.archive.as_ref());
        let from = PageFrom { order: PageOrder::Key, backwards: false, timed: false, after: None };
        let read = read_texts(condition, &from, (keys, &columns), longest, limit);
        let rows = (Q::QUEUE.load_keys)(connection.as_queue_connection(), &read)?;
        let row = |(key, texts): (_, DatabaseText)| {
            let row = row_of(key, &texts.0)?;
            let mut read = row.values.into_iter();
            let values = there.iter().map(|column| column.as_ref().and_then(|_| read.next().flatten())).collect();
            Ok(TextRow { values, ..row })
        };
        rows.into_iter().map(row).collect()
    }

    /// Counts the rows and reads figures over them, from no more than `most` rows and one. If there are more rows, it says so, and
    /// gives no figures: a sum over a part of the rows would mislead.
    ///
    /// The bound limits only the rows that are in the selection. A filter that picks few rows of many needs an index of the
    /// application's own, or a [`limit_session`].
    #[doc(hidden)]
    pub fn figures<C: ReadsRows<Q, F>>(
        &self,
        connection: &mut C,
        figures: &[Figure],
        most: i64,
    ) -> Result<Figures, Error> {
        let most = most.clamp(0, i64::MAX - 1);
        let condition = C::condition(self, &self.terms.states);
        let connection = connection.as_queue_connection();
        let (rows, read) = match load_figures(connection, condition, figures, Some(most + 1)) {
            // Without the sum that is too large for the database, the rows can be counted.
            Err(error) if !figures.is_empty() && is_for_figures::<C::Connection>(&error) => {
                load_figures(connection, condition, &[], Some(most + 1))?
            }
            read => read?,
        };
        let more = rows > most;
        let mut read = read.into_iter().filter(|_| !more);
        let figures = figures.iter().map(|_| read.next().flatten()).collect();
        Ok(Figures { rows: rows.min(most), more, figures })
    }
}

/// Reads a page of a condition's rows as texts.
fn read_page<Q: QueueOn<C>, C: QueueConnection>(
    connection: &mut C,
    condition: Condition<'_, C::Backend>,
    page: TextPage<'_, C::Backend>,
) -> QueryResult<Vec<TextRow<Q::Key>>> {
    let TextPage { keys, columns, longest, order, backwards, mut after, limit } = page;
    // Rows without a time come last, and on the way back first.
    let parts: &[bool] = match (order.is_by_key(), backwards) {
        (true, _) => &[false],
        (false, false) => &[true, false],
        (false, true) => &[false, true],
    };
    let has_time = after.as_ref().map(|(time, _)| time.is_some() && !order.is_by_key());
    let mut rows = Vec::new();
    for &timed in parts.iter().skip_while(|timed| has_time.is_some_and(|has_time| has_time != **timed)) {
        if rows.len() >= limit {
            break;
        }
        // Behind the part of the row before it, the other part is read from its beginning.
        let from = PageFrom { order, backwards, timed, after: after.take() };
        let read = read_texts(condition, &from, (keys, columns), longest, limit - rows.len());
        for (key, texts) in (Q::QUEUE.load_keys)(connection, &read)? {
            rows.push(row_of(key, &texts.0)?);
        }
    }
    Ok(rows)
}

/// Cuts a text after so many characters.
fn cut(text: &mut String, characters: u32) {
    text.truncate(first_characters(text, characters).len());
}

fn first_characters(text: &str, characters: u32) -> &str {
    let end = text.char_indices().nth(characters as usize).map_or(text.len(), |(end, _)| end);
    &text[..end]
}

/// Tells whether a figure may be the cause of an error. A statement that takes too long would take as long once more.
fn is_for_figures<C: ErrorClasses>(error: &DieselError) -> bool {
    C::classify(error) == ErrorClass::Other && !C::is_timeout(error)
}

fn row_of<K>(key: K, texts: &str) -> QueryResult<TextRow<K>> {
    let unreadable = |error: serde_json::Error| refused(format!("the texts of a row are no JSON: {error}"));
    let mut lists: Vec<serde_json::Value> = serde_json::from_str(texts).map_err(unreadable)?;
    let time = if lists.is_empty() { None } else { lists.remove(0).as_str().map(str::to_owned) };
    let lists = lists.into_iter().map(serde_json::from_value::<Vec<Option<String>>>);
    let mut lists = lists.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    let parts = if lists.is_empty() { Vec::new() } else { lists.remove(0) };
    Ok(TextRow { key, time, parts, values: lists.concat() })
}
