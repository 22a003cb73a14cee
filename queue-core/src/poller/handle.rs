//! A running poller: the handle, and how it is shut down.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::checks::{ColumnsInUse, REPLACEMENT_WAIT, stopped_early};
use super::health::Health;
use super::shared::PollerShared;
use super::wake::WakeSignal;
use super::work_board::WorkBoard;
use crate::attempt::Tally;
use crate::backend::QueueConnection;
use crate::error::Error;
use crate::event::{Event, Events, ListenerThread};
use crate::sync::{Mutex, is_in_runtime};

/// The result of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shutdown {
    /// The counts since the poller's start.
    pub tally: Tally,
    /// How many attempts were rolled back because the grace period was over. Their rows are due again, see
    /// [`PollerHandle::shutdown`] for those under a lease.
    pub rolled_back: usize,
}

/// A running poller. Dropping it shuts the poller down, with the grace period of its settings. On a thread of a tokio runtime the
/// drop does not wait for that; await [`shutdown_async`](PollerHandle::shutdown_async) there.
///
/// ```no_run
/// # use diesel::prelude::*;
/// # use diesel::r2d2::{ConnectionManager, Pool};
/// # use queueable::{HandlerResult, Message, Outcome, Queueable};
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// # fn charge(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let pool = Pool::new(ConnectionManager::<SqliteConnection>::new("app.sqlite"))?;
/// let handle = Payment::poller(pool, charge).start()?;
/// // ...
/// println!("{} payments so far", handle.tally().succeeded);
/// let shutdown = handle.shutdown(std::time::Duration::from_secs(10));
/// println!("{} payments, {} rolled back", shutdown.tally.succeeded, shutdown.rolled_back);
/// # Ok(()) }
/// ```
#[must_use = "dropping the handle shuts the poller down"]
pub struct PollerHandle {
    /// Whether the poller was shut down.
    pub(super) has_ended: bool,
    pub(super) control: Arc<dyn Controls>,
    pub(super) board: Arc<WorkBoard>,
    pub(super) wake_signal: Arc<WakeSignal>,
    pub(super) events: Events,
    /// What is kept until the end: the columns that the poller's entities use while it runs, and then the listeners, so that
    /// they receive the event of the end.
    pub(super) kept: Option<(ColumnsInUse, ListenerThread)>,
}

impl PollerHandle {
    /// Waits for the scout, which ends when it finds nothing more to do, and then for all others.
    pub(super) fn wait_until_idle(self) -> Tally {
        self.board.wait_for_scout();
        self.shutdown(Duration::MAX).tally
    }

    /// Probes for due rows now. The poller notices rows that are enqueued with [`due_now`](crate::Queueable::due_now)
    /// in this process by itself. Call this after an enqueue by other means.
    pub fn wake(&self) {
        self.wake_signal.notify(None);
    }

    /// Returns the counts so far.
    pub fn tally(&self) -> Tally {
        self.board.tally()
    }

    /// Returns how the poller is: whether it serves, when it last saw the database, how long rows have been due, which
    /// threads are stuck or without a connection.
    ///
    /// It asks the process and not the database, so it returns at once, also while the database is away. The scout
    /// reads how long rows have been due, by one probe of the index for each entity and second, and only while the
    /// application asks: the first answer after a minute of silence does not have it yet. If a probe is slow, the next
    /// one waits twenty times as long.
    ///
    /// For a `/healthz`, answer 200 or 503 by [`Health::is_well`], and show the rest as JSON:
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use queueable::PollerHandle;
    ///
    /// fn healthz(poller: &PollerHandle) -> (u16, String) {
    ///     let health = poller.health();
    ///     let status = if health.is_well(Duration::from_secs(30)) { 200 } else { 503 };
    ///     (status, serde_json::to_string(&health).expect("plain values"))
    /// }
    /// ```
    ///
    /// An old due row is not a fault of this process, and a restart does not help: raise an alarm about `oldest_due`
    /// instead of answering 503.
    pub fn health(&self) -> Health {
        self.control.health()
    }

    /// Shuts the poller down: it claims nothing more, and running handlers have `grace` to finish. It ends the sessions
    /// of those that do not, so that the server rolls them back and their rows are due again. On SQLite no session can
    /// be ended from outside: a handler's transaction is rolled back when the handler returns. After the grace the rows
    /// under a lease are given back. With `exclusive`, `serial_by` or `at_most`, a row whose handler still runs is given back
    /// when the handler returns, because it keeps its place until then. If the database takes longer than a second for that, a
    /// row may keep its lease until it ends by itself. Nothing else is left behind in the database.
    pub fn shutdown(mut self, grace: Duration) -> Shutdown {
        self.shut_down(grace)
    }

    fn shut_down(&mut self, grace: Duration) -> Shutdown {
        self.has_ended = true;
        let Stopped { rolled_back, all_left } = self.control.clone().stop(grace);
        self.control.clone().report_end();
        if all_left {
            self.control.await_replacements();
        }
        let tally = self.tally();
        tracing::info!(
            succeeded = tally.succeeded,
            retried = tally.retried,
            failed = tally.failed,
            rolled_back,
            left_running = !all_left,
            "the poller has stopped"
        );
        self.events.tell_last(|| Event::PollerStopped { rolled_back, has_left_behind: !all_left });
        Shutdown { tally, rolled_back }
    }
}

