//! One entity and its handler inside a poller, with the types erased: what a worker and the scout ask for.

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

/// One entity in a poller on connections of type `C`.
pub(crate) trait Runner<C: QueueConnection>: Send + Sync {
    /// The entity's name.
    fn entity(&self) -> &'static str;

    /// The type by which enqueuers announce a row of this queue.
    fn queue(&self) -> TypeId;

    /// The queue's name in the records of what is in flight, if this runner keeps any: if a turn holds its transaction, and
    /// so the process's turn to write, while the handler runs.
    fn recorded_as(&self) -> Option<&str> {
        None
    }

    /// Whether one message is worked at a time, wherever: no other worker finds work while a turn is taken.
    fn is_exclusive(&self) -> bool {
        false
    }

    /// How long a handler may hold its transaction.
    fn timeout(&self) -> Duration;

    /// Where the queue lives.
    fn target(&self) -> QueryResult<Target>;

    /// Compares the live table with what the queue needs.
    fn check(&self, connection: &mut C) -> QueryResult<Vec<Finding>>;

    /// Probes how long it is until the next row is due, `thorough`ly if nothing may be overlooked that is due earlier than
    /// what was claimed last.
    fn probe_due(&self, connection: &mut C, thorough: bool) -> QueryResult<Option<Duration>>;

    /// Probes, while workers are at it, whether their claims walk over what was settled long ago.
    fn probe_low_water(&self, _connection: &mut C) -> QueryResult<()> {
        Ok(())
    }

    /// The window in which its messages may be worked, as its attributes say.
    fn window(&self) -> Option<&'static str>;

    /// The channel on which the database tells of its rows that become due, if it does.
    fn channel(&self) -> QueryResult<Option<String>>;

    /// Reads the database's present.
    fn present(&self, connection: &mut C) -> QueryResult<DateTime<Utc>>;

    /// Attempts one message or a group. `claimed` is called once a row is locked, and between the messages of a group, and
    /// says whether to go on.
    fn turn(
        &self,
        holder: &mut SessionHolder<C>,
        slot: &Slot,
        log: &RateLimitedLog,
        claimed: &dyn Fn() -> bool,
    ) -> Turn;

    /// Records that the handler of this row is past its timeout, in place of the worker that it does not return to. A
    /// row of another runner is given back.
    fn give_up(
        &self,
        _holder: &mut SessionHolder<C>,
        _slot: &Slot,
        _log: &RateLimitedLog,
        row: ErasedRow,
    ) -> Result<Turn, ErasedRow> {
        Err(row)
    }

    /// Whether rows were interrupted and wait for their next attempt.
    fn has_interrupted(&self) -> bool;

    /// Whether rows are claimed that no worker has begun.
    fn has_more_claimed(&self) -> bool {
        false
    }

    /// Has claims begin at the low-water mark from the first on.
    fn use_low_water_at_once(&mut self);

    /// Reads rows ahead however slowly messages come.
    fn prefetch_at_once(&mut self) {}

    /// Serves rows in these stages only.
    fn serve_stages(&mut self, stages: Vec<&'static str>);

    /// Has a runner that writes for moments only take turns with the others of the poller, where the database has one writer.
    fn take_turns_with(&mut self, _writer: &Arc<Mutex<()>>) {}

    /// How long the heartbeat may wait at most, where rows are held by leases.
    fn heartbeat_interval(&self) -> Option<Duration> {
        None
    }

    /// Extends the leases of this process. `is_stopping`: rows that no worker has begun are given back.
    fn heartbeat(&self, _holder: &mut SessionHolder<C>, _log: &RateLimitedLog, _is_stopping: bool) {}

    /// Ends the leases of all running handlers, for shutdown.
    fn revoke_leases(&self) {}

    /// Gives back the rows whose leases were ended by shutdown.
    fn give_back_revoked(&self, _holder: &mut SessionHolder<C>, _log: &RateLimitedLog) {}
}

/// A runner on its way into a poller.
#[doc(hidden)]
pub struct BoxedRunner<C: QueueConnection>(pub(crate) Box<dyn Runner<C>>);
