//! One entity and its handler inside a poller, with the types erased: the calls that a worker, the scout and the
//! heartbeat make.

use std::any::TypeId;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use diesel::result::QueryResult;

use super::ended::Turn;
use super::in_flight::InFlight;
use super::slot::{ErasedRow, Slot};
use crate::backend::{QueueConnection, SessionHolder, Target};
use crate::claim::ClaimStyle;
use crate::entity::{IsKey, QueueSql};
use crate::error::{Error, Finding};
use crate::event::Events;
use crate::row::{FailureTexts, Leaving};
use crate::statement::{ErasedKey, NextRows};
use crate::sync::TurnToWrite;

/// One entity in a poller on connections of type `C`, as its workers use it.
pub(crate) trait Runner<C: QueueConnection>: Send + Sync {
    /// Returns the queue that it serves.
    fn served(&self) -> &dyn AnyQueue<C>;

    /// Returns what is known of the runner from the start.
    fn info(&self) -> &RunnerInfo {
        self.served().info()
    }

    /// Compares the live table with what the queue needs.
    fn check(&self, connection: &mut C) -> QueryResult<Vec<Finding>>;

    /// Returns its calls that run beside the workers, if there are any.
    fn calls(&self) -> Option<&dyn BackgroundCalls> {
        None
    }

    /// Attempts one message or a group. It goes on with the next message as long as the worker agrees.
    fn turn(&self, worker: &mut WorkerTurn<'_, '_, C>) -> Turn;

    /// Records that the handler of this row, which the runner has put into the slot, is past its timeout. It does so in
    /// place of the worker, because the handler does not return.
    fn give_up(&self, holder: &mut SessionHolder<C>, slot: &Slot, row: ErasedRow) -> Turn;

    /// Removes the crash mark of this row, because a shutdown does not wait for its handler.
    fn unmark(&self, _connection: &mut C, _slot: &Slot, _row: ErasedRow) {}

    /// Leaves this row to other workers, with all that its worker has in hand, because the database does not answer the
    /// worker.
    fn put_back(&self, row: ErasedRow);

    /// Returns how many rows are claimed that no worker has begun.
    fn claimed_ahead(&self) -> usize {
        0
    }

    /// Extends the leases of this process, in lease mode. `is_stopping`: it also gives back rows that no worker has begun.
    fn heartbeat(&self, _holder: &mut SessionHolder<C>, _is_stopping: bool) {}

    /// Ends the leases of all running handlers, for shutdown. Returns how many calls beside the workers lose theirs.
    fn revoke(&self) -> usize {
        0
    }

    /// Gives back the rows whose leases a shutdown has ended.
    fn give_back_revoked(&self, _holder: &mut SessionHolder<C>) {}
}

/// The facts about a runner that are known from the start.
pub(crate) struct RunnerInfo {
    /// The entity's name.
    pub(crate) entity: &'static str,
    /// The type by which enqueuers announce a row of this queue.
    pub(crate) queue: TypeId,
    /// The mode and the times by which it works, for the log.
    pub(crate) way: String,
    /// Returns its settings by their names.
    pub(crate) settings: Box<dyn Fn() -> BTreeMap<String, String> + Send + Sync>,
    /// The beginning of an idempotency key, before the primary key, and the queue's name.
    pub(crate) key_prefix: String,
    /// Whether it counts crashes: a turn holds its transaction, and therefore the process's turn to write, while the
    /// handler runs.
    pub(crate) counts_crashes: bool,
    /// How long a handler may hold its transaction.
    pub(crate) timeout: Duration,
    /// Where the queue's columns and index are, and its options.
    pub(crate) target: Target,
    /// The longest wait of the heartbeat, if rows are held by leases.
    pub(crate) heartbeat_interval: Option<Duration>,
}

/// A queue in a poller without the type of its keys: what the scout, and the checks at the start, ask.
pub(crate) trait AnyQueue<C: QueueConnection> {
    /// Returns what is known of the runner from the start.
    fn info(&self) -> &RunnerInfo;

    /// Returns why the queue stands still, if it does.
    fn stalled(&self) -> Option<String>;

    /// Returns the queue as its statements know it.
    fn sql(&self) -> &'static QueueSql<C::Backend>;

    /// Notes what the scout's probe has found: in how long the next row is due.
    fn note_probe(&self, probed: Result<Option<Duration>, &Error>);

    /// Looks for a change of the table that no row shows: of the queue's columns, or of the rights on them.
    fn altered_columns(&self, connection: &mut C) -> QueryResult<Option<Finding>>;

    /// Notes that there is such a change, or that there is none. Returns whether the queue stands still for it.
    fn note_columns(&self, altered: Option<Finding>) -> bool;

