//! Limits of queues at run time. What they do is in `poller`.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::table::{Nonsense, check_author, expect_control, given, rows, time_of, utc};
use crate::backend::AsQueueConnection;
use crate::error::Error;
use crate::row::{ControlRow, MAX_DELAY, Options, printable};

/// The limits of a queue at run time: who has set them, when and why.
///
/// [`limits`] lists them all.
///
/// ```
/// let json = r#"{"queue": "payments.status", "workers": 2, "since": "2026-03-01T12:00:00Z", "by": "ops@example.org",
///     "reason": "bank is slow"}"#;
/// let limited: queueable::report::Limited = serde_json::from_str(json).unwrap();
/// assert_eq!(limited.to_string(), "2 workers in each process since 2026-03-01 12:00:00 UTC by ops@example.org: bank is slow");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Limited {
    /// The queue's name in the control table.
    pub queue: String,
    /// How many workers of each process work for the queue at the same time; `None` if that is not limited.
    #[serde(default)]
    pub workers: Option<u32>,
    /// How many rows are processed at the same time, see [`Limits::at_most`]; `None` if that is not limited further.
    #[serde(default)]
    pub at_most: Option<u32>,
    /// How long a row waits for a retry; `None` if the entity's policy says so.
    #[serde(default)]
    pub retry_delay: Option<Duration>,
    /// Since when, by the database's clock.
    pub since: DateTime<Utc>,
    /// Who has set them.
    pub by: String,
    /// Why.
    pub reason: String,
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = words(self.workers.map(|workers| workers as usize), self.at_most, self.retry_delay);
        let (by, reason) = (printable(&self.by, false), printable(&self.reason, false));
        write!(f, "{limits} since {} by {by}: {reason}", utc(self.since))
    }
}

/// Returns limits in words.
fn words(workers: Option<usize>, at_most: Option<u32>, retry_delay: Option<Duration>) -> String {
    let workers = workers.map(|workers| match workers {
        1 => "1 worker in each process".to_owned(),
        _ => format!("{workers} workers in each process"),
    });
    let at_most = at_most.map(|rows| format!("at most {rows} at the same time"));
    let retry = retry_delay.map(|delay| format!("retries after {}", humantime::format_duration(delay)));
    workers.into_iter().chain(at_most).chain(retry).collect::<Vec<_>>().join(", ")
}

/// Returns the limits that a row says, if it says any.
pub(super) fn read((queue, scope, _, limits, _): &ControlRow) -> Option<Result<Limited, Nonsense>> {
    let (by, reason, since, workers, at_most, retry_delay) = limits;
    if workers.is_none() && at_most.is_none() && retry_delay.is_none() {
        return None;
    }
    let number = |number: &Option<i64>, problem| match number {
        Some(number) => u32::try_from(*number).ok().filter(|number| *number > 0).map(Some).ok_or(problem),
        None => Ok(None),
    };
    let checked = (|| {
        if !scope.is_empty() {
            return Err("only a whole queue has limits");
        }
        let delay = retry_delay.map(|delay| u64::try_from(delay).map(Duration::from_millis));
        let retry_delay = delay.transpose().ok().filter(|delay| delay.is_none_or(|delay| delay <= MAX_DELAY));
        Ok(Limited {
            queue: queue.clone(),
            workers: number(workers, "its workers are not 1 or more")?,
            at_most: number(at_most, "its at_most is not 1 or more")?,
            retry_delay: retry_delay.ok_or("its retry_delay_ms is not 0 milliseconds to 100 years")?,
            since: time_of(*since).ok_or("its limited_at is not a time")?,
            by: given(by).ok_or("its limited_by is empty")?,
            reason: given(reason).ok_or("its limit_reason is empty")?,
        })
    })();
    Some(checked.map_err(|problem| Nonsense::of(queue, scope, problem)))
}

/// Lists the limits of all queues in the database, in the order of the queues' names. Rows of the control table that are not valid
/// limits are left out; the pollers ignore them too.
///
/// ```
/// # use diesel::prelude::*;
/// # use diesel_migrations::MigrationHarness;
/// # use queueable::control::Limits;
/// # use queueable::{Migrations, Queueable};
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// # let mut connection = SqliteConnection::establish(":memory:")?;
/// # connection.run_pending_migrations(Migrations::new().control())?;
/// Payment::set_limits(&mut connection, Limits::new("bank is slow", "ops@example.org").workers(2))?;
/// for limited in queueable::control::limits(&mut connection)? {
///     println!("{}: {limited}", limited.queue);
/// }
/// # assert_eq!(queueable::control::limits(&mut connection)?.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
///
/// # Errors
///
/// [`Error::Control`] if there is no control table, [`Error::Database`].
pub fn limits<C: AsQueueConnection>(connection: &mut C) -> Result<Vec<Limited>, Error> {
    let connection = connection.as_queue_connection();
    expect_control(connection)?;
    Ok(rows(connection, None)?.iter().filter_map(|row| read(row)?.ok()).collect())
}

