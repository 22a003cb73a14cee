//! An operator's call as a value: first the rows are picked, then it works on those rows in batches, and on no others.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::result::{Error as DieselError, QueryResult};
use diesel::sql_types::{BigInt, Text};
use serde::{Deserialize, Serialize};

use super::change::held_on_conflict;
use super::operation::{self, Effect, Operation};
use super::queue::{QueueRows, Selection};
use super::read::{BackendOf, LoadsRows, MovesRows};
use super::sweep::{Moment, PickedPart, Sweep, Swept, decoded, is_refusal};
use crate::backend::{
    AsQueueConnection, Dialect, ErrorClass, QueueBackend, QueueConnection, SessionSetup, TableName, load,
};
use crate::entity::{Entity, QueueSql, QueueTable};
use crate::error::Error;
use crate::poller::wake;
use crate::row::{OnFinish, failure_text};
use crate::statement::{And, Archive, Condition, Figure, IfAny, WithTexts, read_figures, read_keys};

/// An operation on rows, as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operate {
    /// [`QueueRows::retry_now`].
    RetryNow,
    /// [`QueueRows::postpone_until`].
    PostponeUntil(DateTime<Utc>),
    /// [`QueueRows::stop`].
    Stop,
    /// [`QueueRows::restart`].
    Restart,
    /// [`QueueRows::rerun`].
    Rerun,
    /// [`QueueRows::skip`].
    Skip,
    /// [`QueueRows::delete`].
    Delete,
    /// [`QueueRows::purge`].
    Purge(Duration),
    /// [`QueueRows::archive`].
    Archive,
    /// [`QueueRows::redrive`].
    Redrive,
    /// [`QueueRows::redrive_succeeded`].
    RedriveSucceeded,
    /// [`QueueRows::set_priority`].
    SetPriority(i32),
    /// [`QueueRows::enqueue_existing`].
    EnqueueExisting,
}

impl fmt::Display for Operate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operate::RetryNow => f.write_str("retry_now"),
            Operate::PostponeUntil(time) => write!(f, "postpone_until {time}"),
            Operate::Stop => f.write_str("stop"),
            Operate::Restart => f.write_str("restart"),
            Operate::Rerun => f.write_str("rerun"),
            Operate::Skip => f.write_str("skip"),
            Operate::Delete => f.write_str("delete"),
            Operate::Purge(older_than) => write!(f, "purge {older_than:?}"),
            Operate::Archive => f.write_str("archive"),
            Operate::Redrive => f.write_str("redrive"),
            Operate::RedriveSucceeded => f.write_str("redrive_succeeded"),
            Operate::SetPriority(priority) => write!(f, "set_priority {priority}"),
            Operate::EnqueueExisting => f.write_str("enqueue_existing"),
        }
    }
}

/// The rows on which an operation would work.
#[derive(Debug, Clone)]
pub struct Picked<K> {
    /// The texts of the figures over them; `None` is null, or too large a sum.
    pub figures: Vec<Option<String>>,
    pub(crate) parts: Vec<PickedPart<K>>,
    /// The archive in which they are.
    pub(crate) archive: Option<Archive>,
    /// The pattern of the failures by which they were picked.
    group: Option<String>,
}

impl<K> Picked<K> {
    /// Picks the row with this key, in the table.
    pub fn of(key: K) -> Self {
        let parts = vec![PickedPart { keys: vec![key], texts: None }];
        Picked { figures: Vec::new(), parts, archive: None, group: None }
    }

    /// Returns how many they are.
    pub fn count(&self) -> usize {
        self.parts.iter().map(|part| part.keys.len()).sum()
    }

    /// Returns their keys.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.parts.iter().flat_map(|part| &part.keys)
    }
}

/// The progress of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Progress {
    /// How many rows it has come to so far; a back-fill, how many it has enqueued.
    pub done: usize,
    /// How many rows there were when it began.
    pub total: usize,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.done.saturating_mul(100).checked_div(self.total).map_or(100, |percent| percent.min(100));
        write!(f, "{} of {} rows enqueued ({percent} %)", self.done, self.total)
    }
}

/// What an operation has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Operated {
    /// How many rows it has changed, moved or removed.
    pub rows: usize,
    /// How many rows the database has refused to change or to move.
    pub refused: usize,
    /// Why it has refused the first of them.
    pub refusal: Option<String>,
    /// How many of the picked rows it has come to.
    pub seen: usize,
}

