//! What the threads of a poller share: the lanes, which of them are hot, who is running what.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use diesel::r2d2::{ConnectionManager, Pool};

use super::settings::PollerSettings;
use super::window_gate::Gate;
use crate::attempt::{Lane, Slot, Tally, Turn};
use crate::backend::{Link, QueueBackend, QueueConnection, Session, SessionLimits};
use crate::crash::{Crashes, Recorder, exclusive_run as alone};
use crate::error::Error;
use crate::lock::unpoisoned;
use crate::log::Noise;
use crate::row::failure_text;

/// The shared state of a poller.
pub(crate) struct Crew<C: QueueConnection> {
    pub(crate) pool: Pool<ConnectionManager<C>>,
    pub(crate) settings: PollerSettings,
    pub(crate) limits: SessionLimits,
    pub(crate) lanes: Vec<Box<dyn Lane<C>>>,
    /// When the messages of each lane may be worked.
    pub(crate) gates: Vec<Gate>,
    slots: Mutex<Vec<Arc<Slot>>>,
    /// The threads that took the places of stuck ones.
    substitutes: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) crashes: Arc<Crashes>,
    pub(crate) noise: Noise,
    pub(crate) stopping: AtomicBool,
    board: Mutex<Board>,
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

/// Which lanes have work.
struct Board {
    lanes: Vec<Heat>,
    running: isize,
    /// How many of them were given up: nobody waits for their handlers. A turn may end before it is counted here.
    stuck: isize,
    /// The lane that a worker looks at first, so that a busy lane starves no other.
    next: usize,
}

impl Board {
    /// Gives leave for a turn on the next hot lane.
    fn hot_lane(&mut self) -> Option<Leave> {
        let lanes = self.lanes.len();
        let lane = (0..lanes).map(|i| (self.next + i) % lanes).find(|lane| self.lanes[*lane].hot)?;
        self.next = (lane + 1) % lanes;
        self.running += 1;
        Some(Leave { lane, sparks: self.lanes[lane].sparks })
    }
}

#[derive(Clone, Default)]
struct Heat {
    hot: bool,
    /// Raised whenever somebody says that there may be work; a worker that found none only cools what it has seen.
    sparks: u64,
    /// How many turns in a row found nothing although the lane was said to be hot.
    fruitless: u32,
}

/// A worker's leave to take a turn on a lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leave {
    pub(crate) lane: usize,
    sparks: u64,
}

