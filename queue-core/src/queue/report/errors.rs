//! The failures of a queue: their texts, grouped by what they have in common.

use super::counts::troubled;
use super::table::{self, By, Heading, OddTimes, Tabular, number, pattern, text, write_table};
use crate::backend::{DatabaseText, execute, load};
use crate::entity::{Entity, QueueTable, name_of_column};
use crate::error::Error;
use crate::poller::wake;
use crate::queue::dry_run::{DryRun, Preview, preview_of};
use crate::queue::operation::{self, Operation};
use crate::queue::queue::{QueueRows, Selection};
use crate::queue::read::{ChangesRows, LoadsRows, ReadsRows};
use crate::queue::sweep::Swept;
use crate::statement::{
    And, Change, Condition, ErrorExampleRow, ErrorTextRow, ErrorTextRowType, IfAny, Split, SplitBy, WithTexts,
    change_all, error_examples, error_sample, error_texts, texts_after,
};
use chrono::{DateTime, Utc};
use diesel::Column;
use diesel::result::QueryResult;
use diesel::sql_types::Text;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;

/// The largest number of texts that are read for a report, those on most rows first. With the 1,000 characters that are
/// read of each, it limits the memory.
const MOST_TEXTS: u32 = 20_000;

/// How many rows a report looks at first for examples: to choose those of each text, the database reads all texts once more.
const SAMPLE: u32 = 2_000;

/// How many texts are read at a time.
const TEXTS_AT_ONCE: u32 = 5_000;

const RETRIED_AT_ONCE: usize = 500;

/// How many groups are shown.
const SHOWN: usize = 20;

/// How many characters of a pattern are shown.
const SHOWN_CHARACTERS: usize = 100;

/// How many keys of a group are shown.
const EXAMPLES: usize = 3;

/// The failures of a queue: the rows that have the text of a failure, grouped by what their texts have in common.
///
/// `K` is the type of the entity's primary key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ErrorReport<K> {
    /// The groups, those with most rows first.
    pub groups: Vec<ErrorGroup<K>>,
    /// How many rows are in no group, because their texts were not read: a report reads the 20,000 texts that are on
    /// most rows.
    #[serde(default)]
    pub left_out: i64,
}

/// The rows whose texts differ in values only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ErrorGroup<K> {
    /// The common part of the texts: numbers are folded to `<number>`, dates and times to `<time>`, UUIDs to `<uuid>`,
    /// hexadecimal ids to `<hex>`, and quoted values to `'<value>'`. It is cut after 400 characters.
    pub pattern: String,
    /// How many rows there are.
    pub rows: i64,
    /// How many of them have the status `ERROR` and will be retried. Stopped ones are not among them.
    pub retrying: i64,
    /// How many of them are `FAILED`.
    pub failed: i64,
    /// How many different texts they have.
    pub texts: i64,
    /// When the first of them failed, as far as the rows still show it. `None` for rows without a recorded attempt, and
    /// for those that failed at odd times.
    pub first: Option<DateTime<Utc>>,
    /// When the last of them failed.
    pub last: Option<DateTime<Utc>>,
    /// The rows of the group that failed at odd times, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub odd_times: Option<OddTimes>,
    /// The primary keys of up to three of the rows, as far as they can be decoded. They are of different texts if there are any,
    /// unless the report looked at a part of more than 2,000 rows.
    pub examples: Vec<K>,
    /// The first 1,000 characters of the text of the first of them.
    pub example_text: String,
}

impl<K> ErrorReport<K> {
    /// Leaves out the texts and the keys of single rows.
    #[doc(hidden)]
    pub fn without_examples(mut self) -> Self {
        for group in &mut self.groups {
            group.examples.clear();
            group.example_text.clear();
        }
        self
    }

