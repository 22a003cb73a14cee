//! The events, as an application gets them.

use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};

/// Something that happened in a poller, see [`Poller::on_event`](crate::Poller::on_event).
///
/// The poller sends each event once, after the database has confirmed it: an attempt whose commit was refused, or whose
/// result is not known, is never [`Succeeded`](Event::Succeeded). If the answer to a COMMIT is lost, and another process
/// brings the row to the same end within a second, both processes send the event of the end.
///
/// Each [`Begun`](Event::Begun) is followed by one of the events that end an attempt: [`Succeeded`](Event::Succeeded),
/// [`Advanced`](Event::Advanced), [`RunsAgain`](Event::RunsAgain), [`Skipped`](Event::Skipped),
/// [`WillRetry`](Event::WillRetry), [`GaveUp`](Event::GaveUp), [`Interrupted`](Event::Interrupted),
/// [`Refused`](Event::Refused) or [`LeaseLost`](Event::LeaseLost). The exceptions are a process that ends, and a shutdown
/// that leaves a handler behind. A row that is settled without its handler, for example because it cannot be decoded, has
/// an end without a beginning.
///
/// It is serialized with its name as `event`, and its fields beside that:
///
/// ```
/// # use diesel::prelude::*;
/// # use diesel::r2d2::{ConnectionManager, Pool};
/// # use queueable::{HandlerResult, Message, Outcome, Poller, Queueable};
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// # fn charge(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
/// # fn poller(pool: Pool<ConnectionManager<SqliteConnection>>) {
/// // {"event":"GaveUp","entity":"Payment","queue":"payments.status","key":"42","try_number":10,"duration":{"secs":0,"nanos":4183000}, ..
/// let poller = Poller::new(pool).serve::<Payment>(charge).on_event(|event| match serde_json::to_string(event) {
///     Ok(line) => println!("{line}"),
///     Err(error) => eprintln!("{error}"),
/// });
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event")]
#[non_exhaustive]
pub enum Event {
    /// The poller has checked the tables, and starts its threads.
    #[non_exhaustive]
    PollerStarted {
        /// The names of the entities that it serves.
        entities: Vec<&'static str>,
        /// The names of their queues, in the same order.
        queues: Vec<String>,
        /// How many messages it handles at the same time.
        workers: usize,
    },
    /// A worker has claimed a row and calls its handler.
    Begun(AttemptEvent),
    /// The row is `SUCCESS`, or was removed as its handler wished.
    Succeeded(AttemptEvent),
    /// The row has gone on to another stage.
    Advanced(AttemptEvent),
    /// The row runs again later without a failure: its handler answered `Again`, or its scheduled run came too late and is
    /// left out.
    RunsAgain(AttemptEvent),
    /// The row is `SKIPPED`.
    Skipped(AttemptEvent),
    /// The attempt has failed, the row is `ERROR`, and it will be retried.
    WillRetry(AttemptEvent),
    /// The row is `FAILED`: its tries are exhausted, or the failure was fatal. The same for the run of a schedule that has
    /// failed for good while the schedule goes on.
    GaveUp(AttemptEvent),
    /// The attempt has ended without a result: a conflict, a lost connection, a shutdown, or a group that was undone and
    /// whose messages run one by one. The row is as it was, and due again.
    Interrupted(AttemptEvent),
    /// The database refuses to write the end of the attempt on its row, because of a constraint or a trigger. The row is
    /// tried again after pauses that grow to an hour.
    Refused(AttemptEvent),
    /// In lease mode: another session has changed, taken over or removed the row, and the attempt has written nothing.
    LeaseLost(AttemptEvent),
    /// A handler is past its timeout, and loses its transaction or its lease. The end of the attempt follows as another
    /// event.
    TimedOut(AttemptEvent),
    /// A handler has not returned after its timeout. The poller has recorded its failure, but the handler still keeps its
    /// thread.
    #[non_exhaustive]
    WorkerStuck {
        /// The attempt whose handler has not returned.
        #[serde(flatten)]
        attempt: AttemptEvent,
        /// How many handlers of this poller are stuck now.
        stuck: usize,
        /// Whether the poller has started another worker in place of this one, see
        /// [`PollerSettings::max_stuck_workers`](crate::PollerSettings::max_stuck_workers).
        is_replaced: bool,
    },
    /// A thread of the poller cannot get a connection, while all had one before. Attempts that were running end as
    /// [`Interrupted`](Event::Interrupted).
    #[non_exhaustive]
    ConnectionLost {
        /// Why, without passwords, and redacted as the logs are.
        error: String,
    },
    /// All threads of the poller have connections again.
    #[non_exhaustive]
    ConnectionRegained {
        /// How long at least one of them had none.
        after: Duration,
    },
    /// No message of a queue can be claimed for a reason that is its table's and no row's: the table, a column or a right is
    /// gone, a column has another type, or another build of the entity has added columns. No row is claimed meanwhile.
    #[non_exhaustive]
    QueueStalled {
        /// The entity's name.
        entity: &'static str,
        /// The queue's name, as in [`AttemptEvent`].
        queue: String,
        /// Why, redacted as the logs are.
        error: String,
    },
    /// The queue goes on.
    #[non_exhaustive]
    QueueResumed {
        /// The entity's name.
        entity: &'static str,
        /// The queue's name, as in [`AttemptEvent`].
        queue: String,
        /// How long it stood still.
        after: Duration,
    },
    /// The listeners were too slow, and the poller dropped events. They happened after the last event and before the next
    /// one.
    #[non_exhaustive]
    EventsDropped {
        /// How many events were dropped.
        events: u64,
    },
    /// The poller has stopped. Nothing comes after this event.
    #[non_exhaustive]
    PollerStopped {
        /// How many attempts were rolled back because the grace period was over.
        rolled_back: usize,
        /// Whether a thread was left behind whose handler, or whose database, does not return.
        has_left_behind: bool,
    },
}

