//! The gauges of a poller: what is true now of its queues' tables, and how it is read.

use std::any::TypeId;
use std::collections::HashSet;
use std::time::Duration;

use diesel::result::QueryResult;

use crate::backend::{QueueBackend, QueueConnection, load};
use crate::control::asked_of;
use crate::entity::QueueSql;
use crate::error::Error;
use crate::event::Gauge;
use crate::row::{CountRowType, Pending, PendingRow, PendingRowType, SumRow, SumRowType};
use crate::statement::{Claimable, Condition, FAILED, PENDING, SplitBy, count_by_value, count_pending, sum_by_value};

/// The gauges by name, with what they mean.
pub(crate) const DESCRIPTIONS: &[(&str, &str)] = &[
    (ROWS, "Rows of the queue by state"),
    (OLDEST, "For how long the oldest due row has been due; 0 if none is"),
    (PAUSES, "Pauses of the queue and of its stages that stand now, without those of single values"),
    (ROWS_BY_VALUE, "Rows of the queue by state, for each value of a column"),
    (SUM, "The sum of a column over the due and over the failed rows"),
    (SUM_BY_VALUE, "The same for each value of another column"),
    (WORKERS, "Workers of this poller by state"),
    (AHEAD, "Rows that this process has claimed and no worker has begun"),
];

const ROWS: &str = "queueable_rows";
const OLDEST: &str = "queueable_oldest_due_seconds";
const PAUSES: &str = "queueable_pauses";
const ROWS_BY_VALUE: &str = "queueable_rows_by_value";
const SUM: &str = "queueable_sum";
const SUM_BY_VALUE: &str = "queueable_sum_by_value";
pub(crate) const WORKERS: &str = "queueable_workers";
pub(crate) const AHEAD: &str = "queueable_rows_claimed_ahead";

/// The largest number of values of a column for which there are gauges.
const MOST_VALUES: u32 = 1_000;

/// How many characters of a value become a label.
const LONGEST_LABEL: usize = 128;

/// Which gauges a poller reports, and how often.
#[derive(Default)]
pub(crate) struct Gauges {
    /// `None`: it reports none.
    pub(crate) every: Option<Duration>,
    /// The entity's queue and its name, the column, and for how many of its values.
    pub(crate) by: Vec<(TypeId, &'static str, &'static str, u32)>,
    /// The entity's queue and its name, and the column that is summed.
    pub(crate) sums: Vec<(TypeId, &'static str, &'static str)>,
}

impl Gauges {
    /// Checks what was asked for. `queues`: those that are served.
    pub(crate) fn check(&self, queues: &[TypeId]) -> Result<(), Error> {
        let wrong = |setting, found: String, expected| Err(Error::Setting { setting, found, expected });
        let asked = self.by.iter().map(|(queue, entity, ..)| (queue, entity));
        let mut asked = asked.chain(self.sums.iter().map(|(queue, entity, _)| (queue, entity)));
        if let Some((_, entity)) = asked.find(|(queue, _)| !queues.contains(queue)) {
            return wrong("the gauges of one entity", format!("those of {entity}"), "an entity that the poller serves");
        }
        let is_repeated = |queue| self.by.iter().filter(|(other, ..)| other == queue).count() > 1;
        if let Some((_, entity, ..)) = self.by.iter().find(|(queue, ..)| is_repeated(queue)) {
            return wrong("`gauges_by`", format!("two columns for {entity}"), "one column for each entity");
        }
        if let Some((.., most)) = self.by.iter().find(|(.., most)| !(1..=MOST_VALUES).contains(most)) {
            return wrong("the values of `gauges_by`", most.to_string(), "1 to 1,000");
        }
        match self.every {
            Some(every) if !(Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&every) => {
                wrong("gauges", format!("{every:?}"), "1 second to 1 hour")
            }
            None if self.by.len() + self.sums.len() > 0 => {
                wrong("gauges", "never".to_owned(), "`gauges`, beside `gauges_by` and `gauges_sum`")
            }
            _ => Ok(()),
        }
    }
}

/// The gauges that are shown, with the number of the runner. A gauge stays at its value until another is set.
pub(crate) type Shown = HashSet<(usize, &'static str, Vec<(&'static str, String)>)>;

/// A queue whose gauges are read.
pub(crate) struct Measured<DB: QueueBackend> {
    pub(crate) entity: &'static str,
    /// The queue's name, which tells it from another of an entity with the same name.
    pub(crate) name: String,
    pub(crate) queue: TypeId,
    pub(crate) sql: &'static QueueSql<DB>,
    /// Whether its rows are processed under leases.
    pub(crate) is_leased: bool,
}

/// What was read of a queue's table.
#[derive(Default)]
pub(crate) struct Reading {
    pub(crate) gauges: Vec<Gauge>,
    /// Whether there are more values of a column than gauges.
    pub(crate) is_cut: bool,
}