    /// Shows the examples in another form.
    #[doc(hidden)]
    pub fn map_keys<T>(self, form: impl Fn(K) -> T) -> ErrorReport<T> {
        let group = |of: ErrorGroup<K>| {
            let ErrorGroup { pattern, rows, retrying, failed, texts, first, last, odd_times, examples, example_text } =
                of;
            let examples = examples.into_iter().map(&form).collect();
            ErrorGroup { pattern, rows, retrying, failed, texts, first, last, odd_times, examples, example_text }
        };
        ErrorReport { groups: self.groups.into_iter().map(group).collect(), left_out: self.left_out }
    }
}

impl<K: fmt::Debug> Tabular for ErrorReport<K> {
    const COLUMNS: &'static [Heading] = &[
        number("rows"),
        number("retrying"),
        number("failed"),
        text("first (UTC)"),
        text("last (UTC)"),
        text("odd times"),
        text("examples"),
        text("error"),
    ];

    fn lines(&self) -> Vec<Vec<String>> {
        let line = |group: &ErrorGroup<K>| {
            vec![
                group.rows.to_string(),
                group.retrying.to_string(),
                group.failed.to_string(),
                table::time(group.first),
                table::time(group.last),
                group.odd_times.as_ref().map_or_else(String::new, OddTimes::to_string),
                match group.examples.as_slice() {
                    [] => "(cannot be decoded)".to_owned(),
                    keys => keys.iter().map(|key| format!("{key:?}")).collect::<Vec<_>>().join(", "),
                },
                first_line(&group.pattern),
            ]
        };
        let mut lines: Vec<_> = self.groups.iter().take(SHOWN).map(line).collect();
        let more = &self.groups[lines.len()..];
        if !more.is_empty() {
            let sum = |count: fn(&ErrorGroup<K>) -> i64| more.iter().map(count).sum::<i64>().to_string();
            let others = format!("({} more groups)", more.len());
            let (rows, retrying, failed) =
                (sum(|group| group.rows), sum(|group| group.retrying), sum(|group| group.failed));
            lines.push([vec![rows, retrying, failed], vec![String::new(); 4], vec![others]].concat());
        }
        lines
    }
}

/// Returns the first line of a pattern, cut to the width of a line.
fn first_line(pattern: &str) -> String {
    let line: String = pattern.lines().next().unwrap_or("").chars().take(SHOWN_CHARACTERS).collect();
    if line.len() < pattern.len() { format!("{} ..", line.trim_end()) } else { line }
}

impl<K: fmt::Debug> fmt::Display for ErrorReport<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_table(f, None, Self::COLUMNS, &self.lines())?;
        if self.left_out > 0 {
            writeln!(f, "and {} rows whose texts were not read", self.left_out)?;
        }
        Ok(())
    }
}

