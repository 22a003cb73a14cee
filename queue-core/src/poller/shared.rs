//! What the threads of a poller share: the runners, which of them have work, which worker runs what.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::settings::PollerSettings;
use super::window_gate::WindowGate;
use crate::attempt::{Runner, Slot, Tally, Turn};
use crate::backend::{Connections, LockSql, QueueConnection, Session, SessionHolder, SessionLimits};
use crate::crash::{Crashes, Recorder, exclusive_run};
use crate::error::Error;
use crate::lock::unpoisoned;
use crate::log::RateLimitedLog;
use crate::row::failure_text;

/// The shared state of a poller.
pub(crate) struct PollerShared<C: QueueConnection> {
    pub(crate) connections: Connections<C>,
    /// The name of the database in which the queues are.
    pub(crate) database: Arc<str>,
    pub(crate) settings: PollerSettings,
    pub(crate) limits: SessionLimits,
    pub(crate) runners: Vec<Box<dyn Runner<C>>>,
    /// When the messages of each runner may be worked.
    pub(crate) window_gates: Vec<WindowGate>,
    slots: Mutex<Vec<Arc<Slot>>>,
    /// The threads that took the places of stuck ones.
    replacements: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) crashes: Arc<Crashes>,
    pub(crate) log: RateLimitedLog,
    pub(crate) stopping: AtomicBool,
    /// How often another file has taken the place of the database's.
    pub(crate) files: AtomicU64,
    board: Mutex<WorkBoard>,
    /// Waited for by workers without work.
    work: Condvar,
    /// Waited for by everybody who waits for threads to leave or for the poller to stop.
    ended: Condvar,
    writer: Arc<Mutex<()>>,
    counts: Mutex<Tally>,
    turns: AtomicU64,
    threads_left: AtomicUsize,
    revoked: AtomicBool,
}

/// Which runners have work.
struct WorkBoard {
    runners: Vec<RunnerWork>,
    running: isize,
    /// How many of them were given up: nobody waits for their handlers. A turn may end before it is counted here.
    stuck: isize,
    /// The runner that a worker asks first, so that a busy one starves no other.
    next: usize,
}

impl WorkBoard {
    /// Permits a turn for the next runner that has work.
    fn permit(&mut self) -> Option<TurnPermit> {
        let runners = self.runners.len();
        let runner = (0..runners).map(|i| (self.next + i) % runners).find(|runner| self.runners[*runner].is_open())?;
        self.next = (runner + 1) % runners;
        self.running += 1;
        self.runners[runner].working += 1;
        Some(TurnPermit { runner, generation: self.runners[runner].generation })
    }
}

#[derive(Default)]
struct RunnerWork {
    has_work: bool,
    /// How many workers are at it, and how many may be. Those that are stuck have been replaced, and do not count.
    working: isize,
    most: isize,
    /// Raised whenever somebody says that there may be work; a worker that found none takes back only what it has seen.
    generation: u64,
    /// How many turns in a row found nothing although there was said to be work.
    empty_turns: u32,
}

impl RunnerWork {
    /// For so many workers at most.
    fn of(most: usize) -> Self {
        RunnerWork { most: isize::try_from(most).unwrap_or(isize::MAX), ..RunnerWork::default() }
    }

    /// Whether one more worker may take a turn.
    fn is_open(&self) -> bool {
        self.has_work && self.working < self.most
    }
}

/// A worker's permit to take a turn for a runner.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnPermit {
    pub(crate) runner: usize,
    generation: u64,
}

