//! What an entity asks for beyond the five columns: kinds of work, more columns, what happens to finished rows.

use std::fmt::Debug;
use std::time::Duration;

use super::lane::{Lane, LaneValues, Lanes};
use super::status::Status;

/// What an entity asks for beyond the five columns. The derive writes it, from the attributes; [`Options::NONE`] asks for
/// nothing, and costs nothing.
///
/// It has many fields because there is one for each attribute.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The order in which due rows are claimed, instead of by their due time.
    pub order: Option<Order>,
    /// The name of the queue's own column `priority`.
    pub priority: Option<&'static str>,
    /// The stages that a row passes through.
    pub stages: Option<Stages>,
    /// The rows' schedules.
    pub periodic: Option<Periodic>,
    /// The domain column by which `enqueue_if_newer` tells old from new.
    pub version: Option<&'static str>,
    /// The columns whose change makes a row due, by any writer.
    pub rerun_on_change: Option<RerunOnChange>,
    /// The times that the queue keeps for statistics.
    pub timestamps: Timestamps,
    /// What happens to a row whose status is `SUCCESS`.
    pub on_success: OnFinish,
    /// What happens to a row whose status is `FAILED`.
    pub on_failure: OnFinish,
    /// For how long finished rows stay before the upkeep removes them.
    pub keep: Keep,
    /// The name of the queue's own column `occasion`, which counts the finished occasions of a row.
    pub occasion: Option<&'static str>,
    /// The name of the queue's own column `traceparent`: the trace context in which a row was enqueued.
    pub traceparent: Option<&'static str>,
    /// When messages may be processed: days, hours and a time zone, as [`Window`](crate::Window) reads them.
    pub window: Option<&'static str>,
    /// Whether at most one message is processed at a time, on all machines together: the first pending one, by `order`
    /// if that is given, then by the primary key. While this row waits for its time (the first one or that of a retry),
    /// is claimed or is locked, no row behind it runs. The queue passes over a row that has failed for good, is stopped
    /// or skipped, or whose condition is false.
    ///
    /// The worker holds a lock of the database that ends with its session, so a killed process leaves nothing to clean
    /// up. The lock is an advisory lock of the transaction on PostgreSQL, a named lock on MySQL and MariaDB, and the
    /// write lock on SQLite. A named lock belongs to one server: on a cluster in which several servers take writes, one
    /// message may run for each. In lease mode the lease is the lock: a worker that is frozen for longer than its lease
    /// may come back while another message is being called. It writes nothing then.
    pub exclusive: bool,
    /// The lanes, if the rows are scheduled by the values of a column of the domain.
    pub lanes: Option<Lanes>,
    /// How many messages of the queue are attempted at the same time, over all processes. `None`: as many as there are
    /// workers.
    pub at_most: Option<u32>,
    /// Whether a condition on the domain's columns keeps rows from being claimed. A due row whose condition is false
    /// stays as it is, and every claim and probe passes over it: a thousand of them cost about a millisecond, a hundred
    /// thousand a tenth of a second on PostgreSQL and SQLite and up to a second on MariaDB. If many rows wait for long,
    /// it is better to make them due when the condition becomes true.
    pub conditional: bool,
    /// Whether the database tells the pollers of every process that a row has become due, instead of leaving it to
    /// their poll interval. PostgreSQL does so, by triggers that `NOTIFY`. On MySQL, MariaDB and SQLite this changes
    /// nothing.
    pub notifies: bool,
    /// Whether reports find the rows that failed or were skipped along an index of their own, by status and by the time of
    /// the last attempt. It leaves out all rows that never failed, so a success writes nothing into it.
    pub report_index: bool,
    /// The column of the domain by which reports are split most often, and what its values are. Where an index has to contain
    /// all rows, those of due times and of reports have this column too.
    pub report_by: Option<(&'static str, LaneValues)>,
}

/// A column of an [`Order`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderColumn {
    /// Its name.
    pub name: &'static str,
    /// Whether higher values come first.
    pub descending: bool,
    /// Whether its values are texts or bytes, which may be too long for an index.
    pub is_long: bool,
}