impl<Q: Entity, F: Selection> QueueRows<Q, F> {
    /// Groups the rows that have the text of a failure by that text, with numbers, ids, times and quoted values folded.
    ///
    /// Rows that are being retried or were enqueued again count until they succeed; `SKIPPED` ones do not. The database
    /// groups by the exact text, of which it reads the first 1,000 characters. If there are more than 20,000 texts, it
    /// reads those that are on most rows, and [`left_out`](ErrorReport::left_out) counts the rest. It needs MySQL 8.
    ///
    /// With `#[queue(report_index)]` it reads no row that never failed, and after
    /// [`attempted_within`](Self::attempted_within) only those of that time. Otherwise it reads the whole table.
    ///
    /// # Errors
    ///
    /// [`Error::Database`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel::connection::SimpleConnection;
    /// # use diesel_migrations::MigrationHarness;
    /// # use queueable::{Migrations, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, company_id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64, company_id: i64 }
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, company_id BIGINT NOT NULL)")?;
    /// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
    /// # connection.batch_execute("INSERT INTO payments (company_id, status, last_attempt_error_message) VALUES
    /// #     (3345, 'FAILED', 'no account ''O-17'''), (3345, 'FAILED', 'no account ''O-18''')")?;
    /// let company = Payment::queue().filter(payments::company_id.eq(3345));
    /// let report = company.errors(&mut connection)?;
    /// print!("{report}");
    /// assert_eq!((report.groups[0].pattern.as_str(), report.groups[0].rows), ("no account '<value>'", 2));
    /// // The cause is mended: these rows, and no others, run once more.
    /// assert_eq!(company.retry_error_group(&mut connection, &report.groups[0])?, 2);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn errors<C: LoadsRows<Q, F>>(&self, connection: &mut C) -> Result<ErrorReport<Q::Key>, Error> {
        let (mut parts, left_out) = self.read_groups(connection, None)?;
        Ok(ErrorReport { groups: parts.remove(&None).unwrap_or_default(), left_out })
    }

    /// Groups the same rows for each value of a domain column.
    ///
    /// # Errors
    ///
    /// [`Error::Database`].
    pub fn errors_by<C, S>(&self, connection: &mut C, column: S) -> Result<By<ErrorReport<Q::Key>>, Error>
    where
        C: LoadsRows<Q, F>,
        S: Column<Table = <Q::Queue as QueueTable>::Table>,
    {
        self.errors_by_name(connection, name_of_column(column))
    }

    /// Reports the same for each value of a column with this name.
    #[doc(hidden)]
    pub fn errors_by_name<C: LoadsRows<Q, F>>(
        &self,
        connection: &mut C,
        column: &str,
    ) -> Result<By<ErrorReport<Q::Key>>, Error> {
        let (parts, left_out) = self.read_groups(connection, Some(SplitBy::Column(column)))?;
        let report = |groups| ErrorReport { groups, left_out: 0 };
        Ok(By::new(column, parts.into_iter().map(|(value, groups)| (value, report(groups))), left_out))
    }

    /// Reads the groups of each value of a column, or of all rows together, and how many rows were left out.
    fn read_groups<C: LoadsRows<Q, F>>(
        &self,
        connection: &mut C,
        split: Split<'_>,
    ) -> QueryResult<(PartsOf<Q::Key>, i64)> {
        let states = self.states_and(&troubled(&Q::Queue::OPTIONS));
        let condition = C::condition(self, &states);
        let texts = error_texts(condition, split, MOST_TEXTS);
        let texts = load::<ErrorTextRowType, ErrorTextRow, _>(connection.as_queue_connection(), &texts)?;
        let all = texts.first().map_or(0, |row| row.4);
        let left_out = all - texts.iter().map(|row| row.1.0).sum::<i64>();
        if split.is_none() && Q::Queue::OPTIONS.report_index && all > i64::from(SAMPLE) {
            let found = parts(texts.clone(), connection.load_error_examples(&error_sample(condition, SAMPLE))?);
            if found.values().flatten().all(|group| group.examples.len() as i64 >= group.rows.min(EXAMPLES as i64)) {
                return Ok((found, left_out));
            }
        }
        let examples = connection.load_error_examples(&error_examples(condition, split, MOST_TEXTS))?;
        Ok((parts(texts, examples), left_out))
    }

    /// Makes the rows of one group due at once, as [`retry_now`](QueueRows::retry_now) does with other rows: exactly those
    /// rows of the selection whose text has the group's pattern now. A group that [`errors_by`](QueueRows::errors_by) found
    /// for one value needs a filter for that value, or the rows of other values are retried too.
    ///
    /// It reads the texts once more, including those for which a report had no room, and changes the rows of 500 texts
    /// in each transaction.
    ///
    /// # Errors
    ///
    /// As [`retry_now`](QueueRows::retry_now). Changes that were committed before stay, unless they were in the caller's
    /// transaction: [`Error::Interrupted`] has their number.
    pub fn retry_error_group<C, K>(&self, connection: &mut C, group: &ErrorGroup<K>) -> Result<usize, Error>
    where
        C: ChangesRows<Q, F>,
    {
        self.change_group(connection, group, "retry_error_group", &operation::retry_now())
    }

    /// Stops the rows of one group, as [`stop`](QueueRows::stop) does with other rows: those whose text has the group's pattern
    /// now, as in [`retry_error_group`](Self::retry_error_group).
    ///
    /// # Errors
    ///
    /// As [`stop`](QueueRows::stop), and as [`retry_error_group`](Self::retry_error_group).
    pub fn stop_error_group<C, K>(&self, connection: &mut C, group: &ErrorGroup<K>) -> Result<usize, Error>
    where
        C: ChangesRows<Q, F>,
    {
        self.change_group(connection, group, "stop_error_group", &operation::stop(&Q::Queue::OPTIONS))
    }

    /// Skips the rows of one group, as [`skip`](QueueRows::skip) does with other rows: those whose text has the group's pattern
    /// now, as in [`retry_error_group`](Self::retry_error_group).
    ///
    /// # Errors
    ///
    /// As [`skip`](QueueRows::skip), and as [`retry_error_group`](Self::retry_error_group).
    pub fn skip_error_group<C, K>(&self, connection: &mut C, group: &ErrorGroup<K>) -> Result<usize, Error>
    where
        C: ChangesRows<Q, F>,
    {
        self.change_group(connection, group, "skip_error_group", &operation::skip(&Q::Queue::OPTIONS))
    }

    fn change_group<C: ChangesRows<Q, F>, K>(
        &self,
        connection: &mut C,
        group: &ErrorGroup<K>,
        action: &str,
        operation: &Operation<Change>,
    ) -> Result<usize, Error> {
        let mut record = self.record(connection, action, &format!("error `{}`", group.pattern), true)?;
        let mut changed = Swept::default();
        let done = self.each_text_of(connection, &group.pattern, |connection, texts| {
            changed.rows +=
                self.each_kind(connection, operation, &mut record, |connection, condition, change, alone| {
                    let filter = And(IfAny(condition.filter), WithTexts(condition.queue, texts));
                    let condition = Condition { filter: Some(&filter), ..condition };
                    execute(connection, &change_all(condition, change, alone))
                })?;
            wake::announce::<Q::Queue>();
            Ok(())
        });
        done.map_err(|error| changed.interrupted_by(error))?;
        self.close(connection, &record)?;
        Ok(changed.rows)
    }

    /// Reads the texts of one group in portions.
    pub(crate) fn each_text_of<C: ReadsRows<Q, F>>(
        &self,
        connection: &mut C,
        group: &str,
        mut each: impl FnMut(&mut C, &[String]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let states = self.states_and(&troubled(&Q::Queue::OPTIONS));
        let mut last: Option<String> = None;
        loop {
            let after = texts_after(C::condition(self, &states), last.as_deref(), TEXTS_AT_ONCE);
            let texts = load::<Text, DatabaseText, _>(connection.as_queue_connection(), &after)?;
            drop(after);
            let texts: Vec<_> = texts.into_iter().map(|text| text.0).collect();
            // A text that is not UTF-8 was replaced, and may come after its replacement again.
            let Some(end) = texts.last().filter(|end| last.as_ref() != Some(*end)).cloned() else { return Ok(()) };
            let of_group: Vec<_> = texts.into_iter().filter(|text| pattern(text) == group).collect();
            of_group.chunks(RETRIED_AT_ONCE).try_for_each(|texts| each(connection, texts))?;
            last = Some(end);
        }
    }
}

