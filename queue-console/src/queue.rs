//! An entity's queue without its type: what every command asks, by the names of columns.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::marker::PhantomData;
use std::rc::Rc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use queue_core::internals::by_name::{
    DeclaredColumn, Figure, Holds, Operate, Operated, PageOrder, Picked, Size, TextColumn, TextPage, TextRow,
    key_names, pause_where, plans, queue_name_of, sizes, unpause_scope,
};
use queue_core::{
    AllFilters, ComparesSchema, EveryRow, Explains, Filtered, LoadsRows, MovesRows, Options, QueueOn, QueueTable,
    StoredIn,
};
use queueable::control::Limits;
use queueable::report::{Backlog, By, ErrorReport, Explanations, Ill, Interval, Progress, Statistics};
use queueable::{Error, Explanation, Finding, Migrations, Pause, QueueRows, Queueable, Status};

use crate::database::Database;
use crate::filter::{Column, Columns, Condition, Filter, ValueOf};

/// What the console knows of a queue without asking the database.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// The name of the struct.
    pub(crate) entity: &'static str,
    /// The table, as people name it.
    pub(crate) table: String,
    /// The queue's name in the control table.
    pub(crate) queue: String,
    /// The columns of the table, those of the domain first, those of the queue after them.
    pub(crate) columns: Columns,
    /// How many of them are of the domain.
    pub(crate) domain: usize,
    /// The columns of the primary key.
    pub(crate) key: Vec<String>,
    /// The columns whose values are never shown.
    pub(crate) secret: Vec<String>,
    pub(crate) options: &'static Options,
    pub(crate) names: queue_core::ColumnNames,
}

/// Which rows a command is about.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rows {
    pub(crate) states: Vec<State>,
    pub(crate) within: Option<Duration>,
    pub(crate) filter: Option<Condition>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Due,
    Scheduled,
    Running,
    Failed,
    Skipped,
    Finished,
}

/// A row as texts, with its key as text.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) key: String,
    /// The texts of the key's columns.
    pub(crate) parts: Vec<Option<String>>,
    pub(crate) time: Option<String>,
    pub(crate) values: Vec<Option<String>>,
}

/// How a page is read.
#[derive(Debug, Clone)]
pub(crate) struct Paging {
    pub(crate) columns: Vec<TextColumn>,
    pub(crate) longest: u32,
    pub(crate) order: PageOrder,
    /// The time and the key of the last row of the page before.
    pub(crate) after: Option<(Option<String>, Condition, Condition)>,
    pub(crate) limit: usize,
}

/// The rows that an operation has picked: their number, the figures over them, and a hash of their keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) count: usize,
    pub(crate) figures: Vec<Option<String>>,
    pub(crate) keys: u64,
}

/// What an operation is about to do.
pub(crate) trait Prepared<C> {
    fn count(&self) -> usize;
    fn figures(&self) -> &[Option<String>];
    /// What tells these rows from others.
    fn shape(&self) -> Shape;
    /// Reads some of the rows.
    fn some(&self, connection: &mut C, columns: &[TextColumn], limit: usize) -> Result<Vec<Line>, Error>;
    /// Works on the rows in batches, until it is told to stop.
    fn work(&self, connection: &mut C, goes_on: &mut dyn FnMut(Progress) -> bool) -> Result<Operated, Error>;
}

/// Who asks for a change, and why.
#[derive(Debug, Clone)]
pub(crate) struct Author {
    pub(crate) by: String,
    pub(crate) reason: String,
    /// Whether the audit's table is there.
    pub(crate) recorded: bool,
}

/// The rows of an operation.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) operate: Operate,
    pub(crate) rows: Rows,
    pub(crate) group: Option<String>,
    pub(crate) figures: Vec<Figure>,
    pub(crate) author: Author,
    pub(crate) batch: u32,
}