impl Drop for PollerHandle {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        if is_in_runtime() {
            // Such a thread must not wait, nor end the runtime of an async client's session.
            let rest = PollerHandle {
                has_ended: std::mem::replace(&mut self.has_ended, true),
                control: self.control.clone(),
                board: self.board.clone(),
                wake_signal: self.wake_signal.clone(),
                events: self.events.clone(),
                kept: self.kept.take(),
            };
            thread::spawn(move || drop(rest));
            return;
        }
        self.shut_down(self.control.default_grace());
    }
}

impl fmt::Debug for PollerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PollerHandle").field("tally", &self.tally()).finish_non_exhaustive()
    }
}

/// The threads' shared state, with the connection's type erased, so that a handle has no type parameter.
pub(super) trait Controls: Send + Sync {
    fn health(&self) -> Health;
    fn stop(self: Arc<Self>, grace: Duration) -> Stopped;
    fn default_grace(&self) -> Duration;

    /// Waits until the pool has replaced the connections that the threads have closed.
    fn await_replacements(&self);

    /// Writes what the threads have counted last, and that the poller has stopped.
    fn report_end(self: Arc<Self>);
}

/// What stops a poller before it has started.
#[derive(Clone, Default)]
pub(super) struct EarlyStop(Arc<Mutex<Stopping>>);

#[derive(Default)]
struct Stopping {
    is_stopped: bool,
    begun: Option<Begun>,
}

/// A poller whose threads begin.
type Begun = (Arc<dyn Controls>, Arc<WorkBoard>);

impl EarlyStop {
    /// Stops the start: nothing else begins. Returns what has begun by then, which is to be shut down.
    pub(super) fn stop(&self) -> Option<Begun> {
        let mut stopping = self.0.lock();
        stopping.is_stopped = true;
        stopping.begun.take()
    }

    /// Has it stop this poller too.
    pub(super) fn stops(&self, begun: Begun) -> Result<(), Error> {
        let mut stopping = self.0.lock();
        stopping.begun = Some(begun);
        if stopping.is_stopped { Err(stopped_early()) } else { Ok(()) }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.0.lock().is_stopped
    }
}

/// How long a shutdown waits before it checks whether the async calls for which it waits can end.
const CALLS_BLOCKED: Duration = Duration::from_secs(5);

impl<C: QueueConnection> PollerShared<C> {
    /// Logs that a shutdown blocks the runtime of the async calls for which it waits.
    fn warn_of_blocked_calls(&self) {
        for runner in &self.runners {
            let calls = runner.calls().filter(|calls| calls.counts().unsettled() > 0);
            if calls.is_some_and(|calls| !calls.respond_within(Duration::from_secs(1))) {
                let (entity, blocked) =
                    (runner.info().entity, "the shutdown blocks the tokio runtime of the async calls");
                tracing::warn!(
                    entity,
                    "{blocked}: await `shutdown_async`, or call it inside `tokio::task::spawn_blocking`"
                );
            }
        }
    }
}

/// The result of stopping.
pub(super) struct Stopped {
    pub(super) rolled_back: usize,
    /// Whether no thread runs any more.
    all_left: bool,
}

impl<C: QueueConnection> Controls for PollerShared<C> {
    fn health(&self) -> Health {
        if self.health.note_question() {
            // The scout begins to read how long rows have been due.
            self.wake_signal.notify(None);
        }
        let (workers, stuck_workers) = (self.slots(), self.board.stuck());
        let running: Vec<_> = workers.iter().filter_map(|slot| slot.runner()).collect();
        let mut calls = 0;
        let entities: Vec<_> = self
            .runners
            .iter()
            .enumerate()
            .map(|(number, runner)| {
                let entity = runner.info().entity;
                let in_flight = runner.calls().map_or(0, |calls| calls.counts().unsettled());
                calls += in_flight;
                let running = running.iter().filter(|running| **running == number).count();
                self.health.entity(number, entity, running + in_flight, runner.served().stalled())
            })
            .collect();
        Health {
            alive: !self.board.is_stopping() && !self.board.has_scouted() && workers.len() > stuck_workers,
            threads_without_connection: self.sessions.connectivity.threads_without(),
            last_probe: self.health.last_probe(),
            longest_wait: self.posts().iter().filter_map(|post| post.longest_wait()).max(),
            workers: workers.len(),
            stuck_workers,
            running: running.len() + calls,
            entities,
        }
    }

    fn stop(self: Arc<Self>, grace: Duration) -> Stopped {
        self.board.stop();
        self.wake_signal.notify(None);
        let mut rolled_back = 0;
        let end = Instant::now().checked_add(grace);
        let early = Instant::now() + CALLS_BLOCKED;
        if end.is_none_or(|end| early < end) && !self.board.wait_until_done(Some(early)) {
            self.warn_of_blocked_calls();
        }
        if !self.board.wait_until_done(end) {
            rolled_back = self.revoke_all();
            // The sessions are gone, and most handlers notice this at their next statement. This gives them a moment to
            // return.
            self.board.wait_until_done(Instant::now().checked_add(Duration::from_secs(1)));
        }
        let all_left = self.board.is_empty();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // A handler that never returns keeps its thread, but no lock and no transaction. So does a thread that waits
            // for a database that does not answer.
            if all_left || thread.is_finished() {
                let _ = thread.join();
            }
        }
        Stopped { rolled_back, all_left }
    }

    fn default_grace(&self) -> Duration {
        self.settings.shutdown_grace
    }

    fn report_end(self: Arc<Self>) {
        PollerShared::report_end(&self);
    }

    fn await_replacements(&self) {
        self.sessions.connections.await_replacements(REPLACEMENT_WAIT);
    }
}