impl<Q: Entity, F: Selection> DryRun<Q, F> {
    /// Reads what [`QueueRows::retry_error_group`] would do. It shows the rows in the order of their texts.
    ///
    /// # Errors
    ///
    /// [`Error::Database`].
    pub fn retry_error_group<C, K>(&self, connection: &mut C, group: &ErrorGroup<K>) -> Result<Preview<Q>, Error>
    where
        C: LoadsRows<Q, F>,
    {
        self.preview_group(connection, group, &operation::retry_now())
    }

    /// Reads what [`QueueRows::stop_error_group`] would do.
    ///
    /// # Errors
    ///
    /// [`Error::Database`].
    pub fn stop_error_group<C, K>(&self, connection: &mut C, group: &ErrorGroup<K>) -> Result<Preview<Q>, Error>
    where
        C: LoadsRows<Q, F>,
    {
        self.preview_group(connection, group, &operation::stop(&Q::Queue::OPTIONS))
    }

    /// Reads what [`QueueRows::skip_error_group`] would do.
    ///
    /// # Errors
    ///
    /// [`Error::Database`].
    pub fn skip_error_group<C, K>(&self, connection: &mut C, group: &ErrorGroup<K>) -> Result<Preview<Q>, Error>
    where
        C: LoadsRows<Q, F>,
    {
        self.preview_group(connection, group, &operation::skip(&Q::Queue::OPTIONS))
    }

