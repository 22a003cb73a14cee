//! One entity and its handler inside a poller, with the types erased: what a worker, the scout and the heartbeat ask for.

use std::any::TypeId;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::result::QueryResult;

use super::slot::{ErasedRow, Slot};
use super::turn::Turn;
use crate::backend::{QueueConnection, SessionHolder, Target};
use crate::error::Finding;
use crate::log::RateLimitedLog;
use crate::row::FailureTexts;

/// One entity in a poller on connections of type `C`, as its workers use it.
pub(crate) trait Runner<C: QueueConnection>: Send + Sync {
    /// What is known of it from the start.
    fn info(&self) -> &RunnerInfo;

    /// What it asks the database about its queue.
    fn probes(&self) -> &dyn QueueProbes<C>;

    /// The leases that it holds, in lease mode.
    fn leases(&self) -> Option<&dyn HeldLeases<C>> {
        None
    }

    /// Attempts one message or a group, or several messages one after the other for as long as the worker takes the next.
    fn turn(&self, holder: &mut SessionHolder<C>, slot: &Slot, worker: &dyn WorkerCalls) -> Turn;

    /// Records that the handler of this row is past its timeout, in place of the worker that it does not return to. A
    /// row of another runner is given back.
    fn give_up(&self, holder: &mut SessionHolder<C>, slot: &Slot, row: ErasedRow) -> Result<Turn, ErasedRow>;

    /// Whether rows were interrupted and wait for their next attempt.
    fn has_interrupted(&self) -> bool;

    /// Whether rows are claimed that no worker has begun.
    fn has_more_claimed(&self) -> bool {
        false
    }

    /// Serves rows in these stages only.
    fn serve_stages(&mut self, stages: Vec<&'static str>);

    /// Has a runner that writes for moments only take turns with the others of the poller, where the database has one writer.
    fn take_turns_with(&mut self, _writer: &Arc<Mutex<()>>) {}
}

/// What is known of a runner from the start.
pub(crate) struct RunnerInfo {
    /// The entity's name.
    pub(crate) entity: &'static str,
    /// The type by which enqueuers announce a row of this queue.
    pub(crate) queue: TypeId,
    /// What stands before the primary key in an idempotency key: the queue's name in the records of what is in flight.
    pub(crate) key_prefix: String,
    /// Whether it keeps such records: a turn holds its transaction, and so the process's turn to write, while the handler runs.
    pub(crate) is_recorded: bool,
    /// Whether one message is worked at a time, wherever: no other worker finds work while a turn is taken.
    pub(crate) is_exclusive: bool,
    /// How long a handler may hold its transaction.
    pub(crate) timeout: Duration,
    /// The window in which its messages may be worked, as its attributes say.
    pub(crate) window: Option<&'static str>,
    /// How long the heartbeat may wait at most, where rows are held by leases.
    pub(crate) heartbeat_interval: Option<Duration>,
}

impl RunnerInfo {
    /// The queue's name in the records of what is in flight, if this runner keeps any.
    pub(crate) fn recorded_as(&self) -> Option<&str> {
        self.is_recorded.then_some(&self.key_prefix)
    }
}

/// What the scout, and the checks at start, ask the database about a runner's queue.
pub(crate) trait QueueProbes<C: QueueConnection> {
    /// Where the queue lives.
    fn target(&self) -> QueryResult<Target>;

    /// Compares the live table with what the queue needs.
    fn check(&self, connection: &mut C) -> QueryResult<Vec<Finding>>;

    /// The channel on which the database tells of its rows that become due, if it does.
    fn channel(&self) -> QueryResult<Option<String>>;

    /// Reads the database's present.
    fn present(&self, connection: &mut C) -> QueryResult<DateTime<Utc>>;

    /// Probes how long it is until the next row is due, `thorough`ly if nothing may be overlooked that is due earlier than
    /// what was claimed last.
    fn probe_due(&self, connection: &mut C, thorough: bool) -> QueryResult<Option<Duration>>;

    /// Probes, while workers are at it, whether their claims walk over what was settled long ago.
    fn probe_low_water(&self, connection: &mut C) -> QueryResult<()>;
}

/// The rows that a runner holds by leases, as the heartbeat and a shutdown see them.
pub(crate) trait HeldLeases<C: QueueConnection> {
    /// Extends the leases of this process. `is_stopping`: rows that no worker has begun are given back.
    fn heartbeat(&self, holder: &mut SessionHolder<C>, is_stopping: bool);

    /// Ends the leases of all running handlers, for shutdown.
    fn revoke(&self);

    /// Gives back the rows whose leases were ended by shutdown.
    fn give_back_revoked(&self, holder: &mut SessionHolder<C>);
}

/// The worker, as a turn sees it.
pub(crate) trait WorkerCalls {
    /// A row is locked: there may be work for others too.
    fn has_claimed(&self);

    /// Whether what was claimed is to be worked: the poller goes on, and the window is open.
    fn goes_on(&self) -> bool;

    /// Counts a message whose turn has ended well, and says whether the worker works the next one, which is locked already,
    /// in the same turn.
    fn takes_next(&self, ended: Turn) -> bool;
}

/// What a runner takes from its poller's settings.
pub(crate) struct RunnerSettings {
    pub(crate) texts: FailureTexts,
    /// Whether claims begin at the low-water mark from the first on.
    pub(crate) low_water_at_once: bool,
    /// Whether rows are read ahead however slowly messages come.
    pub(crate) prefetch_at_once: bool,
}

impl RunnerSettings {
    /// The log of one runner: as long as each logs by itself, no entity's warnings keep back another's.
    pub(crate) fn log(&self) -> RateLimitedLog {
        RateLimitedLog::new(self.texts.redact.clone())
    }
}

/// A runner on its way into a poller.
#[doc(hidden)]
pub struct BoxedRunner<C: QueueConnection>(pub(crate) Box<dyn Runner<C>>);