impl<DB: QueueBackend> Measured<DB> {
    /// Reads the gauges. Failed rows are left out if they would have to be searched for in the whole table.
    pub(crate) fn read<C>(&self, connection: &mut C, gauges: &Gauges) -> QueryResult<Reading>
    where
        C: QueueConnection<Backend = DB>,
    {
        let mut read = Reading::default();
        let by = gauges.by.iter().find(|(queue, ..)| *queue == self.queue);
        let split = by.map(|(.., column, most)| (*column, *most));
        self.read_rows(connection, None, &mut read)?;
        if split.is_some() {
            self.read_rows(connection, split, &mut read)?;
        }
        for (.., summed) in gauges.sums.iter().filter(|(queue, ..)| *queue == self.queue) {
            self.read_sums(connection, summed, None, &mut read)?;
            if split.is_some() {
                self.read_sums(connection, summed, split, &mut read)?;
            }
        }
        let (pauses, _) = asked_of(connection, &self.name)?;
        let pauses = pauses.iter().filter(|pause| pause.value.is_none()).count();
        read.gauges.push(self.gauge(PAUSES, Vec::new(), pauses as f64));
        Ok(read)
    }

    /// Returns the gauges of all entities as they are where this process does not read them.
    pub(crate) fn unknown(&self) -> Reading {
        let states = ["due", "scheduled", "held_back"].into_iter().chain(self.is_leased.then_some("running"));
        let states = states.chain(self.sql.options.report_index.then_some("failed"));
        let rows = states.map(|state| self.gauge(ROWS, labels(None, None, state), f64::NAN));
        let others = [OLDEST, PAUSES].map(|name| self.gauge(name, Vec::new(), f64::NAN));
        Reading { gauges: rows.chain(others).collect(), is_cut: true }
    }

    fn read_rows<C>(&self, connection: &mut C, by: By, read: &mut Reading) -> QueryResult<()>
    where
        C: QueueConnection<Backend = DB>,
    {
        let (name, split, limit) = (if by.is_some() { ROWS_BY_VALUE } else { ROWS }, split_of(by), limit_of(by));
        let pending = count_pending(Condition::new(self.sql, None, &PENDING), split, limit);
        for row in load::<PendingRowType, PendingRow, _>(connection, &pending)? {
            read.is_cut |= by.is_some() && row.6 > i64::from(limit);
            let Pending { value, due, scheduled, running, held_back, oldest_due } = Pending::of(row, self.is_leased);
            let states = [("due", due), ("scheduled", scheduled), ("held_back", held_back)];
            for (state, rows) in states.into_iter().chain(running.map(|running| ("running", running))) {
                read.gauges.push(self.gauge(name, labels(by, value.as_deref(), state), rows as f64));
            }
            if by.is_none() {
                read.gauges.push(self.gauge(OLDEST, Vec::new(), oldest_due.unwrap_or_default().as_secs_f64()));
            }
        }
        if self.sql.options.report_index {
            let failed = count_by_value(Condition::new(self.sql, None, &FAILED), split, limit);
            for (value, rows, values) in load::<CountRowType, _, _>(connection, &failed)? {
                read.is_cut |= by.is_some() && values > i64::from(limit);
                read.gauges.push(self.gauge(name, labels(by, value.as_deref(), "failed"), rows as f64));
            }
        }
        Ok(())
    }

    fn read_sums<C>(&self, connection: &mut C, summed: &str, by: By, read: &mut Reading) -> QueryResult<()>
    where
        C: QueueConnection<Backend = DB>,
    {
        let name = if by.is_some() { SUM_BY_VALUE } else { SUM };
        let failed = self.sql.options.report_index.then_some(("failed", FAILED));
        for (state, states) in [("due", PENDING)].into_iter().chain(failed) {
            let (condition, split) = (Condition::new(self.sql, None, &states), split_of(by));
            let due = (state == "due").then(|| Claimable::new(self.sql, None));
            let sums = sum_by_value(condition, split, (summed, due), limit_of(by));
            for (value, sum) in load::<SumRowType, SumRow, _>(connection, &sums)? {
                // A sum of no rows is null.
                let sum = sum.map_or(Some(0.0), |sum| sum.parse().ok()).unwrap_or(f64::NAN);
                let mut labels = labels(by, value.as_deref(), state);
                labels.push(("of", summed.to_owned()));
                read.gauges.push(self.gauge(name, labels, sum));
            }
        }
        Ok(())
    }

    /// Returns a gauge with the labels of the entity.
    pub(crate) fn gauge(&self, name: &'static str, mut labels: Vec<(&'static str, String)>, value: f64) -> Gauge {
        labels.splice(..0, [("entity", self.entity.to_owned()), ("queue", self.name.clone())]);
        Gauge { name, labels, value }
    }
}

/// The column by whose values a gauge is split, and for how many values.
type By = Option<(&'static str, u32)>;

fn limit_of(by: By) -> u32 {
    by.map_or(1, |(_, most)| most)
}

fn split_of(by: By) -> Option<SplitBy<'static>> {
    by.map(|(column, _)| SplitBy::Column(column))
}

fn labels(by: By, value: Option<&str>, state: &str) -> Vec<(&'static str, String)> {
    let mut labels = vec![("state", state.to_owned())];
    if let Some((column, _)) = by {
        let value = value.unwrap_or("null").chars().take(LONGEST_LABEL).collect();
        labels.extend([("by", column.to_owned()), ("value", value)]);
    }
    labels
}