    fn preview_group<C, K>(
        &self,
        connection: &mut C,
        group: &ErrorGroup<K>,
        operation: &Operation<Change>,
    ) -> Result<Preview<Q>, Error>
    where
        C: LoadsRows<Q, F>,
    {
        let kinds = operation.kinds();
        let mut preview = Preview::default();
        self.0.each_text_of(connection, &group.pattern, |connection, texts| {
            let condition = C::condition(&self.0, &self.0.terms.states).of_kinds(&kinds);
            let filter = And(IfAny(condition.filter), WithTexts(condition.queue, texts));
            let condition = Condition { filter: Some(&filter), ..condition };
            preview.add(preview_of(connection, condition)?);
            Ok(())
        })?;
        Ok(preview)
    }
}

/// The groups of each value.
type PartsOf<K> = HashMap<Option<String>, Vec<ErrorGroup<K>>>;

/// Returns the groups of each value: those with most rows first, and those with equally many by their pattern. The texts
/// come with those on most rows first: the first text of a group is its example.
fn parts<K>(texts: Vec<ErrorTextRow>, examples: Vec<ErrorExampleRow<K>>) -> PartsOf<K> {
    let mut parts = HashMap::<_, HashMap<String, ErrorGroup<K>>>::new();
    let mut patterns = HashMap::new();
    let text_of = |text: DatabaseText| text.0;
    for ((text, identity, value), (rows, retrying, failed), (first, last), (odd, odd_time), _) in texts {
        let (text, identity, value) = (text.0, identity.0, value.map(text_of));
        let pattern = pattern(&text);
        let group = parts.entry(value.clone()).or_default().entry(pattern.clone()).or_insert_with(|| ErrorGroup {
            pattern: pattern.clone(),
            rows: 0,
            retrying: 0,
            failed: 0,
            texts: 0,
            first: None,
            last: None,
            odd_times: None,
            examples: Vec::new(),
            example_text: text.clone(),
        });
        OddTimes::add(&mut group.odd_times, odd, odd_time.map(|text| text.0));
        group.rows += rows;
        group.retrying += retrying;
        group.failed += failed;
        group.texts += 1;
        let at = |microseconds: Option<i64>| microseconds.and_then(DateTime::from_timestamp_micros);
        let (first, last) = (at(first), at(last));
        group.first = group.first.into_iter().chain(first).min();
        group.last = group.last.max(last);
        patterns.insert((identity, value), (pattern, text));
    }
    for (identity, value, .., key) in examples {
        let (identity, value) = (identity.0, value.map(text_of));
        // A row that has failed since the texts were read is in no group.
        let found = patterns.get(&(identity, value.clone()));
        let (Some((pattern, text)), Some((key,))) = (found, key.ok()) else { continue };
        let group = parts.get_mut(&value).and_then(|groups| groups.get_mut(pattern));
        if let Some(group) = group.filter(|group| group.examples.len() < EXAMPLES) {
            // That of the first row whose key can be decoded, if there is any.
            if group.examples.is_empty() {
                group.example_text.clone_from(text);
            }
            group.examples.push(key);
        }
    }
    let in_order = |groups: HashMap<String, ErrorGroup<K>>| {
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.sort_by(|a, b| b.rows.cmp(&a.rows).then_with(|| a.pattern.cmp(&b.pattern)));
        groups
    };
    parts.into_iter().map(|(value, groups)| (value, in_order(groups))).collect()
}