/// What a pause or its end is about: the queue, a stage, or a value of a column.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scope {
    pub(crate) stage: Option<&'static str>,
    pub(crate) value: Option<(String, crate::filter::Value)>,
}

/// An entity's queue without its type.
pub(crate) trait Queue<C: Database>: Send + Sync {
    fn facts(&self) -> &Facts;
    fn backlog(&self, connection: &mut C, rows: &Rows) -> Result<Backlog, Error>;
    fn backlog_by(&self, connection: &mut C, rows: &Rows, column: &str) -> Result<By<Backlog>, Error>;
    fn errors(&self, connection: &mut C, rows: &Rows) -> Result<ErrorReport<String>, Error>;
    fn errors_by(&self, connection: &mut C, rows: &Rows, column: &str) -> Result<By<ErrorReport<String>>, Error>;
    fn statistics(&self, connection: &mut C, rows: &Rows, interval: Interval) -> Result<Statistics, Error>;
    fn statistics_by(
        &self,
        connection: &mut C,
        rows: &Rows,
        interval: Interval,
        column: &str,
    ) -> Result<By<Statistics>, Error>;
    fn count(&self, connection: &mut C, rows: &Rows) -> Result<i64, Error>;
    /// Counts what was done recently, in minutes; `None` if nobody counts, because then it would read many rows.
    fn recent(&self, connection: &mut C, within: Duration) -> Result<Option<Statistics>, Error>;
    fn why(&self, connection: &mut C, rows: &Rows) -> Result<Explanations, Error>;
    /// Explains the rows that a condition picks: at most one for a key.
    fn explain(&self, connection: &mut C, key: &Condition) -> Result<Option<(String, Explanation)>, Error>;
    fn page(&self, connection: &mut C, rows: &Rows, paging: &Paging) -> Result<Vec<Line>, Error>;
    fn prepare<'a>(&'a self, connection: &mut C, asked: &'a Asked) -> Result<Box<dyn Prepared<C> + 'a>, Error>;
    fn pause(&self, connection: &mut C, scope: &Scope, end: Ends, author: &Author) -> Result<(), Error>;
    fn unpause(&self, connection: &mut C, scope: &Scope, author: &Author) -> Result<bool, Error>;
    fn limit(&self, connection: &mut C, limits: Limiting, author: &Author) -> Result<(), Error>;
    fn end_limits(&self, connection: &mut C, author: &Author) -> Result<bool, Error>;
    fn check(&self, connection: &mut C) -> Result<Vec<Finding>, Error>;
    fn examine(&self, connection: &mut C) -> Result<Vec<Ill>, Error>;
    /// How the database would find rows, by statement.
    fn plans(&self, connection: &mut C) -> Result<BTreeMap<&'static str, String>, Error>;
    fn sizes(&self, connection: &mut C) -> Result<Vec<Size>, Error>;
    fn migrate(&self, migrations: Migrations<C::Backend>) -> Migrations<C::Backend>;
}

/// When a pause ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ends {
    Never,
    At(DateTime<Utc>),
    After(Duration),
}

/// The limits that a command asks for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limiting {
    pub(crate) workers: Option<usize>,
    pub(crate) at_most: Option<u32>,
    pub(crate) retry_delay: Option<Duration>,
}

type TableOf<Q> = <<Q as queue_core::Entity>::Queue as QueueTable>::Table;
type FilterOf<Q> = Filter<TableOf<Q>>;

/// The queue of an entity.
pub(crate) struct Of<Q> {
    pub(crate) facts: Facts,
    entity: PhantomData<fn() -> Q>,
}