impl Operate {
    pub(super) fn operation<Q: Entity>(&self) -> Operation<Effect> {
        fn with<E>(operation: Operation<E>, effect: impl Fn(E) -> Effect) -> Operation<Effect> {
            Operation(operation.0.into_iter().map(|(states, of)| (states, effect(of))).collect())
        }
        let options = &Q::Queue::OPTIONS;
        match *self {
            Operate::RetryNow => with(operation::retry_now(), Effect::Changes),
            Operate::PostponeUntil(time) => with(operation::postpone_until(time.into()), Effect::Changes),
            Operate::Stop => with(operation::stop(options), Effect::Changes),
            Operate::Restart => with(operation::restart(Q::SETTINGS.lease, options), Effect::Changes),
            Operate::Rerun => with(operation::rerun(options), Effect::Changes),
            Operate::Skip => with(operation::skip(options), Effect::Changes),
            Operate::Delete => with(operation::delete(options), |_| Effect::Removes),
            Operate::Purge(older_than) => with(operation::purge(older_than), |_| Effect::Removes),
            Operate::Archive => with(operation::archive(options), Effect::MovesTo),
            Operate::Redrive => with(operation::redrive(false, options), Effect::MovesBack),
            Operate::RedriveSucceeded => with(operation::redrive(true, options), Effect::MovesBack),
            Operate::SetPriority(priority) => with(operation::set_priority(priority), Effect::Sets),
            Operate::EnqueueExisting => with(operation::enqueue_existing(), Effect::Changes),
        }
    }

    /// Returns the archive in which the rows are; `None` if they are in the table.
    pub(super) fn archive<DB: QueueBackend>(&self, queue: &QueueSql<DB>) -> Result<Option<Archive>, Error> {
        let (on_finish, rows, key) = match self {
            Operate::Redrive => (queue.options.on_failure, "failed", "failed"),
            Operate::RedriveSucceeded => (queue.options.on_success, "succeeded", "success"),
            _ => return Ok(None),
        };
        match on_finish {
            OnFinish::Archive(name) => Archive::of(&TableName::of(queue.table, &DB::default())?, name).map(Some),
            _ => Err(Error::Archive(format!(
                "{} has no archive for rows that have {rows}: name it with #[queue(archive({key} = ..))]",
                queue.entity
            ))),
        }
    }

    /// Refuses what the entity has no attribute for.
    fn check<Q: Entity>(&self, operation: &Operation<Effect>) -> Result<(), Error> {
        let options = &Q::Queue::OPTIONS;
        let lacks = |what: &str, attribute: &str| {
            Err(Error::Archive(format!("{} has no {what}: add #[queue({attribute})] to the entity", Q::ENTITY)))
        };
        match self {
            Operate::SetPriority(_) if options.priority.is_none() => lacks("priority", "priority"),
            Operate::Archive if operation.0.is_empty() => lacks("archive", "archive(success = .., failed = ..)"),
            _ => Ok(()),
        }
    }
}

impl<Q: Entity, F: Selection> QueueRows<Q, F> {
    /// Picks the rows on which an operation would work, with figures over them. With `group`, only those whose failure has this
    /// pattern, and no figures if it has many texts.
    ///
    /// It keeps all keys in memory: some 100 bytes for each row.
    #[doc(hidden)]
    pub fn pick<C: MovesRows<Q, F>>(
        &self,
        connection: &mut C,
        operate: &Operate,
        group: Option<&str>,
        figures: &[Figure],
    ) -> Result<Picked<Q::Key>, Error> {
        let operation = operate.operation::<Q>();
        operate.check::<Q>(&operation)?;
        let kinds = operation.kinds();
        let archive = operate.archive(C::condition(self, &[]).queue)?;
        if archive.is_some() && group.is_some() {
            return Err(Error::Archive(
                "failures are not grouped in an archive: choose its rows by a condition".to_owned(),
            ));
        }
        let figures = &archived(connection, archive.as_ref(), figures, Figure::column)?;
        let (mut parts, mut read_figures) = (Vec::new(), Vec::new());
        let mut read = |connection: &mut C, texts: Option<&[String]>| -> Result<(), Error> {
            let condition = C::condition(self, &self.terms.states).of_kinds(&kinds).within(archive.as_ref());
            let filter = texts.map(|texts| And(IfAny(condition.filter), WithTexts(condition.queue, texts)));
            let filter = filter.as_ref().map(|filter| filter as _).or(condition.filter);
            let condition = Condition { filter, ..condition };
            let keys = decoded(C::load_keys(connection.as_queue_connection(), &read_keys(condition, usize::MAX, 0))?);
            if parts.is_empty() && !figures.is_empty() && !keys.is_empty() {
                read_figures = figures_of(connection.as_queue_connection(), condition, figures)?;
            }
            parts.push(PickedPart { keys, texts: texts.map(<[_]>::to_vec) });
            Ok(())
        };
        match group {
            None => read(connection, None)?,
            Some(group) => self.each_text_of(connection, group, |connection, texts| read(connection, Some(texts)))?,
        }
        // The figures are those of the first part alone.
        let mut read = read_figures.into_iter().filter(|_| parts.len() == 1);
        let figures = figures.iter().map(|figure| figure.as_ref().and_then(|_| read.next().flatten())).collect();
        Ok(Picked { figures, parts, archive, group: group.map(str::to_owned) })
    }