/// The order in which due rows are claimed: by one column or several, then by their due times. Rows that are not due are
/// left alone, whatever their values.
///
/// On every database null is lower than any value, so it comes first in an ascending order and last in a descending one.
///
/// A row can wait for ever: as long as rows that come before it become due faster than they are processed, no worker
/// claims it. With an age, one claim in eight first looks for rows that have been due for longer than that age, and
/// takes the one that has been due longest. So of a hundred claims about twelve go to rows that have waited too long,
/// and the rest keep the order.
///
/// It costs a second index. A claim passes over the rows that it finds before the first due one and that wait for a
/// later time, for example after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// The columns: the queue's own `priority`, or those of the domain.
    pub columns: &'static [OrderColumn],
    /// How long a row may be due before it no longer waits behind rows that come first by the columns.
    pub age: Option<Duration>,
}

/// The stages that a row passes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stages {
    /// The name of the queue's own column `stage`.
    pub column: &'static str,
    /// The stages' texts, in the order in which a row passes through them.
    pub names: &'static [&'static str],
}

/// The rows' schedules: the names of the queue's own columns for them, and what happens to missed runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Periodic {
    /// The column of the seconds between runs.
    pub period: &'static str,
    /// The column of the cron expression.
    pub cron: &'static str,
    /// The column of the cron expression's IANA time zone; null is UTC.
    pub time_zone: &'static str,
    /// The column of the scheduled time of the run that is due or running.
    pub scheduled_time: &'static str,
    /// What happens to missed runs.
    pub missed: Missed,
}

/// What happens to the runs of a schedule that were missed because no worker was running or a run took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missed {
    /// One run, at once, makes up for all of them.
    Once,
    /// A run that could not begin within this time is left out.
    Skip(Duration),
    /// Each is made up for, one after the other, but no more than this number. Of more, the oldest are left out.
    All(u32),
}

/// The columns whose change makes a row due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RerunOnChange {
    /// The domain's columns.
    pub columns: &'static [&'static str],
    /// The name of the queue's own column `change_count`, which a trigger increments at each change.
    pub change_count: &'static str,
}

/// The names of the queue's own columns for the times that statistics need, by the database's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timestamps {
    /// When the row was inserted, by any writer. Rows that are older than the column have no time.
    pub created: Option<&'static str>,
    /// When the queue last wrote on the row.
    pub updated: Option<&'static str>,
    /// When the last recorded attempt began: when its row was claimed, by the database's clock.
    pub begin: Option<&'static str>,
    /// When the last recorded attempt ended.
    pub end: Option<&'static str>,
}

/// What happens to a row that has reached its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFinish {
    /// It stays.
    Keep,
    /// The queue deletes it. Rows of other tables that refer to it by a foreign key prevent this, or are deleted too if
    /// their key cascades.
    Delete,
    /// The queue moves it to this table, in the schema of the entity's own table: the whole row, except for generated
    /// columns. For the table that it leaves, this is a delete.
    Archive(&'static str),
}

/// For how long rows stay in their table after their last attempt, by their status. The upkeep then moves them to the archive
/// that the entity names for the status, or else deletes them. `None`: no upkeep removes them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Keep {
    /// Rows whose status is `SUCCESS`.
    pub success: Option<Duration>,
    /// Rows whose status is `FAILED`.
    pub failed: Option<Duration>,
    /// Rows whose status is `SKIPPED`.
    pub skipped: Option<Duration>,
}