impl<Q: Queueable> Of<Q> {
    pub(crate) fn new<C>(hidden: Vec<String>) -> Result<Self, String>
    where
        C: Database + ComparesSchema<Q>,
        Q: QueueOn<C> + StoredIn<C::Backend>,
    {
        let (options, names) = (&<Q::Queue as QueueTable>::OPTIONS, <Q::Queue as QueueTable>::COLUMNS);
        let queue = queue_name_of::<Q, C::Backend>().map_err(|error| error.to_string())?;
        let (table, _) = queue.rsplit_once('.').unwrap_or((&queue, ""));
        let own = own_columns(options, names);
        let declared = <C as ComparesSchema<Q>>::declared().map_err(|error| error.to_string())?;
        let is_own = |column: &DeclaredColumn| own.iter().any(|own| own.name == column.name);
        let mut columns: Vec<Column> =
            declared.into_iter().filter(|column| !is_own(column)).map(Column::from).collect();
        let domain = columns.len();
        columns.extend(own);
        let columns = Columns { table: table.to_owned(), list: columns };
        let key = key_names::<Q, C::Backend>().map_err(|error| error.to_string())?;
        let all: Vec<&String> = columns.list.iter().map(|column| &column.name).collect();
        for name in &hidden {
            if !all.contains(&name) {
                return Err(format!(
                    "{}: a column that is to be hidden is misspelled: {}",
                    Q::ENTITY,
                    columns.lacks(name)
                ));
            }
            if key.contains(name) {
                return Err(format!("{}: `{name}` is part of the key, which every report shows", Q::ENTITY));
            }
        }
        let is_hidden = |name: &&&String| is_secret(name) && !key.contains(name);
        let secret = all.iter().filter(is_hidden).map(|name| (*name).clone()).chain(hidden).collect();
        let facts = Facts {
            entity: Q::ENTITY,
            table: table.to_owned(),
            queue: queue.clone(),
            columns,
            domain,
            key,
            secret,
            options,
            names,
        };
        Ok(Of { facts, entity: PhantomData })
    }
}

/// The queue's own columns, with what they hold.
fn own_columns(options: &Options, names: queue_core::ColumnNames) -> Vec<Column> {
    let mut columns = vec![
        Column::new(names.status, Holds::Texts, false).of_values(Status::ALL.map(|status| status.to_string())),
        Column::new(names.next_attempt_time, Holds::Instants, true),
        Column::new(names.try_count, Holds::Integers(4), false),
        Column::new(names.last_attempt_time, Holds::Instants, true),
        Column::new(names.last_attempt_error_message, Holds::Texts, true),
    ];
    if let Some(stages) = options.stages {
        columns.push(Column::new(stages.column, Holds::Texts, false).of_values(stages.names.iter().copied()));
    }
    columns.extend(options.priority.map(|name| Column::new(name, Holds::Integers(4), false)));
    columns
}

/// Names that say that the value is nobody's business.
fn is_secret(name: &str) -> bool {
    const WORDS: [&str; 9] =
        ["password", "passwd", "secret", "token", "api_key", "apikey", "private_key", "credential", "cvv"];
    let name = name.to_lowercase();
    WORDS.iter().any(|word| name.contains(word))
}

impl Facts {
    /// The columns of the key.
    pub(crate) fn key_columns(&self) -> Vec<TextColumn> {
        let holds = |name: &String| self.columns.list.iter().find(|column| column.name == *name).map(|of| of.holds);
        let column = |name: &String| TextColumn { name: name.clone(), holds: holds(name).unwrap_or(Holds::Others) };
        self.key.iter().map(column).collect()
    }
}

impl Rows {
    fn restrict<Q: Queueable, F>(&self, mut rows: QueueRows<Q, F>) -> QueueRows<Q, F> {
        for state in &self.states {
            rows = match state {
                State::Due => rows.due(),
                State::Scheduled => rows.scheduled(),
                State::Running => rows.running(),
                State::Failed => rows.failed(),
                State::Skipped => rows.skipped(),
                State::Finished => rows.finished(),
            };
        }
        match self.within {
            Some(time) => rows.attempted_within(time),
            None => rows,
        }
    }
}