impl<C: QueueConnection> PollerShared<C> {
    #[expect(clippy::too_many_arguments, reason = "the parts of a poller, each once")]
    pub(crate) fn new(
        connections: Connections<C>,
        database: String,
        settings: PollerSettings,
        limits: SessionLimits,
        mut runners: Vec<Box<dyn Runner<C>>>,
        shares: Vec<usize>,
        window_gates: Vec<WindowGate>,
        crashes: Crashes,
    ) -> Self {
        let crashes = Arc::new(crashes);
        let writer = Arc::default();
        runners.iter_mut().for_each(|runner| runner.take_turns_with(&writer));
        PollerShared {
            board: Mutex::new(WorkBoard {
                runners: shares.into_iter().map(RunnerWork::of).collect(),
                running: 0,
                stuck: 0,
                next: 0,
            }),
            work: Condvar::new(),
            ended: Condvar::new(),
            writer,
            counts: Mutex::default(),
            turns: AtomicU64::new(0),
            threads_left: AtomicUsize::new(0),
            revoked: AtomicBool::new(false),
            slots: Mutex::default(),
            replacements: Mutex::default(),
            crashes,
            log: RateLimitedLog::new(settings.redact.clone()),
            stopping: AtomicBool::new(false),
            files: AtomicU64::new(0),
            connections,
            database: database.into(),
            settings,
            limits,
            runners,
            window_gates,
        }
    }

    /// A place for one more worker to say what it runs.
    pub(crate) fn new_slot(&self) -> Arc<Slot> {
        let slot = Arc::new(Slot::new(Recorder::new(self.crashes.clone())));
        unpoisoned(self.slots.lock()).push(slot.clone());
        slot
    }

    /// Forgets the place of a worker that leaves.
    pub(crate) fn remove_slot(&self, slot: &Arc<Slot>) {
        unpoisoned(self.slots.lock()).retain(|other| !Arc::ptr_eq(other, slot));
    }

    /// What all workers run.
    pub(crate) fn slots(&self) -> Vec<Arc<Slot>> {
        unpoisoned(self.slots.lock()).clone()
    }

    /// Says that a thread of the poller is about to start.
    pub(crate) fn thread_starts(&self) {
        self.threads_left.fetch_add(1, Ordering::AcqRel);
    }

    /// Keeps the thread that took a stuck one's place.
    pub(crate) fn keep_replacement(&self, thread: JoinHandle<()>) {
        let mut replacements = unpoisoned(self.replacements.lock());
        replacements.retain(|thread| !thread.is_finished());
        replacements.push(thread);
    }

