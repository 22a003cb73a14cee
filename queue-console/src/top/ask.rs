//! What the screen and the reader say to each other.

use std::time::Duration;

use chrono::{DateTime, Utc};
use queue_core::internals::by_name::{Operate, PageOrder};
use queueable::report::{Backlog, Explanations, PollerProcess};

use crate::queue::{Shape, State};

/// What the screen asks of the reader.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Ask {
    /// Read this from now on.
    Look(Look),
    /// Read now.
    Refresh,
    /// Read all of a row, and explain it.
    Explain(Place),
    /// Count the rows of a change.
    Preview(Change),
    /// Change the rows, if they are still those that were counted.
    Apply(Change, Found),
    Pause {
        queue: usize,
        reason: String,
    },
    Unpause {
        queue: usize,
    },
}

/// What is read again and again.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Look {
    /// All queues, and why the rows of one of them wait.
    Queues {
        chosen: usize,
    },
    Running,
    Errors,
    Rows(Listed),
    Pollers,
}

/// Rows of a queue.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Listed {
    pub(super) queue: usize,
    pub(super) state: Option<State>,
    /// A condition in the language of `--where`.
    pub(super) filter: Option<String>,
    pub(super) order: PageOrder,
}

/// A row of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) queue: usize,
    /// The key for people, as `explain` reads it.
    pub(super) key: String,
}

/// A change of rows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Change {
    pub(super) operate: Operate,
    pub(super) target: Target,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Target {
    Row(Place),
    /// The rows whose errors have this pattern.
    Group {
        queue: usize,
        pattern: String,
    },
}

/// The rows of a change, as they were counted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    pub(super) shape: Shape,
    /// The operation, the number of rows and the sums.
    pub(super) summary: String,
    /// The environment whose name is asked for first.
    pub(super) environment: Option<String>,
}

/// What the reader tells the screen.
#[derive(Debug)]
pub(super) enum News {
    /// It has begun to ask the database, or has an answer.
    Busy(bool),
    Read(Box<Snapshot>),
    /// There is no connection, and the next one is tried after this time.
    Lost {
        why: String,
        pause: Duration,
    },
    /// A row with all its columns; `None` if there is none.
    Explained(Place, Option<Vec<Paragraph>>),
    Counted(Change, Found),
    Progress {
        done: usize,
        of: usize,
    },
    /// A change is done, or there was nothing to do.
    Done(String),
    /// Something was refused. Nothing was changed, unless the text says so.
    Refused(String),
}

/// What was read at a time.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub(super) at: DateTime<Utc>,
    pub(super) environment: Option<String>,
    /// What is known of each queue, in the order of the console's queues.
    pub(super) queues: Option<Vec<Known>>,
    /// The registered processes; the inner `None` if there is no table for them, or it may not be read.
    pub(super) pollers: Option<Option<Vec<PollerProcess>>>,
    pub(super) why: Option<(usize, Result<Explanations, String>)>,
    pub(super) errors: Option<Errors>,
    pub(super) page: Option<(Listed, Result<Page, String>)>,
}

/// What is known of a queue.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) backlog: Result<Backlog, String>,
    /// What was finished in each of the last ten minutes, the oldest first; nothing if nobody counts minutes.
    pub(super) done: Vec<i64>,
}

/// The errors of all queues.
#[derive(Debug, Clone, Default)]
pub(super) struct Errors {
    /// The newest first.
    pub(super) groups: Vec<Group>,
    pub(super) refused: Vec<(usize, String)>,
    /// The rows whose texts were not read.
    pub(super) left_out: i64,
}

#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) queue: usize,
    pub(super) rows: i64,
    pub(super) failed: i64,
    pub(super) last: Option<DateTime<Utc>>,
    pub(super) pattern: String,
    pub(super) example: String,
    pub(super) keys: Vec<String>,
}

/// A page of rows.
#[derive(Debug, Clone, Default)]
pub(super) struct Page {
    /// The names of the columns, and whether they have numbers.
    pub(super) columns: Vec<(String, bool)>,
    pub(super) rows: Vec<PageRow>,
    pub(super) more: bool,
}

#[derive(Debug, Clone)]
pub(super) struct PageRow {
    pub(super) place: Place,
    /// The values, or what stands in their place.
    pub(super) values: Vec<Result<String, &'static str>>,
}

/// A part of a text: a line with a name before it, or without one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Paragraph {
    pub(super) name: String,
    pub(super) text: String,
    /// Whether the text stands in the place of a value.
    pub(super) is_dim: bool,
}

impl Target {
    pub(super) fn queue(&self) -> usize {
        match self {
            Target::Row(place) => place.queue,
            Target::Group { queue, .. } => *queue,
        }
    }
}

impl Paragraph {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Paragraph { name: String::new(), text: text.into(), is_dim: false }
    }

    pub(super) fn named(name: &str, text: impl Into<String>) -> Self {
        Paragraph { name: name.to_owned(), text: text.into(), is_dim: false }
    }
}