/// Asks the rows of an entity, with the filter or without one.
macro_rules! asked {
    ($rows:expr, |$of:ident| $ask:expr) => {
        match &$rows.filter {
            Some(filter) => {
                let $of = $rows.restrict(Q::queue().filter(filter.on(<Q::Queue as QueueTable>::TABLE)));
                $ask
            }
            None => {
                let $of = $rows.restrict(Q::queue());
                $ask
            }
        }
    };
}

impl<C, Q> Queue<C> for Of<Q>
where
    C: Database
        + LoadsRows<Q, AllFilters>
        + MovesRows<Q, EveryRow>
        + MovesRows<Q, Filtered<FilterOf<Q>>>
        + Explains<Q>
        + ComparesSchema<Q>,
    Q: Queueable + QueueOn<C> + StoredIn<C::Backend> + 'static,
{
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn backlog(&self, connection: &mut C, rows: &Rows) -> Result<Backlog, Error> {
        asked!(rows, |of| of.backlog(connection))
    }

    fn backlog_by(&self, connection: &mut C, rows: &Rows, column: &str) -> Result<By<Backlog>, Error> {
        asked!(rows, |of| of.backlog_by_name(connection, column))
    }

    fn errors(&self, connection: &mut C, rows: &Rows) -> Result<ErrorReport<String>, Error> {
        asked!(rows, |of| of.errors(connection)).map(with_texts)
    }

    fn errors_by(&self, connection: &mut C, rows: &Rows, column: &str) -> Result<By<ErrorReport<String>>, Error> {
        asked!(rows, |of| of.errors_by_name(connection, column)).map(by_with_texts)
    }

    fn statistics(&self, connection: &mut C, rows: &Rows, interval: Interval) -> Result<Statistics, Error> {
        asked!(rows, |of| of.statistics(connection, interval))
    }

    fn statistics_by(
        &self,
        connection: &mut C,
        rows: &Rows,
        interval: Interval,
        column: &str,
    ) -> Result<By<Statistics>, Error> {
        asked!(rows, |of| of.statistics_by_name(connection, interval, column))
    }

    fn count(&self, connection: &mut C, rows: &Rows) -> Result<i64, Error> {
        asked!(rows, |of| of.count(connection))
    }

    fn recent(&self, connection: &mut C, within: Duration) -> Result<Option<Statistics>, Error> {
        Q::queue().attempted_within(within).read_counted(connection, Interval::Minute)
    }

    fn why(&self, connection: &mut C, rows: &Rows) -> Result<Explanations, Error> {
        asked!(rows, |of| of.explain(connection))
    }

    fn explain(&self, connection: &mut C, key: &Condition) -> Result<Option<(String, Explanation)>, Error> {
        let rows = Q::queue().filter(key.on(<Q::Queue as QueueTable>::TABLE));
        let keys = &self.facts.key_columns();
        let page = TextPage { keys, columns: &[], longest: 1, order: PageOrder::Key, after: None, limit: 1 };
        let Some(TextRow { key, parts, .. }) = rows.texts(connection, page)?.into_iter().next() else {
            return Ok(None);
        };
        Ok(Some((joined(&parts), Q::explain(connection, &key)?)))
    }

    fn page(&self, connection: &mut C, rows: &Rows, paging: &Paging) -> Result<Vec<Line>, Error> {
        let Paging { columns, longest, order, after, limit } = paging;
        let after = after.as_ref().map(|(time, after, is_key)| {
            let [after, is_key] =
                [after, is_key].map(|condition| Rc::new(condition.on(<Q::Queue as QueueTable>::TABLE)) as Rc<_>);
            (time.clone(), after, is_key)
        });
        let keys = &self.facts.key_columns();
        let page = TextPage { keys, columns, longest: *longest, order: *order, after, limit: *limit };
        let rows = asked!(rows, |of| of.texts(connection, page))?;
        Ok(rows.into_iter().map(Line::from).collect())
    }

    fn prepare<'a>(&'a self, connection: &mut C, asked: &'a Asked) -> Result<Box<dyn Prepared<C> + 'a>, Error> {
        let Asked { operate, rows, group, figures, author, batch } = asked;
        let author = author.recorded.then_some(author);
        match &rows.filter {
            Some(filter) => {
                let of = Q::queue().filter(filter.on(<Q::Queue as QueueTable>::TABLE));
                let rows = authored(rows.restrict(of).batch(*batch), author);
                let picked = rows.pick(connection, operate, group.as_deref(), figures)?;
                Ok(Box::new(Ready { facts: &self.facts, rows, operate, picked }))
            }
            None => {
                let rows = authored(rows.restrict(Q::queue().all_rows()).batch(*batch), author);
                let picked = rows.pick(connection, operate, group.as_deref(), figures)?;
                Ok(Box::new(Ready { facts: &self.facts, rows, operate, picked }))
            }
        }
    }

    fn pause(&self, connection: &mut C, scope: &Scope, end: Ends, author: &Author) -> Result<(), Error> {
        let mut pause = Pause::<Q>::new(&author.reason, &author.by).stage_named(scope.stage);
        match end {
            Ends::Never => {}
            Ends::At(time) => pause = pause.until(time),
            Ends::After(time) => pause = pause.lasting(time),
        }
        match &scope.value {
            Some((column, value)) => pause_where(connection, column, &ValueOf(value), &pause),
            None => Q::pause(connection, pause),
        }
    }

    fn unpause(&self, connection: &mut C, scope: &Scope, author: &Author) -> Result<bool, Error> {
        let value = scope.value.as_ref().map(|(column, value)| (column, ValueOf(value)));
        let value = value.as_ref().map(|(column, value)| (column.as_str(), value as _));
        unpause_scope::<Q, C>(connection, scope.stage, value, (&author.by, &author.reason))
    }

    fn limit(&self, connection: &mut C, limiting: Limiting, author: &Author) -> Result<(), Error> {
        let mut limits = Limits::<Q>::new(&author.reason, &author.by);
        if let Some(workers) = limiting.workers {
            limits = limits.workers(workers);
        }
        if let Some(rows) = limiting.at_most {
            limits = limits.at_most(rows);
        }
        if let Some(delay) = limiting.retry_delay {
            limits = limits.retry_delay(delay);
        }
        Q::set_limits(connection, limits)
    }

    fn end_limits(&self, connection: &mut C, author: &Author) -> Result<bool, Error> {
        Q::end_limits_by(connection, &author.by, &author.reason)
    }

    fn check(&self, connection: &mut C) -> Result<Vec<Finding>, Error> {
        Q::check_schema(connection)
    }

    fn examine(&self, connection: &mut C) -> Result<Vec<Ill>, Error> {
        Q::examine(connection)
    }

    fn plans(&self, connection: &mut C) -> Result<BTreeMap<&'static str, String>, Error> {
        plans::<Q, C>(connection)
    }

    fn sizes(&self, connection: &mut C) -> Result<Vec<Size>, Error> {
        sizes::<Q, C>(connection)
    }

    fn migrate(&self, migrations: Migrations<C::Backend>) -> Migrations<C::Backend> {
        migrations.entity::<Q>()
    }
}