impl<C: QueueConnection> Crew<C> {
    pub(crate) fn new(
        pool: Pool<ConnectionManager<C>>,
        settings: PollerSettings,
        limits: SessionLimits,
        mut lanes: Vec<Box<dyn Lane<C>>>,
        gates: Vec<Gate>,
        crashes: Crashes,
    ) -> Self {
        let crashes = Arc::new(crashes);
        let writer = Arc::default();
        lanes.iter_mut().for_each(|lane| lane.take_turns_with(&writer));
        Crew {
            board: Mutex::new(Board { lanes: vec![Heat::default(); lanes.len()], running: 0, stuck: 0, next: 0 }),
            work: Condvar::new(),
            ended: Condvar::new(),
            writer,
            counts: Mutex::default(),
            turns: AtomicU64::new(0),
            threads_left: AtomicUsize::new(0),
            revoked: AtomicBool::new(false),
            slots: Mutex::default(),
            substitutes: Mutex::default(),
            crashes,
            noise: Noise::default(),
            stopping: AtomicBool::new(false),
            pool,
            settings,
            limits,
            lanes,
            gates,
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
    pub(crate) fn keep_substitute(&self, thread: JoinHandle<()>) {
        let mut substitutes = unpoisoned(self.substitutes.lock());
        substitutes.retain(|thread| !thread.is_finished());
        substitutes.push(thread);
    }

    /// Takes the threads that took the places of stuck ones.
    pub(crate) fn take_substitutes(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *unpoisoned(self.substitutes.lock()))
    }

    /// Says that a turn was given up; it ends as [`Turn::GivenUp`], if it ends. Its row came to `turn`.
    pub(crate) fn give_up_turn(&self, turn: Turn) {
        unpoisoned(self.counts.lock()).count(turn);
        unpoisoned(self.board.lock()).stuck += 1;
        self.turns.fetch_add(1, Ordering::AcqRel);
        self.ended.notify_all();
    }

    /// How many turns were given up whose handlers have not returned.
    pub(crate) fn stuck(&self) -> usize {
        usize::try_from(unpoisoned(self.board.lock()).stuck).unwrap_or(0)
    }

    /// A worker's line to the database.
    pub(crate) fn link(&self) -> Link<C> {
        Link::new(self.pool.clone(), self.settings.pool_timeout, self.limits)
    }

    /// The scout's line to the database.
    pub(crate) fn scouts_link(&self) -> Link<C> {
        let limits = SessionLimits { attempts: false, ..self.limits };
        Link::new(self.pool.clone(), self.settings.pool_timeout, limits)
    }

    /// Waits for the process's turn to write, where the database has one writer.
    pub(crate) fn turn_to_write(&self) -> Option<MutexGuard<'_, ()>> {
        <C::Backend as QueueBackend>::ONE_WRITER.then(|| unpoisoned(self.writer.lock()))
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Says that a lane may have work; one waiting worker is woken, and wakes the next when it finds some.
    pub(crate) fn heat(&self, lane: usize) {
        let mut board = unpoisoned(self.board.lock());
        board.lanes[lane].hot = true;
        board.lanes[lane].sparks += 1;
        drop(board);
        self.work.notify_one();
    }

    /// Finds a hot lane. `None`: there is none, or the poller stops.
    pub(crate) fn find_work(&self) -> Option<Leave> {
        if self.is_stopping() { None } else { unpoisoned(self.board.lock()).hot_lane() }
    }

    /// Waits for a hot lane. `None`: the poller stops.
    pub(crate) fn wait_for_work(&self) -> Option<Leave> {
        let mut board = unpoisoned(self.board.lock());
        loop {
            if self.is_stopping() {
                return None;
            }
            let found = board.hot_lane();
            if found.is_some() {
                return found;
            }
            board = self.work.wait(board).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Says that a turn found a row: there may be more, so another worker is woken.
    pub(crate) fn found_work(&self, lane: usize) {
        let mut board = unpoisoned(self.board.lock());
        let heat = &mut board.lanes[lane];
        heat.fruitless = 0;
        if self.lanes[lane].is_exclusive() {
            // Nobody else finds any before the turn has ended, which says so.
            heat.hot = false;
            return;
        }
        if self.lanes[lane].has_more_claimed() {
            // Another worker may have found nothing more to claim meanwhile, and cooled the lane.
            heat.hot = true;
            heat.sparks += 1;
        }
        drop(board);
        self.work.notify_one();
    }

    /// Gives a turn back. Returns whether the lane has just cooled down.
    pub(crate) fn end_turn(&self, leave: Leave, turn: Turn) -> bool {
        unpoisoned(self.counts.lock()).count(turn);
        let mut board = unpoisoned(self.board.lock());
        board.running -= 1;
        board.stuck -= isize::from(turn == Turn::GivenUp);
        self.turns.fetch_add(1, Ordering::AcqRel);
        let heat = &mut board.lanes[leave.lane];
        let mut cooled = false;
        if turn != Turn::Idle && self.lanes[leave.lane].is_exclusive() {
            heat.hot = true;
            heat.sparks += 1;
            self.work.notify_one();
        }
        if turn == Turn::Idle && heat.hot && heat.sparks == leave.sparks {
            heat.hot = false;
            heat.fruitless = heat.fruitless.saturating_add(1);
            cooled = true;
        }
        cooled
    }

    /// Whether the lane is hot, and how many turns in a row found nothing.
    pub(crate) fn heat_of(&self, lane: usize) -> (bool, u32) {
        let board = unpoisoned(self.board.lock());
        (board.lanes[lane].hot, board.lanes[lane].fruitless)
    }

    /// Whether no other lane has work, as far as is known.
    pub(crate) fn is_only_work(&self, lane: usize) -> bool {
        let board = unpoisoned(self.board.lock());
        board.lanes.iter().enumerate().all(|(other, heat)| other == lane || !heat.hot)
    }

    /// Whether no lane is hot and no turn is taken.
    pub(crate) fn is_quiet(&self) -> bool {
        let board = unpoisoned(self.board.lock());
        board.running == board.stuck && board.lanes.iter().all(|lane| !lane.hot)
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
        alone::ask_again();
    }

    /// A worker, the scout or the heart has left.
    pub(crate) fn thread_left(&self) {
        let board = unpoisoned(self.board.lock());
        self.threads_left.fetch_sub(1, Ordering::AcqRel);
        drop(board);
        self.ended.notify_all();
    }

    /// Sleeps, but not past the moment at which the poller stops or a thread leaves. Once it stops, those moments may be past:
    /// then for `stopping` at most.
    pub(crate) fn rest(&self, pause: Duration, stopping: Duration) {
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
        self.lanes.iter().for_each(|lane| lane.revoke_leases());
        self.revoked.store(true, Ordering::Release);
        self.release_waiting();
        let slots = self.slots();
        let revoked: Vec<_> = slots.iter().filter_map(|slot| slot.revoke_for_shutdown()).collect();
        // Nobody waits for their ends any more, in the other pollers of the process neither.
        slots.iter().for_each(|slot| alone::is_stuck(slot.place()));
        let sessions: Vec<_> = revoked.iter().filter_map(|(entity, session)| Some((*entity, (*session)?))).collect();
        if !sessions.is_empty() {
            match Session::open(&self.pool, self.settings.pool_timeout, self.limits) {
                Ok(mut killer) => {
                    sessions.iter().for_each(|(entity, session)| self.end_session(&mut killer, entity, *session))
                }
                // The sessions end with the process at the latest; nothing they did can commit.
                Err(error) => {
                    let error = failure_text(&error, 500);
                    self.noise.warn("poller", &format!("running sessions cannot be ended: {error}"));
                }
            }
        }
        revoked.len()
    }

    /// Ends the session of an attempt that lost its transaction.
    pub(crate) fn end_session(&self, connection: &mut C, entity: &str, session: i64) {
        if let Err(error) = connection.end_session(session) {
            self.noise.warn(entity, &format!("a session cannot be ended: {error}"));
        }
    }

    pub(crate) fn tally(&self) -> Tally {
        *unpoisoned(self.counts.lock())
    }
}

/// A thread of the poller, as long as it runs: its end is noticed however it ends.
pub(crate) struct Presence<'a, C: QueueConnection>(pub(crate) &'a Crew<C>);

impl<C: QueueConnection> Drop for Presence<'_, C> {
    fn drop(&mut self) {
        self.0.thread_left();
    }
}

/// Starts a thread of the poller, which says by its [`Presence`](super::shared::Presence) when it leaves.
pub(crate) fn spawn<C: QueueConnection>(
    crew: &Crew<C>,
    name: String,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    crew.thread_starts();
    thread::Builder::new().name(name).spawn(work).map_err(|error| {
        crew.thread_left();
        Error::Thread(error)
    })
}
