//! What a queue counts: the work that is left.

use std::any::TypeId;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use diesel::Column;
use diesel::result::QueryResult;
use serde::{Deserialize, Serialize};

use super::table::{self, By, Heading, Tabular, number, write_table};
use crate::backend::load;
use crate::control::{Limited, Paused, asked_of, name_of};
use crate::entity::{Entity, LeaseMode, QueueTable, name_of_column};
use crate::error::Error;
use crate::queue::queue::{QueueRows, Selection};
use crate::queue::read::ReadsRows;
use crate::row::{CountRow, CountRowType, Options, Pending, PendingRow, PendingRowType, Status};
use crate::statement::{FAILED, PENDING, Split, SplitBy, StateCondition, count_by_value, count_pending, read_lane};

/// The largest number of values that a split report reads, those with most rows first.
const MOST_VALUES: u32 = 10_000;

/// Returns what picks the rows whose failure still needs attention. A `SKIPPED` row had it: an operator or a handler decided to
/// skip it. An index for reports finds the statuses that it names.
pub(crate) fn troubled(options: &Options) -> [StateCondition; 2] {
    use Status::{Error, Failed, InProgress, NotAttempted, Success};
    let statuses = match options.report_index {
        true => StateCondition::Reported(&[NotAttempted, InProgress, Success, Error, Failed]),
        false => StateCondition::NotIn(&[Status::Skipped]),
    };
    [StateCondition::WithFailure, statuses]
}

/// The work that is left, and the rows that the queue gave up.
///
/// ```
/// let json = r#"{"due": 12, "scheduled": 3, "running": 2, "held_back": 0, "failed": 1, "oldest_due": {"secs": 243, "nanos": 0}}"#;
/// let backlog: queueable::report::Backlog = serde_json::from_str(json).unwrap();
/// assert_eq!(backlog.to_string(), "\
/// due  scheduled  running  failed  oldest due
///  12          3        2       1       4m 3s
/// ");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Backlog {
    /// The rows that a worker may claim now. Outside lease mode this includes rows that are being processed: only their
    /// row lock shows this, and locks cannot be counted.
    pub due: i64,
    /// The rows whose time lies in the future, including those that wait for a retry.
    pub scheduled: i64,
    /// The rows that a worker holds under a lease. `None`: the entity does not use lease mode, see `due`.
    pub running: Option<i64>,
    /// The rows whose time has come, but whose condition (`claim_if = ..`) is not true, or whose stage is not one of
    /// the entity's.
    pub held_back: i64,
    /// The rows that are `FAILED` for good.
    pub failed: i64,
    /// How long the oldest due row has been due, by the database's clock; `None` if none is due.
    pub oldest_due: Option<Duration>,
    /// Of the due rows, those behind so many others of their value as may be attempted at the same time (`serial_by`,
    /// `at_most(2, by = company_id)`), for the 10,000 values with most rows. `None`: the entity has no such limit, or the report
    /// is split by another column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind_others: Option<i64>,
    /// Of the other due rows of the selection, those beyond what may be attempted at the same time in the whole queue
    /// (`at_most(10)`, `exclusive`). `None`: the entity has no such limit, or the report is split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_limit: Option<i64>,
    /// Of the due rows, those that a pause keeps from being attempted; of paused values, only those among the 10,000 with most
    /// rows. `None`: nothing is paused, or the report is split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_due: Option<i64>,
    /// The pauses of the queue and of its stages, if there is a control table. A split report has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paused: Vec<Paused>,
    /// The limits of the queue at run time, if there are any. A split report has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limited>,
}

impl Tabular for Backlog {
    const COLUMNS: &'static [Heading] = &[
        number("due"),
        number("scheduled"),
        number("running"),
        number("held back"),
        number("behind others"),
        number("over limit"),
        number("paused"),
        number("failed"),
        number("oldest due"),
    ];

    fn lines(&self) -> Vec<Vec<String>> {
        let some = |rows: Option<i64>| rows.filter(|rows| *rows > 0).map_or_else(String::new, |rows| rows.to_string());
        vec![vec![
            self.due.to_string(),
            self.scheduled.to_string(),
            self.running.map_or_else(String::new, |running| running.to_string()),
            some(Some(self.held_back)),
            some(self.behind_others),
            some(self.over_limit),
            some(self.paused_due),
            self.failed.to_string(),
            self.oldest_due.map_or_else(String::new, table::duration),
        ]]
    }
}

impl fmt::Display for Backlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_table(f, None, Self::COLUMNS, &self.lines())?;
        self.paused.iter().try_for_each(|paused| writeln!(f, "{paused}"))?;
        self.limits.iter().try_for_each(|limits| writeln!(f, "{limits}"))
    }
}