fn authored<Q: Queueable, F>(rows: QueueRows<Q, F>, author: Option<&Author>) -> QueueRows<Q, F> {
    match author {
        Some(author) => rows.by(&author.by, &author.reason),
        None => rows,
    }
}

struct Ready<'a, Q: Queueable, F> {
    facts: &'a Facts,
    rows: QueueRows<Q, F>,
    operate: &'a Operate,
    picked: Picked<Q::Key>,
}

impl<C, Q, F> Prepared<C> for Ready<'_, Q, F>
where
    C: Database + MovesRows<Q, F>,
    Q: Queueable + QueueOn<C>,
    F: queue_core::Selection,
{
    fn count(&self) -> usize {
        self.picked.count()
    }

    fn figures(&self) -> &[Option<String>] {
        &self.picked.figures
    }

    fn shape(&self) -> Shape {
        let mut hasher = DefaultHasher::new();
        self.picked.keys().for_each(|key| format!("{key:?}").hash(&mut hasher));
        Shape { count: self.count(), figures: self.picked.figures.clone(), keys: hasher.finish() }
    }

    fn some(&self, connection: &mut C, columns: &[TextColumn], limit: usize) -> Result<Vec<Line>, Error> {
        let rows = self.rows.texts_of(connection, &self.picked, (&self.facts.key_columns(), columns), 200, limit)?;
        Ok(rows.into_iter().map(Line::from).collect())
    }

    fn work(&self, connection: &mut C, goes_on: &mut dyn FnMut(Progress) -> bool) -> Result<Operated, Error> {
        self.rows.operate(connection, self.operate, &self.picked, goes_on)
    }
}

