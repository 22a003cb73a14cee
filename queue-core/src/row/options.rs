//! What an entity asks for beyond the five columns: kinds of work, further columns, what becomes of finished rows.

use std::fmt::Debug;
use std::time::Duration;

/// What an entity asks for beyond the five columns. The derive writes it, from the attributes; [`Options::NONE`] asks for
/// nothing, and costs nothing.
///
/// It has a field for each attribute, so that the derive names each once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// In which order due rows are claimed, instead of by their due time.
    pub order: Option<Order>,
    /// The name of the queue's own column `priority`.
    pub priority: Option<&'static str>,
    /// The stages that a row passes.
    pub stages: Option<Stages>,
    /// The rows' schedules.
    pub periodic: Option<Periodic>,
    /// The domain column by which `enqueue_if_newer` tells old from new.
    pub version: Option<&'static str>,
    /// The columns whose change makes a row due, whoever changes them.
    pub rerun_on_change: Option<RerunOnChange>,
    /// The times that are kept for statistics.
    pub timestamps: Timestamps,
    /// What becomes of a row whose status is `SUCCESS`.
    pub on_success: OnFinish,
    /// What becomes of a row whose status is `FAILED`.
    pub on_failure: OnFinish,
    /// The name of the queue's own column `occasion`, which counts the occasions of a row that have ended.
    pub occasion: Option<&'static str>,
    /// When messages may be worked: days, hours and a time zone, as [`Window`](crate::Window) reads them.
    pub window: Option<&'static str>,
    /// Whether at most one message is worked at a time, anywhere: the first pending one, by `order` if that is given, then by
    /// the primary key. While it waits for its time, the first or that of a retry, is held or is locked, none of those behind
    /// it runs; one that has failed for good, is stopped or skipped is passed, and so is one whose condition is false.
    ///
    /// Whoever works holds a lock of the database's, which ends with its session: nothing is to be cleaned up after a killed
    /// process. The lock is an advisory lock of the transaction on PostgreSQL, a named lock on MySQL and MariaDB, and the
    /// write lock on SQLite. A named lock is one server's: on a cluster in which several servers take writes there may be one
    /// message for each. In lease mode the lease is what holds: a worker that is frozen for longer than its lease may come
    /// back while another message is called. It writes nothing then.
    pub exclusive: bool,
    /// Whether a condition on the domain's columns keeps rows from being claimed. A due row whose condition is false is left as
    /// it is, and every claim and probe passes it: a thousand of them cost about a millisecond, a hundred thousand a tenth of a
    /// second on PostgreSQL and SQLite and up to a second on MariaDB. Where many wait for long, better make them due when the
    /// condition becomes true.
    pub conditional: bool,
    /// Whether the database tells the pollers of every process when a row has become due, instead of leaving it to their poll
    /// interval: PostgreSQL does, by triggers that `NOTIFY`. On MySQL, MariaDB and SQLite it changes nothing.
    pub notifies: bool,
}

/// The order in which due rows are claimed: by a column, lower first, then by their due times. Rows that are not due are
/// left alone, whatever they bear.
///
/// Null comes first, on every database: give a column that may be null a default if its rows are to come last.
///
/// A row can wait for ever: as long as rows that come before it become due faster than they are worked, it is never
/// claimed. With an age, one claim in eight looks first for the row that is due longest among those that have been due for
/// longer than that. So of a hundred claims about twelve go to rows that have waited too long, and the rest keep the order.
///
/// It costs a second index. Rows that wait for a later time, as after a failure, are passed by each claim that finds them
/// before the first due one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// The column, lower first: the queue's own `priority`, or one of the domain's.
    pub column: &'static str,
    /// After how long a due row no longer waits behind those that come first by the column.
    pub age: Option<Duration>,
}

/// The stages that a row passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stages {
    /// The name of the queue's own column `stage`.
    pub column: &'static str,
    /// The stages' texts, in the order in which a row passes them.
    pub names: &'static [&'static str],
}

/// The rows' schedules: the names of the queue's own columns for them, and what becomes of missed runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Periodic {
    /// The column of the seconds from run to run.
    pub period: &'static str,
    /// The column of the cron expression.
    pub cron: &'static str,
    /// The column of the cron expression's IANA time zone; null is UTC.
    pub time_zone: &'static str,
    /// The column of the scheduled time of the run that is due or running.
    pub scheduled_time: &'static str,
    /// What becomes of missed runs.
    pub missed: Missed,
}

/// What becomes of the runs of a schedule that were missed, while no worker was there or a run took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missed {
    /// They are made up for by one run, at once.
    Once,
    /// A run that could not begin within this time is left out.
    Skip(Duration),
    /// Each is made up for, one after the other, but no more than this number: of more, the oldest are left out.
    All(u32),
}

/// The columns whose change makes a row due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RerunOnChange {
    /// The domain's columns.
    pub columns: &'static [&'static str],
    /// The name of the queue's own column `change_count`, which a trigger counts up at each change.
    pub change_count: &'static str,
}

/// The names of the queue's own columns for the times that statistics need, by the database's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timestamps {
    /// When the row was inserted, by whomever. Rows from before the column have none.
    pub created: Option<&'static str>,
    /// When the queue has written on the row last.
    pub updated: Option<&'static str>,
    /// When the last recorded attempt began: when its row was claimed, by the database's clock.
    pub begin: Option<&'static str>,
    /// When the last recorded attempt ended.
    pub end: Option<&'static str>,
}

/// What becomes of a row that has reached its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFinish {
    /// It stays.
    Keep,
    /// It is removed. Rows of other tables that refer to it by a foreign key keep it from that, or go with it if their key
    /// cascades.
    Delete,
    /// It moves to this table, in the schema of the entity's own: whole, except for columns that are computed. For the
    /// table that it leaves, this is a removal.
    Archive(&'static str),
}