    /// Reads the database's current time.
    fn present(&self, connection: &mut C) -> QueryResult<DateTime<Utc>>;

    /// Probes how long it is until the next row is due. A `thorough` probe also finds a row that is due earlier than
    /// the last claimed one.
    fn probe_due(&self, connection: &mut C, thorough: bool) -> QueryResult<Option<Duration>>;

    /// Reads how long the oldest due row has been due. `None`: no row is due.
    fn oldest_due(&self, connection: &mut C) -> QueryResult<Option<Duration>>;

    /// Probes, while the workers are busy, whether their claims walk over rows that were settled long ago.
    fn probe_low_water(&self, connection: &mut C) -> QueryResult<()>;

    /// Tells whether rows were interrupted and wait for their next attempt.
    fn has_interrupted(&self) -> bool;

    /// Looks at up to so many rows after a key, and finds up to `most` that have expired.
    fn next_rows(
        &self,
        connection: &mut C,
        after: Option<&ErasedKey>,
        limits: (usize, usize),
    ) -> QueryResult<NextRows<C::Backend>>;

    /// Removes those of some rows that still have expired, in a transaction. Returns how many.
    fn remove_expired(&self, connection: &mut C, keys: &[IsKey<C::Backend>], leaving: Leaving) -> QueryResult<usize>;

    /// Sets how many rows are processed at the same time, and how long a row waits for its retry, in place of what the entity says.
    fn set_limits(&self, at_most: Option<u32>, retry_delay: Option<Duration>);

    /// Claims no more rows in these stages and lanes, which are paused, and all others that are served. Returns whether any stage is
    /// left; if none is, nothing changes in the stages.
    fn leave_out(&self, stages: &[String], lanes: HashSet<String>) -> bool;
}

/// The calls of a runner that run beside the workers.
pub(crate) trait BackgroundCalls {
    /// Returns their counts.
    fn counts(&self) -> &Arc<InFlight>;

    /// Tells whether calls make progress while the calling thread waits. It waits so long for a sign of that.
    fn respond_within(&self, patience: Duration) -> bool;

    /// Returns when the time of the next call is over.
    fn next_deadline(&self) -> Option<Instant>;

    /// Aborts the calls whose leases have ended, so that a worker settles their rows. Returns how many are past their
    /// timeout.
    fn abort_ended(&self) -> usize;
}

/// A worker in its turn.
pub(crate) struct WorkerTurn<'a, 'c, C: QueueConnection> {
    pub(crate) holder: &'a mut SessionHolder<'c, C>,
    pub(crate) slot: &'a Slot,
    pub(crate) calls: &'a dyn WorkerCalls,
    /// Whether the worker's next turn is most likely for the same runner as this one.
    pub(crate) stays: bool,
}

/// What a turn asks of its worker, and tells it.
pub(crate) trait WorkerCalls {
    /// Notes that a row is locked: there may be work for others too.
    fn note_claim(&self);

    /// Tells whether rows may be due, as far as the poller knows.
    fn may_find_rows(&self) -> bool;

    /// Notes that a row was settled that others may have waited for.
    fn note_freed_others(&self);

    /// Tells whether the worker should process the claimed rows: the poller is running, the window is open, and no pause
    /// has begun or ended since the turn began.
    fn goes_on(&self) -> bool;

    /// Stops the poller, because nothing can be processed any more for this reason.
    fn stop(&self, why: &str);

    /// Counts a message whose turn has ended well. Returns whether the worker takes the next one, which is locked
    /// already, in the same turn.
    fn try_take_next(&self, ended: Turn) -> bool;
}

/// What a runner takes from its poller.
#[doc(hidden)]
#[derive(Clone)]
pub struct RunnerSettings {
    pub(crate) texts: FailureTexts,
    /// The stages in which rows are served, if not all.
    pub(crate) stages: Option<Vec<&'static str>>,
    /// Lease mode: how many rows one claim takes at most.
    pub(crate) claim_batch: Option<u32>,
    /// Lease mode: how rows are claimed.
    pub(crate) claim_style: ClaimStyle,
    /// Whether claims begin at the low-water mark from the first on.
    pub(crate) low_water_at_once: bool,
    /// Whether rows are prefetched however slowly messages come.
    pub(crate) prefetch_at_once: bool,
    /// The listeners that hear what becomes of the rows.
    pub(crate) events: Events,
    /// The process's turn to write, if the database has one writer.
    pub(crate) writer: Arc<TurnToWrite>,
}

/// A runner to be added to a poller.
#[doc(hidden)]
pub struct BoxedRunner<'h, C: QueueConnection>(pub(crate) Box<dyn Runner<C> + 'h>);