    /// Works on picked rows in batches, and on no others. A row that is no longer of the operation, or that another session has
    /// locked, stays as it is. `goes_on` is asked between two batches.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`] with the number of rows if a batch fails after the first.
    #[doc(hidden)]
    pub fn operate<C: MovesRows<Q, F>>(
        &self,
        connection: &mut C,
        operate: &Operate,
        picked: &Picked<Q::Key>,
        mut goes_on: impl FnMut(Progress) -> bool,
    ) -> Result<Operated, Error> {
        let (total, mut seen) = (picked.count(), 0);
        let swept = self.swept(connection, operate, Some(picked), self.terms.batch, |moment| {
            if let Moment::Done(rows) = moment {
                seen += rows;
                wake::announce::<Q::Queue>();
            }
            goes_on(Progress { done: seen, total })
        })?;
        let refusal = swept.refusal.as_ref().map(|error| failure_text(error, 500));
        Ok(Operated { rows: swept.rows, refused: swept.refused, refusal, seen })
    }

    /// Does the work of an operation in batches: on the rows with these keys, or on all that are of it. `at` is called at each moment;
    /// where rows were picked, it tells whether the sweep goes on.
    pub(super) fn swept<C: LoadsRows<Q, F>>(
        &self,
        connection: &mut C,
        operate: &Operate,
        picked: Option<&Picked<Q::Key>>,
        batch: u32,
        at: impl FnMut(Moment) -> bool,
    ) -> Result<Swept, Error> {
        let operation = operate.operation::<Q>();
        operate.check::<Q>(&operation)?;
        let queue = C::condition(self, &[]).queue;
        let archive = operate.archive(queue)?;
        let live = TableName::of(queue.table, &Default::default())?;
        let is_refusal: Option<fn(&DieselError) -> bool> = match operate {
            // A back-fill stops at the first refusal, so that somebody looks into it.
            Operate::EnqueueExisting if picked.is_none() => None,
            _ => Some(is_refusal),
        };
        let passes_over = BackendOf::<C>::ONE_WRITER
            || held_on_conflict::<C::Connection, _>(connection.as_queue_connection().skips_locked_rows())?;
        let sweep = Sweep {
            action: operate.to_string(),
            operation,
            queue,
            live,
            // A second pass would try rows in vain that the table refuses.
            once: archive.is_some(),
            archive,
            batch,
            is_refusal,
            passes_over,
        };
        let picked_by = picked.and_then(|picked| picked.group.as_ref());
        let picked_by = picked_by.map_or_else(String::new, |pattern| format!("error `{pattern}`"));
        self.sweep(connection, &sweep, picked.map(|picked| (&*picked.parts, &*picked_by)), at)
    }
}

/// Leaves out what an archive has no column for: it may be older than a column of the table.
pub(super) fn archived<C: QueueConnection, T: Clone>(
    connection: &mut impl AsQueueConnection<Connection = C>,
    archive: Option<&Archive>,
    of: &[T],
    column: impl Fn(&T) -> &str,
) -> Result<Vec<Option<T>>, Error> {
    let Some(archive) = archive else { return Ok(of.iter().cloned().map(Some).collect()) };
    let columns = connection.as_queue_connection().copied_columns(archive.table())?;
    let is_there = |of: &&T| columns.iter().any(|there| there.eq_ignore_ascii_case(column(of)));
    Ok(of.iter().map(|of| Some(of).filter(is_there).cloned()).collect())
}

/// Reads the figures over the rows of a condition; none if a sum is too large for the database.
fn figures_of<C: QueueConnection>(
    connection: &mut C,
    condition: Condition<'_, C::Backend>,
    figures: &[Option<Figure>],
) -> Result<Vec<Option<String>>, Error> {
    let figures: Vec<_> = figures.iter().flatten().cloned().collect();
    match load_figures(connection, condition, &figures, None) {
        Err(error) if C::classify(&error) == ErrorClass::Other => Ok(Vec::new()),
        read => Ok(read?.1),
    }
}

/// Counts the rows of a condition, at most so many, and reads the figures over them.
pub(super) fn load_figures<C: QueueConnection>(
    connection: &mut C,
    condition: Condition<'_, C::Backend>,
    figures: &[Figure],
    most: Option<i64>,
) -> QueryResult<(i64, Vec<Option<String>>)> {
    let rows = load::<(Text, BigInt), (String, i64), _>(connection, &read_figures(condition, figures, most))?;
    let (texts, rows) = rows.into_iter().next().unwrap_or_default();
    let lists: Vec<Vec<Option<String>>> = serde_json::from_str(&texts).unwrap_or_default();
    Ok((rows, lists.concat()))
}
