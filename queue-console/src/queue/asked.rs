//! What commands ask of a queue, and what it answers.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use queue_core::internals::by_name::{Figure, Figures, Operate, Operated, PageOrder, Size, TextColumn};
use queueable::report::{Backlog, By, ErrorReport, Explanations, Ill, Interval, Progress, Statistics};
use queueable::{Error, Explanation, Finding, Migrations};

use super::facts::Facts;
use crate::database::Database;
use crate::filter::{Condition, Value};

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
    /// Whether the rows come the other way round: those before a row, the nearest first.
    pub(crate) backwards: bool,
    /// The time of the row before the first one, and the condition that picks the rows whose keys come after its key in this order.
    pub(crate) after: Option<(Option<String>, Condition)>,
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
    /// Reads some of the rows, and no more than so many characters of a value.
    fn some(&self, connection: &mut C, columns: &[TextColumn], longest: u32, limit: usize) -> Result<Vec<Line>, Error>;
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
    pub(crate) value: Option<(String, Value)>,
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
    /// Counts rows and reads figures over them, from at most so many rows and one.
    #[allow(dead_code, reason = "only a page asks for it")]
    fn figures(&self, connection: &mut C, rows: &Rows, figures: &[Figure], most: i64) -> Result<Figures, Error>;
    /// Counts what was done recently, in minutes; `None` if nobody counts, because then it would read many rows.
    fn recent(&self, connection: &mut C, within: Duration) -> Result<Option<Statistics>, Error>;
    fn why(&self, connection: &mut C, rows: &Rows) -> Result<Explanations, Error>;
    /// Explains the rows that a condition picks: at most one for a key.
    fn explain(&self, connection: &mut C, key: &Condition) -> Result<Option<(String, Explanation)>, Error>;
    fn page(&self, connection: &mut C, rows: &Rows, paging: &Paging) -> Result<Vec<Line>, Error>;
    /// Reads the rows whose failure has a pattern, and the last row at which it has looked, after which there may be more.
    #[allow(dead_code, reason = "only a page asks for it")]
    fn page_of_group(
        &self,
        connection: &mut C,
        rows: &Rows,
        pattern: &str,
        paging: &Paging,
    ) -> Result<(Vec<Line>, Option<Line>), Error>;
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
