//! An entity's queue without its type: what every command asks, by the names of columns.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::rc::Rc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use queue_core::internals::by_name::{
    DeclaredColumn, Figure, Holds, Operate, Operated, PageOrder, Picked, Size, TextColumn, TextPage, TextRow,
    key_names, pause_value, plans, queue_name_of, sizes, unpause_scope,
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

/// What an operation is about to do.
pub(crate) trait Prepared<C> {
    fn count(&self) -> usize;
    fn figures(&self) -> &[Option<String>];
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
    pub(crate) fn new<C>(secret: Vec<String>) -> Result<Self, Error>
    where
        C: Database + ComparesSchema<Q>,
        Q: QueueOn<C> + StoredIn<C::Backend>,
    {
        let (options, names) = (&<Q::Queue as QueueTable>::OPTIONS, <Q::Queue as QueueTable>::COLUMNS);
        let queue = queue_name_of::<Q, C::Backend>()?;
        let (table, _) = queue.rsplit_once('.').unwrap_or((&queue, ""));
        let own = own_columns(options, names);
        let declared = <C as ComparesSchema<Q>>::declared()?;
        let is_own = |column: &DeclaredColumn| own.iter().any(|own| own.name == column.name);
        let mut columns: Vec<Column> =
            declared.into_iter().filter(|column| !is_own(column)).map(Column::from).collect();
        let domain = columns.len();
        columns.extend(own);
        let columns = Columns { table: table.to_owned(), list: columns };
        let key = key_names::<Q, C::Backend>()?;
        let secret = secret
            .into_iter()
            .chain(columns.list.iter().map(|column| column.name.clone()).filter(|name| is_secret(name)))
            .collect();
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
        let page = TextPage { columns: &[], longest: 1, order: PageOrder::Key, after: None, limit: 1 };
        let Some(TextRow { key, .. }) = rows.texts(connection, page)?.into_iter().next() else { return Ok(None) };
        Ok(Some((text_of(&key), Q::explain(connection, &key)?)))
    }

    fn page(&self, connection: &mut C, rows: &Rows, paging: &Paging) -> Result<Vec<Line>, Error> {
        let Paging { columns, longest, order, after, limit } = paging;
        let after = after.as_ref().map(|(time, after, is_key)| {
            let [after, is_key] =
                [after, is_key].map(|condition| Rc::new(condition.on(<Q::Queue as QueueTable>::TABLE)) as Rc<_>);
            (time.clone(), after, is_key)
        });
        let page = TextPage { columns, longest: *longest, order: *order, after, limit: *limit };
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
                Ok(Box::new(Ready { rows, operate, picked }))
            }
            None => {
                let rows = authored(rows.restrict(Q::queue().all_rows()).batch(*batch), author);
                let picked = rows.pick(connection, operate, group.as_deref(), figures)?;
                Ok(Box::new(Ready { rows, operate, picked }))
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
            Some((column, value)) => pause_value(connection, column, &ValueOf(value), &pause),
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
        self.picked.keys.len()
    }

    fn figures(&self) -> &[Option<String>] {
        &self.picked.figures
    }

    fn some(&self, connection: &mut C, columns: &[TextColumn], limit: usize) -> Result<Vec<Line>, Error> {
        let rows = self.rows.texts_of(connection, &self.picked, columns, 200, limit)?;
        Ok(rows.into_iter().map(Line::from).collect())
    }

    fn work(&self, connection: &mut C, goes_on: &mut dyn FnMut(Progress) -> bool) -> Result<Operated, Error> {
        self.rows.operate(connection, self.operate, &self.picked, goes_on)
    }
}

impl<K: std::fmt::Debug> From<TextRow<K>> for Line {
    fn from(row: TextRow<K>) -> Self {
        Line { key: text_of(&row.key), time: row.time, values: row.values }
    }
}

/// The text of a key, as a person writes it: a text without its quotes, the parts of a key without parentheses.
pub(crate) fn text_of(key: &impl std::fmt::Debug) -> String {
    let text = format!("{key:?}");
    if let Ok(text) = serde_json::from_str::<String>(&text) {
        return text;
    }
    let Some(parts) = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')) else { return text };
    match serde_json::from_str::<Vec<serde_json::Value>>(&format!("[{parts}]")) {
        Ok(parts) => {
            let part = |part: &serde_json::Value| part.as_str().map_or_else(|| part.to_string(), str::to_owned);
            parts.iter().map(part).collect::<Vec<_>>().join(",")
        }
        Err(_) => parts.replace(", ", ","),
    }
}

fn with_texts<K: std::fmt::Debug>(report: ErrorReport<K>) -> ErrorReport<String> {
    report.map_keys(|key| text_of(&key))
}

fn by_with_texts<K: std::fmt::Debug>(by: By<ErrorReport<K>>) -> By<ErrorReport<String>> {
    by.map(with_texts)
}