/// Rows that the upkeep removes: their statuses, for how long they stay, and how they leave.
pub(crate) type Leaving = (&'static [Status], Duration, OnFinish);

impl Options {
    /// Asks for nothing.
    pub const NONE: Options = Options {
        order: None,
        priority: None,
        stages: None,
        periodic: None,
        version: None,
        rerun_on_change: None,
        timestamps: Timestamps { created: None, updated: None, begin: None, end: None },
        occasion: None,
        traceparent: None,
        on_success: OnFinish::Keep,
        on_failure: OnFinish::Keep,
        keep: Keep { success: None, failed: None, skipped: None },
        window: None,
        exclusive: false,
        lanes: None,
        at_most: None,
        conditional: false,
        notifies: false,
        report_index: false,
        report_by: None,
    };

    /// Tells whether no row of this lane passes another one that is not settled for good. Rows without a value have no
    /// order.
    pub(crate) fn keeps_order_in(&self, lane: Option<&Lane>) -> bool {
        self.lanes.is_some_and(|lanes| lanes.strict) && matches!(lane, Some(Lane::Value(_)))
    }

    /// Returns which rows the upkeep removes.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = Leaving> + use<> {
        let archive = |on_finish| if on_finish == OnFinish::Keep { OnFinish::Delete } else { on_finish };
        let Keep { success, failed, skipped } = self.keep;
        let parts: [(&'static [Status], _, _); 3] = [
            (&[Status::Success], success, archive(self.on_success)),
            (&[Status::Failed], failed, archive(self.on_failure)),
            (&[Status::Skipped], skipped, OnFinish::Delete),
        ];
        parts.into_iter().filter_map(|(statuses, kept, leaves)| Some((statuses, kept?, leaves)))
    }

    /// Returns the options as attempts heed them: rows that the upkeep removes stay when their work ends.
    pub(crate) const fn of_attempts(self) -> Self {
        let on_success = if self.keep.success.is_some() { OnFinish::Keep } else { self.on_success };
        let on_failure = if self.keep.failed.is_some() { OnFinish::Keep } else { self.on_failure };
        Options { on_success, on_failure, keep: Options::NONE.keep, ..self }
    }

    /// Returns the options that the migration depends on, as words. A different list is a different migration. The list
    /// of an entity that asks for nothing is empty.
    pub(crate) fn shape(&self) -> Vec<&'static str> {
        let Timestamps { created, updated, begin, end } = self.timestamps;
        let archive = |on_finish| if let OnFinish::Archive(table) = on_finish { Some(table) } else { None };
        let mut words = Vec::new();
        let mut say = |what, name: Option<&'static str>| words.extend(name.into_iter().flat_map(|name| [what, name]));
        say("priority", self.priority);
        for column in self.order.iter().flat_map(|order| order.columns) {
            say(if column.descending { "order by descending" } else { "order by" }, Some(column.name));
        }
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
        say("traceparent", self.traceparent);
        say("successes", archive(self.on_success));
        say("failures", archive(self.on_failure));
        say("exclusive", self.exclusive.then_some("yes"));
        say("lanes", self.lanes.map(|lanes| lanes.column));
        say("serial", self.lanes.and_then(|lanes| lanes.serial.then_some("yes")));
        say("strict", self.lanes.and_then(|lanes| lanes.strict.then_some("yes")));
        say("wake", self.notifies.then_some("notify"));
        say("report index", self.report_index.then_some("yes"));
        say("report by", self.report_by.map(|(column, _)| column));
        // The mark that the triggers contain: a release with another mark has to replace the triggers.
        say("marks", (self.notifies || self.rerun_on_change.is_some()).then_some("queueable:"));
        words
    }

    /// Returns how many texts and bytes are among the columns of the order and the lanes.
    pub(crate) fn long_columns(&self) -> usize {
        let lane = self.lanes.is_some_and(|lanes| lanes.of.kind.is_long());
        let order = self.order.iter().flat_map(|order| order.columns);
        order.filter(|column| column.is_long).count() + usize::from(lane)
    }

    /// Tells whether more than the order of the due rows decides which of them are claimed: lanes, or a limit.
    pub(crate) const fn is_scheduled(&self) -> bool {
        self.lanes.is_some() || self.at_most.is_some()
    }

    /// Returns the limit that the attribute `at_most` sets: of the whole queue, or if it names a column, of each value.
    pub(crate) fn places(&self) -> Option<u32> {
        self.at_most.or(self.lanes.filter(|lanes| !lanes.serial).and_then(|lanes| lanes.at_most))
    }

    /// Tells whether the due time alone decides which row is next.
    pub(crate) const fn due_time_alone_decides(&self) -> bool {
        self.order.is_none() && !self.conditional && !self.exclusive && !self.is_scheduled()
    }

    /// Tells whether a success writes only the five columns and does nothing else to its row.
    pub(crate) const fn ends_plainly(&self) -> bool {
        !self.decides_by_details()
            && matches!(self.of_attempts().on_success, OnFinish::Keep)
            && self.timestamps.updated.is_none()
            && self.timestamps.end.is_none()
            && !self.exclusive
    }

    /// Tells whether what an attempt writes depends on more of its row than a claim reads.
    pub(crate) const fn decides_by_details(&self) -> bool {
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

impl ColumnNames {
    /// Returns the names in the order of the columns.
    pub(crate) const fn all(self) -> [&'static str; 5] {
        let ColumnNames { status, next_attempt_time, try_count, last_attempt_time, last_attempt_error_message } = self;
        [status, next_attempt_time, try_count, last_attempt_time, last_attempt_error_message]
    }
}