impl<Q: Entity, F: Selection> QueueRows<Q, F> {
    /// Reports the work that is left: how many rows are due, scheduled and running, how many have failed for good, how
    /// long the oldest has been due, and who has [paused](crate::Queueable::pause) the queue.
    ///
    /// All but the failed rows are counted by the queue's index, so the cost does not depend on the number of finished
    /// rows. The failed rows are counted afterwards: along the index of `#[queue(report_index)]`, or else in the whole table. The
    /// two counts are of different moments, unless the caller's transaction makes them one.
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
    /// diesel::insert_into(payments::table)
    ///     .values((payments::company_id.eq(3345), Payment::due_now()))
    ///     .execute(&mut connection)?;
    /// let backlog = Payment::queue().backlog(&mut connection)?;
    /// assert_eq!((backlog.due, backlog.failed), (1, 0));
    /// print!("{}", Payment::queue().backlog_by(&mut connection, payments::company_id)?);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn backlog<C: ReadsRows<Q, F>>(&self, connection: &mut C) -> Result<Backlog, Error> {
        let (pending, failed) = self.read_backlog(connection, None)?;
        let sql = C::condition(self, &[]).queue;
        let (paused, limits) = asked_of(connection.as_queue_connection(), &name_of(sql)?)?;
        // Pollers ignore a limit above that of the attribute.
        let holds = |rows: u32| sql.options.places().is_some_and(|most| rows <= most);
        let limits = limits.filter(|limits| limits.at_most.is_none_or(holds));
        let limit = limits.as_ref().and_then(|limits| limits.at_most).unwrap_or(u32::MAX);
        let mut backlog = backlogs::<Q>(pending, failed).into_values().next().unwrap_or_default();
        let Options { lanes, at_most, exclusive, stages, .. } = *sql.options;
        if let Some((lanes, places)) = lanes.and_then(|lanes| Some((lanes, lanes.at_most?))) {
            let places = if at_most.is_none() { places.min(limit) } else { places };
            let of_lanes = self.read_pending(connection, Some(SplitBy::Column(lanes.column)))?;
            // Rows without a value are in no lane.
            let lanes = backlogs::<Q>(of_lanes, Vec::new()).into_iter().filter(|(value, _)| value.is_some());
            backlog.behind_others = Some(lanes.map(|(_, lane)| lane.beyond(places)).sum());
        }
        if let Some(places) = at_most.map(|most| most.min(limit)).or(exclusive.then_some(1)) {
            let others = Backlog { due: backlog.due - backlog.behind_others.unwrap_or(0), ..backlog.clone() };
            backlog.over_limit = Some(others.beyond(places));
        }
        let mut due_where = |split, is_paused: &dyn Fn(&str) -> bool| -> QueryResult<i64> {
            let by_value = self.read_pending(connection, Some(split))?;
            let is_paused = |value: &Option<String>| value.as_deref().is_some_and(is_paused);
            let paused = backlogs::<Q>(by_value, Vec::new()).into_iter().filter(|(value, _)| is_paused(value));
            Ok(paused.map(|(_, backlog)| backlog.due).sum())
        };
        if paused.iter().any(|paused| paused.stage.is_none() && paused.value.is_none()) {
            backlog.paused_due = Some(backlog.due);
        } else if !paused.is_empty() {
            let mut due = 0;
            if let Some(stages) = stages.filter(|_| paused.iter().any(|paused| paused.stage.is_some())) {
                let is_paused = |stage: &str| paused.iter().any(|paused| paused.stage.as_deref() == Some(stage));
                due += due_where(SplitBy::Column(stages.column), &is_paused)?;
            }
            if let Some(lanes) = lanes.filter(|_| paused.iter().any(|paused| paused.value.is_some())) {
                let is_paused = |value: &str| {
                    let lane = read_lane(sql, Some(value.to_owned()));
                    let name = lane.pause_name().map(|name| format!("{} {name}", lanes.column));
                    paused.iter().any(|paused| paused.lane.is_some() && paused.lane == name)
                };
                due += due_where(SplitBy::Lane, &is_paused)?;
            }
            // A row of a paused stage may be of a paused value too.
            backlog.paused_due = Some(due.min(backlog.due));
        }
        Ok(Backlog { paused, limits, ..backlog })
    }

    /// Reports the same for each value of a domain column, for at most the 10,000 values with most rows. If there are
    /// more, it reports only values whose counts are complete. On MySQL it needs version 8.
    ///
    /// On MySQL and MariaDB it reads each pending row, unless the entity has `#[queue(report_index = ..)]` with this column.
    ///
    /// # Errors
    ///
    /// [`Error::Database`].
    pub fn backlog_by<C, S>(&self, connection: &mut C, column: S) -> Result<By<Backlog>, Error>
    where
        C: ReadsRows<Q, F>,
        S: Column<Table = <Q::Queue as QueueTable>::Table>,
    {
        self.backlog_by_name(connection, name_of_column(column))
    }

    /// Reports the same for each value of a column with this name.
    #[doc(hidden)]
    pub fn backlog_by_name<C: ReadsRows<Q, F>>(&self, connection: &mut C, column: &str) -> Result<By<Backlog>, Error> {
        let (pending, failed) = self.read_backlog(connection, Some(SplitBy::Column(column)))?;
        let (pending, failed, left_out) = of_known(pending, failed);
        let mut backlogs = backlogs::<Q>(pending, failed);
        let lanes = C::condition(self, &[]).queue.options.lanes.filter(|lanes| lanes.column == column);
        if let Some(places) = lanes.and_then(|lanes| lanes.at_most) {
            for (value, backlog) in &mut backlogs {
                backlog.behind_others = Some(if value.is_some() { backlog.beyond(places) } else { 0 });
            }
        }
        Ok(By::new(column, backlogs, left_out))
    }

    fn read_backlog<C: ReadsRows<Q, F>>(
        &self,
        connection: &mut C,
        split: Split<'_>,
    ) -> QueryResult<(Vec<PendingRow>, Vec<CountRow>)> {
        let pending = self.read_pending(connection, split)?;
        let failed = self.states_and(&FAILED);
        let failed = count_by_value(C::condition(self, &failed), split, MOST_VALUES);
        Ok((pending, load::<CountRowType, _, _>(connection.as_queue_connection(), &failed)?))
    }

    fn read_pending<C: ReadsRows<Q, F>>(&self, connection: &mut C, split: Split<'_>) -> QueryResult<Vec<PendingRow>> {
        let pending = self.states_and(&PENDING);
        let pending = count_pending(C::condition(self, &pending), split, MOST_VALUES);
        load::<PendingRowType, _, _>(connection.as_queue_connection(), &pending)
    }
}