impl Options {
    /// Nothing is asked for.
    pub const NONE: Options = Options {
        order: None,
        priority: None,
        stages: None,
        periodic: None,
        version: None,
        rerun_on_change: None,
        timestamps: Timestamps { created: None, updated: None, begin: None, end: None },
        occasion: None,
        on_success: OnFinish::Keep,
        on_failure: OnFinish::Keep,
        window: None,
        exclusive: false,
        conditional: false,
        notifies: false,
    };

    /// Claims due rows in the order of a column.
    pub const fn order(self, column: &'static str, age: Option<Duration>) -> Self {
        Options { order: Some(Order { column, age }), ..self }
    }

    /// Adds the column `priority`.
    pub const fn priority(self, column: &'static str) -> Self {
        Options { priority: Some(column), ..self }
    }

    /// Adds the column `stage`.
    pub const fn stages(self, column: &'static str, names: &'static [&'static str]) -> Self {
        Options { stages: Some(Stages { column, names }), ..self }
    }

    /// Adds the columns of schedules.
    pub const fn periodic(self, periodic: Periodic) -> Self {
        Options { periodic: Some(periodic), ..self }
    }

    /// Names the column that tells old from new.
    pub const fn version(self, column: &'static str) -> Self {
        Options { version: Some(column), ..self }
    }

    /// Makes rows due when one of these columns changes.
    pub const fn rerun_on_change(self, columns: &'static [&'static str], change_count: &'static str) -> Self {
        Options { rerun_on_change: Some(RerunOnChange { columns, change_count }), ..self }
    }

    /// Adds columns for statistics.
    pub const fn timestamps(self, timestamps: Timestamps) -> Self {
        Options { timestamps, ..self }
    }

    /// Adds the column `occasion`.
    pub const fn occasion(self, column: &'static str) -> Self {
        Options { occasion: Some(column), ..self }
    }

    /// Says what becomes of rows that succeed.
    pub const fn on_success(self, on_success: OnFinish) -> Self {
        Options { on_success, ..self }
    }

    /// Says what becomes of rows that fail for good.
    pub const fn on_failure(self, on_failure: OnFinish) -> Self {
        Options { on_failure, ..self }
    }

    /// Says when messages may be worked.
    pub const fn window(self, window: &'static str) -> Self {
        Options { window: Some(window), ..self }
    }

    /// Has at most one message worked at a time.
    pub const fn exclusive(self) -> Self {
        Options { exclusive: true, ..self }
    }

    /// Says that a condition keeps rows from being claimed.
    pub const fn conditional(self) -> Self {
        Options { conditional: true, ..self }
    }

    /// Has the database tell pollers of rows that become due.
    pub const fn notify(self) -> Self {
        Options { notifies: true, ..self }
    }

    /// What the migration makes of the options, as words: another list is another migration, and an empty one is that of an
    /// entity that asks for nothing.
    pub(crate) fn shape(&self) -> Vec<&'static str> {
        let Timestamps { created, updated, begin, end } = self.timestamps;
        let archive = |on_finish| if let OnFinish::Archive(table) = on_finish { Some(table) } else { None };
        let mut words = Vec::new();
        let mut say = |what, name: Option<&'static str>| words.extend(name.into_iter().flat_map(|name| [what, name]));
        say("priority", self.priority);
        say("order by", self.order.map(|order| order.column));
        say("stage", self.stages.map(|stages| stages.column));
        say("period", self.periodic.map(|periodic| periodic.period));
        say("cron", self.periodic.map(|periodic| periodic.cron));
        say("time zone", self.periodic.map(|periodic| periodic.time_zone));
        say("scheduled", self.periodic.map(|periodic| periodic.scheduled_time));
        say("changes", self.rerun_on_change.map(|rerun| rerun.change_count));
        self.rerun_on_change.iter().flat_map(|rerun| rerun.columns).for_each(|column| say("of", Some(column)));
        say("created", created);
        say("updated", updated);
        say("begin", begin);
        say("end", end);
        say("occasion", self.occasion);
        say("successes", archive(self.on_success));
        say("failures", archive(self.on_failure));
        say("exclusive", self.exclusive.then_some("yes"));
        say("wake", self.notifies.then_some("notify"));
        // What the triggers know of the marks: a trigger of another time is replaced.
        say("marks", (self.notifies || self.rerun_on_change.is_some()).then_some("queueable:"));
        words
    }

    /// Whether a success writes the five columns and nothing else, and nothing happens to its row besides.
    pub(crate) const fn ends_plainly(&self) -> bool {
        !self.needs_details()
            && matches!(self.on_success, OnFinish::Keep)
            && self.timestamps.updated.is_none()
            && self.timestamps.end.is_none()
            && !self.exclusive
    }

    /// Whether an attempt has to know more of its row than a claim reads.
    pub(crate) const fn needs_details(&self) -> bool {
        self.stages.is_some()
            || self.periodic.is_some()
            || self.rerun_on_change.is_some()
            || self.timestamps.begin.is_some()
    }
}

/// The names of the queue's columns on one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ColumnNames {
    /// The column of the [`Status`](crate::Status).
    pub status: &'static str,
    /// The column that alone decides whether a row is pending: null means that it is not to be processed.
    pub next_attempt_time: &'static str,
    /// The column that counts the recorded attempts.
    pub try_count: &'static str,
    /// The column of the last attempt's end.
    pub last_attempt_time: &'static str,
    /// The column of the last failure's text.
    pub last_attempt_error_message: &'static str,
}