impl Event {
    /// Returns the attempt that the event is about, if it is about one.
    ///
    /// ```
    /// fn is_of_payments(event: &queueable::Event) -> bool {
    ///     event.attempt().is_some_and(|attempt| attempt.entity == "Payment")
    /// }
    /// ```
    pub fn attempt(&self) -> Option<&AttemptEvent> {
        match self {
            Event::Begun(attempt) | Event::TimedOut(attempt) | Event::WorkerStuck { attempt, .. } => Some(attempt),
            event => event.end().map(|(_, attempt)| attempt),
        }
    }

    /// Returns the outcome of the attempt that has ended with this event, as metrics and spans call it, and the attempt.
    pub(super) fn end(&self) -> Option<(&'static str, &AttemptEvent)> {
        Some(match self {
            Event::Succeeded(attempt) => ("succeeded", attempt),
            Event::Advanced(attempt) => ("advanced", attempt),
            Event::RunsAgain(attempt) => ("runs_again", attempt),
            Event::Skipped(attempt) => ("skipped", attempt),
            Event::WillRetry(attempt) => ("will_retry", attempt),
            Event::GaveUp(attempt) => ("gave_up", attempt),
            Event::Interrupted(attempt) => ("interrupted", attempt),
            Event::Refused(attempt) => ("refused", attempt),
            Event::LeaseLost(attempt) => ("lease_lost", attempt),
            Event::Begun(_)
            | Event::TimedOut(_)
            | Event::WorkerStuck { .. }
            | Event::PollerStarted { .. }
            | Event::ConnectionLost { .. }
            | Event::ConnectionRegained { .. }
            | Event::QueueStalled { .. }
            | Event::QueueResumed { .. }
            | Event::EventsDropped { .. }
            | Event::PollerStopped { .. } => return None,
        })
    }
}

/// The attempt that an [`Event`] is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AttemptEvent {
    /// The entity's name.
    pub entity: &'static str,
    /// The queue's name as the tables of the library have it: the table and the status column, with a point between them, and before
    /// them the schema if `table!` names one, such as `payments.status`. Structs of two modules may have the same name, and
    /// their queues have not.
    #[serde(serialize_with = "as_text")]
    pub queue: Arc<str>,
    /// The row's primary key as the logs write it: the database's text, with commas between the parts of a key of several
    /// columns.
    #[serde(serialize_with = "as_text")]
    pub key: Arc<str>,
    /// The text of the stage in which the attempt has begun, if the entity has stages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<&'static str>,
    /// The number of the attempt, from 1.
    pub try_number: u32,
    /// How long the row waited from its due time to the call of its handler, by the database's clock. The poller reads that
    /// clock every ten to twenty seconds and counts on from there, so the time may be off by some milliseconds. `None`: the
    /// handler was not called, the due time is not known (lease mode on SQLite, and on a server without `SKIP LOCKED`),
    /// or the clock could not be read.
    pub waited: Option<Duration>,
    /// How long the attempt took so far, from the call of its handler. At its end this includes the commit. `None`: the
    /// handler was not called.
    pub duration: Option<Duration>,
    /// How long until the next attempt, if the attempt has failed and will be retried.
    pub retry_in: Option<Duration>,
    /// Why the attempt has failed or was interrupted, without passwords, and redacted as the logs are.
    pub error: Option<String>,
}

fn as_text<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

/// Records what a poller measures.
pub(crate) type Meter = fn(&Measure<'_>);

/// What a meter records.
#[allow(dead_code, reason = "only the feature `metrics` reads it")]
pub(crate) enum Measure<'a> {
    /// Something has happened.
    Event(&'a Event),
    /// The heartbeat has come late for so many leases of this entity and queue.
    LateHeartbeats(&'static str, &'a str, u64),
    /// A thread has opened a connection in place of another.
    ReplacedConnection,
    /// So many events were dropped.
    DroppedEvents(u64),
    /// The upkeep has removed so many rows of this status, or failed to.
    Upkeep { entity: &'static str, queue: &'a str, status: &'static str, outcome: &'static str, rows: usize },
    /// What is true now.
    Gauge(Gauge),
    /// What gauges mean, by their names.
    Description(&'a [(&'static str, &'static str)]),
}

/// The value of a gauge.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gauge {
    pub(crate) name: &'static str,
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) value: f64,
}