/// Limits to ask for, of the queue `Q`: fewer workers, fewer rows at the same time, another delay of retries.
///
/// ```
/// # use std::time::Duration;
/// # use diesel::prelude::*;
/// # use diesel_migrations::MigrationHarness;
/// # use queueable::control::Limits;
/// # use queueable::{Migrations, Queueable};
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] #[queue(at_most(8))] struct Payment { id: i64 }
/// # let mut connection = SqliteConnection::establish(":memory:")?;
/// # connection.run_pending_migrations(Migrations::new().control())?;
/// let limits = Limits::new("bank is slow", "ops@example.org").at_most(2).retry_delay(Duration::from_secs(600));
/// Payment::set_limits(&mut connection, limits)?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[must_use = "they are only asked for by `set_limits` of the entity"]
pub struct Limits<Q> {
    pub(crate) reason: String,
    pub(crate) by: String,
    workers: Option<usize>,
    at_most: Option<u32>,
    retry_delay: Option<Duration>,
    entity: PhantomData<fn() -> Q>,
}

/// The most workers that a limit may allow. More threads than that are no limit.
const MOST_WORKERS: usize = 10_000;

impl<Q> Limits<Q> {
    /// No limits yet. `reason` says why, in up to 1,000 characters; `by` says who asks for it, in up to 255. Reports and logs
    /// show both.
    pub fn new(reason: impl Into<String>, by: impl Into<String>) -> Self {
        let (workers, at_most, retry_delay) = (None, None, None);
        Limits { reason: reason.into(), by: by.into(), workers, at_most, retry_delay, entity: PhantomData }
    }

    /// Lets so many workers of each process work for the queue at the same time, 1 to 10,000. It may be more than the poller's
    /// [share](crate::Poller::workers_for), and is never more than the poller has. Calls that `AsyncCalls` has begun beside the workers
    /// do not count.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Lets so many rows be processed at the same time, over all processes: 1 to as many as the attribute `at_most` allows, which
    /// the entity must have. It is the limit of the whole queue, or if the attribute names a column, of each value.
    pub fn at_most(mut self, rows: u32) -> Self {
        self.at_most = Some(rows);
        self
    }

    /// Lets each row that fails wait so long for its retry, from 0 to 100 years, instead of as long as the entity's policy says.
    /// The policy still says whether there is a retry, and by how much the delay is lengthened at random; a handler's own delay
    /// stays.
    pub fn retry_delay(mut self, delay: Duration) -> Self {
        self.retry_delay = Some(delay);
        self
    }

    /// Returns the workers, the rows at the same time and the milliseconds until a retry, as the control table has them.
    pub(crate) fn numbers(&self) -> [Option<i64>; 3] {
        let workers = self.workers.and_then(|workers| i64::try_from(workers).ok());
        let retry_delay = self.retry_delay.and_then(|delay| i64::try_from(delay.as_millis()).ok());
        [workers, self.at_most.map(i64::from), retry_delay]
    }

    /// Returns what is limited, in words.
    pub(crate) fn words(&self) -> String {
        words(self.workers, self.at_most, self.retry_delay)
    }

    pub(crate) fn check(&self, options: &Options) -> Result<(), Error> {
        let wrong = |setting, found: String, expected| Err(Error::Setting { setting, found, expected });
        check_author(("who asks for limits", &self.by), ("the reason of limits", &self.reason))?;
        if let Some(workers) = self.workers.filter(|workers| !(1..=MOST_WORKERS).contains(workers)) {
            return wrong("the limit of workers", workers.to_string(), "1 to 10,000; `pause` stops them all");
        }
        if let Some(rows) = self.at_most {
            match options.places() {
                None => {
                    return wrong("the limit `at_most`", rows.to_string(), "an entity with the attribute `at_most`");
                }
                Some(most) if !(1..=most).contains(&rows) => {
                    let found = format!("{rows}, where the attribute allows {most}");
                    return wrong("the limit `at_most`", found, "1 to what the attribute allows");
                }
                Some(_) => {}
            }
        }
        if let Some(delay) = self.retry_delay.filter(|delay| *delay > MAX_DELAY) {
            return wrong("the delay of retries", format!("{delay:?}"), "0 to 100 years");
        }
        if self.workers.is_none() && self.at_most.is_none() && self.retry_delay.is_none() {
            return wrong("the limits", "none".to_owned(), "`workers`, `at_most` or `retry_delay`");
        }
        Ok(())
    }
}

impl<Q> fmt::Debug for Limits<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limits { reason, by, workers, at_most, retry_delay, .. } = self;
        f.debug_struct("Limits")
            .field("reason", reason)
            .field("by", by)
            .field("workers", workers)
            .field("at_most", at_most)
            .field("retry_delay", retry_delay)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(scope: &str, workers: i64, at_most: i64, retry_delay: i64) -> ControlRow {
        let text = |text: &str| Some(text.to_owned());
        let limits = (text("ops"), text("bank down"), Some(0), Some(workers), Some(at_most), Some(retry_delay));
        ("payments.status".to_owned(), scope.to_owned(), Default::default(), limits, None)
    }

    #[test]
    fn what_can_be_no_limit_is_nonsense() {
        let limited = read(&row("", 1, 2, 3)).expect("there are some").expect("they are valid");
        assert_eq!((limited.workers, limited.at_most), (Some(1), Some(2)));
        assert_eq!(limited.retry_delay, Some(Duration::from_millis(3)));
        let refused = |row: ControlRow| read(&row).expect("there are some").unwrap_err().problem;
        assert!(refused(row("stage SEND", 1, 1, 1)).contains("only a whole queue"));
        assert!(refused(row("", 0, 1, 1)).contains("its workers are not 1 or more"));
        assert!(refused(row("", 1, -1, 1)).contains("its at_most is not 1 or more"));
        assert!(refused(row("", 1, 1, i64::MAX)).contains("its retry_delay_ms"));
        assert!(refused(row("", 1, 1, -1)).contains("its retry_delay_ms"));
    }
}