impl<K: std::fmt::Debug> From<TextRow<K>> for Line {
    fn from(row: TextRow<K>) -> Self {
        Line { key: joined(&row.parts), parts: row.parts, time: row.time, values: row.values }
    }
}

/// The text of a key, as a person writes it: its parts with commas between them, or as a JSON list if that would not be clear.
pub(crate) fn joined(parts: &[Option<String>]) -> String {
    let parts: Vec<&str> = parts.iter().map(|part| part.as_deref().unwrap_or_default()).collect();
    let is_clear = |part: &&str| !part.contains(',') && part.trim() == *part && !part.starts_with('[');
    match *parts {
        [one] => one.to_owned(),
        _ if parts.iter().all(is_clear) => parts.join(","),
        _ => serde_json::json!(parts).to_string(),
    }
}

/// The same of a key that a report gives as a value.
fn text_of(key: &impl std::fmt::Debug) -> String {
    let text = format!("{key:?}");
    match text.strip_prefix('(').and_then(|text| text.strip_suffix(')')) {
        None => bare(&text),
        Some(parts) => joined(&split(parts).iter().map(|part| Some(bare(part))).collect::<Vec<_>>()),
    }
}

/// A value as its debug text has it, without the quotes of a text, and without the name of a type around it.
fn bare(text: &str) -> String {
    if let Ok(text) = serde_json::from_str::<String>(text) {
        return text;
    }
    let inner = text.split_once('(').and_then(|(name, inner)| Some((name, inner.strip_suffix(')')?)));
    match inner.filter(|(name, _)| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_')) {
        Some((_, inner)) => bare(inner),
        None => text.to_owned(),
    }
}

/// The parts of a tuple's debug text.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut quoted, mut depth, mut escaped) = (Vec::new(), 0, false, 0_usize, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if std::mem::take(&mut escaped) => {}
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(text[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[begin..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

fn with_texts<K: std::fmt::Debug>(report: ErrorReport<K>) -> ErrorReport<String> {
    report.map_keys(|key| text_of(&key))
}

fn by_with_texts<K: std::fmt::Debug>(by: By<ErrorReport<K>>) -> By<ErrorReport<String>> {
    by.map(with_texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    #[expect(dead_code, reason = "it is only shown")]
    struct PaymentId(i64);

    #[test]
    fn keys_are_shown_as_people_write_them() {
        assert_eq!(text_of(&42_i64), "42");
        assert_eq!(text_of(&"INV-7".to_owned()), "INV-7");
        assert_eq!(text_of(&PaymentId(42)), "42");
        assert_eq!(text_of(&("north".to_owned(), 2)), "north,2");
        assert_eq!(text_of(&(PaymentId(1), "a, \"b\")".to_owned())), r#"["1","a, \"b\")"]"#);
        assert_eq!(joined(&[Some("north, east".to_owned()), Some("1".to_owned())]), r#"["north, east","1"]"#);
    }
}