    /// Takes the threads that took the places of stuck ones.
    pub(crate) fn take_replacements(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *unpoisoned(self.replacements.lock()))
    }

    /// Says that a turn was given up; it ends as [`Turn::GivenUp`], if it ends. Its row came to `turn`.
    pub(crate) fn give_up_turn(&self, runner: usize, turn: Turn) {
        unpoisoned(self.counts.lock()).count(turn);
        let mut board = unpoisoned(self.board.lock());
        board.stuck += 1;
        board.runners[runner].working -= 1;
        drop(board);
        self.turns.fetch_add(1, Ordering::AcqRel);
        self.ended.notify_all();
    }

    /// How many turns were given up whose handlers have not returned.
    pub(crate) fn stuck(&self) -> usize {
        usize::try_from(unpoisoned(self.board.lock()).stuck).unwrap_or(0)
    }

    /// A worker's line to the database.
    pub(crate) fn session_holder(&self) -> SessionHolder<C> {
        SessionHolder::new(self.connections.clone(), self.settings.pool_timeout, self.limits)
    }

    /// The scout's line to the database.
    pub(crate) fn scouts_session_holder(&self) -> SessionHolder<C> {
        let limits = SessionLimits { attempts: false, ..self.limits };
        SessionHolder::new(self.connections.clone(), self.settings.pool_timeout, limits)
    }

    /// Waits for the process's turn to write, where the database has one writer.
    pub(crate) fn turn_to_write(&self) -> Option<MutexGuard<'_, ()>> {
        C::Backend::ONE_WRITER.then(|| unpoisoned(self.writer.lock()))
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Says that a runner may have work; one waiting worker is woken, and wakes the next when it finds some.
    pub(crate) fn signal_work(&self, runner: usize) {
        let mut board = unpoisoned(self.board.lock());
        board.runners[runner].has_work = true;
        board.runners[runner].generation += 1;
        drop(board);
        self.work.notify_one();
    }

    /// Finds a runner that has work. `None`: there is none, or the poller stops.
    pub(crate) fn find_work(&self) -> Option<TurnPermit> {
        if self.is_stopping() { None } else { unpoisoned(self.board.lock()).permit() }
    }

    /// Waits for a runner that has work. `None`: the poller stops.
    pub(crate) fn wait_for_work(&self) -> Option<TurnPermit> {
        let mut board = unpoisoned(self.board.lock());
        loop {
            if self.is_stopping() {
                return None;
            }
            let found = board.permit();
            if found.is_some() {
                return found;
            }
            board = self.work.wait(board).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Says that a turn found a row: there may be more, so another worker is woken.
    pub(crate) fn found_work(&self, runner: usize) {
        let mut board = unpoisoned(self.board.lock());
        let work = &mut board.runners[runner];
        work.empty_turns = 0;
        if self.runners[runner].is_exclusive() {
            // Nobody else finds any before the turn has ended, which says so.
            work.has_work = false;
            return;
        }
        if self.runners[runner].has_more_claimed() {
            // Another worker may have found nothing more to claim meanwhile, and said that the runner is drained.
            work.has_work = true;
            work.generation += 1;
        }
        drop(board);
        self.work.notify_one();
    }

    /// Gives a turn back. Returns whether the runner has just been drained.
    pub(crate) fn end_turn(&self, permit: TurnPermit, turn: Turn) -> bool {
        unpoisoned(self.counts.lock()).count(turn);
        let mut board = unpoisoned(self.board.lock());
        board.running -= 1;
        board.stuck -= isize::from(turn == Turn::GivenUp);
        self.turns.fetch_add(1, Ordering::AcqRel);
        let work = &mut board.runners[permit.runner];
        work.working -= isize::from(turn != Turn::GivenUp);
        let mut drained = false;
        if turn != Turn::Idle && self.runners[permit.runner].is_exclusive() {
            work.has_work = true;
            work.generation += 1;
            self.work.notify_one();
        }
        if turn == Turn::Idle && work.has_work && work.generation == permit.generation {
            work.has_work = false;
            work.empty_turns = work.empty_turns.saturating_add(1);
            drained = true;
        }
        if work.is_open() && work.working + 1 == work.most {
            // Others may have found it closed.
            self.work.notify_one();
        }
        drained
    }

    /// Whether the runner has work, and how many turns in a row found nothing.
    pub(crate) fn work_of(&self, runner: usize) -> (bool, u32) {
        let board = unpoisoned(self.board.lock());
        (board.runners[runner].has_work, board.runners[runner].empty_turns)
    }

    /// Whether no other runner has work, as far as is known.
    pub(crate) fn is_only_work(&self, runner: usize) -> bool {
        let board = unpoisoned(self.board.lock());
        board.runners.iter().enumerate().all(|(other, work)| other == runner || !work.has_work)
    }

    /// Whether no runner has work and no turn is taken.
    pub(crate) fn is_quiet(&self) -> bool {
        let board = unpoisoned(self.board.lock());
        board.running == board.stuck && board.runners.iter().all(|runner| !runner.has_work)
    }

    /// How many turns have ended.
    pub(crate) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Acquire)
    }

    /// Sleeps, but not past the poller's stop.
    pub(crate) fn pause(&self, pause: Duration) {
        let deadline = Instant::now() + pause;
        let mut board = unpoisoned(self.board.lock());
        while !self.is_stopping() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            board = self.ended.wait_timeout(board, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Wakes every waiting worker, to see that the poller stops.
    pub(crate) fn release_waiting(&self) {
        drop(unpoisoned(self.board.lock()));
        self.work.notify_all();
        self.ended.notify_all();
        exclusive_run::ask_again();
    }

    /// A worker, the scout or the heartbeat has left.
    pub(crate) fn thread_left(&self) {
        let board = unpoisoned(self.board.lock());
        self.threads_left.fetch_sub(1, Ordering::AcqRel);
        drop(board);
        self.ended.notify_all();
    }

    /// Sleeps, but not past the moment at which the poller stops or a thread leaves. Once it stops, those moments may be past:
    /// then for `stopping` at most.
    pub(crate) fn sleep_until_change(&self, pause: Duration, stopping: Duration) {
        let board = unpoisoned(self.board.lock());
        let pause = if self.is_stopping() { stopping.min(pause) } else { pause };
        drop(self.ended.wait_timeout(board, pause));
    }

    /// Whether the calling thread is the last one, but for those that are stuck.
    pub(crate) fn is_last(&self) -> bool {
        let board = unpoisoned(self.board.lock());
        self.threads_left.load(Ordering::Acquire).cast_signed() <= board.stuck + 1
    }

    /// Whether the grace of a shutdown is over, and running handlers are left behind.
    pub(crate) fn has_revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }

    /// Whether every thread has left, the stuck ones too.
    pub(crate) fn is_empty(&self) -> bool {
        self.threads_left.load(Ordering::Acquire) == 0
    }

    /// Waits until every thread has left that is not stuck, but not past the deadline; returns whether they have.
    pub(crate) fn wait_until_done(&self, deadline: Option<Instant>) -> bool {
        let mut board = unpoisoned(self.board.lock());
        while self.threads_left.load(Ordering::Acquire).cast_signed() > board.stuck {
            board = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => self.ended.wait(board).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => return false,
                Some(left) => self.ended.wait_timeout(board, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        true
    }

    /// Takes the transactions away from all running attempts and ends their sessions. Returns how many.
    pub(crate) fn revoke_all(&self) -> usize {
        // First the leases: an attempt that is just about to write its answer sees it, or is found in its slot.
        self.runners.iter().for_each(|runner| runner.revoke_leases());
        self.revoked.store(true, Ordering::Release);
        self.release_waiting();
        let slots = self.slots();
        let revoked: Vec<_> = slots.iter().filter_map(|slot| slot.revoke_for_shutdown()).collect();
        // Nobody waits for their ends any more, in the other pollers of the process neither.
        slots.iter().for_each(|slot| exclusive_run::is_stuck(slot.gate_number()));
        let sessions: Vec<_> = revoked.iter().filter_map(|(entity, session)| Some((*entity, (*session)?))).collect();
        if !sessions.is_empty() {
            match Session::open(&self.connections, self.settings.pool_timeout, self.limits) {
                Ok(mut killer) => {
                    sessions.iter().for_each(|(entity, session)| self.end_session(&mut killer, entity, *session))
                }
                // The sessions end with the process at the latest; nothing they did can commit.
                Err(error) => {
                    let error = failure_text(&error, 500);
                    self.log.warn("poller", &format!("running sessions cannot be ended: {error}"));
                }
            }
        }
        revoked.len()
    }

    /// Ends the session of an attempt that lost its transaction.
    pub(crate) fn end_session(&self, connection: &mut C, entity: &str, session: i64) {
        if let Err(error) = connection.end_session(session) {
            self.log.warn(entity, &format!("a session cannot be ended: {error}"));
        }
    }

    pub(crate) fn tally(&self) -> Tally {
        *unpoisoned(self.counts.lock())
    }
}

/// A thread of the poller, as long as it runs: its end is noticed however it ends.
pub(crate) struct ThreadGuard<'a, C: QueueConnection>(pub(crate) &'a PollerShared<C>);

impl<C: QueueConnection> Drop for ThreadGuard<'_, C> {
    fn drop(&mut self) {
        self.0.thread_left();
    }
}

/// Starts a thread of the poller, which says by its [`ThreadGuard`] when it leaves.
pub(crate) fn spawn<C: QueueConnection>(
    shared: &PollerShared<C>,
    name: String,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    shared.thread_starts();
    thread::Builder::new().name(name).spawn(work).map_err(|error| {
        shared.thread_left();
        Error::Thread(error)
    })
}