impl Backlog {
    /// Returns how many of the due rows are beyond so many places, of which rows under a lease have taken some. Outside lease
    /// mode the rows that are being processed are due themselves.
    fn beyond(&self, places: u32) -> i64 {
        let free = (i64::from(places) - self.running.unwrap_or(0)).max(0);
        (self.due - free).max(0)
    }
}

/// Leaves out the values for which one of the lists may have had no room, and counts them: a value that is only in the
/// other list would seem to have no rows in this one.
fn of_known(mut pending: Vec<PendingRow>, mut failed: Vec<CountRow>) -> (Vec<PendingRow>, Vec<CountRow>, i64) {
    let all_pending = pending.first().map_or(0, |row| row.6);
    let all_failed = failed.first().map_or(0, |row| row.2);
    let is_cut = |all: i64, read: usize| all > read as i64;
    let (cut_pending, cut_failed) = (is_cut(all_pending, pending.len()), is_cut(all_failed, failed.len()));
    if cut_pending {
        let known: HashSet<_> = pending.iter().map(|row| &row.0).collect();
        failed.retain(|row| known.contains(&row.0));
    }
    if cut_failed {
        let known: HashSet<_> = failed.iter().map(|row| &row.0).collect();
        pending.retain(|row| known.contains(&row.0));
    }
    let left_out = (all_pending - pending.len() as i64).max(all_failed - failed.len() as i64);
    (pending, failed, left_out)
}

fn backlogs<Q: Entity>(pending: Vec<PendingRow>, failed: Vec<CountRow>) -> HashMap<Option<String>, Backlog> {
    let under_lease = TypeId::of::<Q::Mode>() == TypeId::of::<LeaseMode>();
    let mut parts = HashMap::<_, Backlog>::new();
    for row in pending {
        let Pending { value, due, scheduled, running, held_back, oldest_due } = Pending::of(row, under_lease);
        parts.insert(value, Backlog { due, scheduled, running, held_back, oldest_due, ..Backlog::default() });
    }
    for (value, failed, _) in failed {
        let running = under_lease.then_some(0);
        parts.entry(value).or_insert_with(|| Backlog { running, ..Backlog::default() }).failed = failed;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(values: &[&str], all: i64) -> Vec<PendingRow> {
        values.iter().map(|value| (Some((*value).to_owned()), 5, 5, 5, 0, None, all)).collect()
    }

    fn failed(values: &[&str], all: i64) -> Vec<CountRow> {
        values.iter().map(|value| (Some((*value).to_owned()), 3, all)).collect()
    }

    #[test]
    fn a_value_that_one_list_has_no_room_for_is_not_told_as_if_it_had_no_rows_there() {
        let held_on_conflict = |pending, failed| {
            let (pending, failed, left_out) = of_known(pending, failed);
            let values = |value: Option<String>| value.expect("there is one");
            let pending: Vec<_> = pending.into_iter().map(|row| values(row.0)).collect();
            (pending.concat(), failed.into_iter().map(|row| values(row.0)).collect::<String>(), left_out)
        };
        let expected = |pending: &str, failed: &str, left_out| (pending.to_owned(), failed.to_owned(), left_out);
        assert_eq!(held_on_conflict(pending(&["a", "b"], 2), failed(&["c"], 1)), expected("ab", "c", 0));
        assert_eq!(held_on_conflict(pending(&["a", "b"], 9), failed(&["a", "c"], 2)), expected("ab", "a", 7));
        assert_eq!(held_on_conflict(pending(&["a", "b"], 2), failed(&["a", "c"], 9)), expected("a", "ac", 7));
        assert_eq!(held_on_conflict(pending(&["a", "b"], 8), failed(&["a", "c"], 9)), expected("a", "a", 8));
        assert_eq!(held_on_conflict(pending(&[], 0), failed(&["a"], 1)), expected("", "a", 0));
    }
}
