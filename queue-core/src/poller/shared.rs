//! The state that the threads of a poller share: the runners, the workers that work for them, and the source of their
//! sessions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::gate::Gate;
use super::health::HealthBoard;
use super::post::{Duty, Post};
use super::settings::PollerSettings;
use super::wake::WakeSignal;
use super::work_board::WorkBoard;
use crate::attempt::{Runner, Slot};
use crate::backend::{Connections, Dialect, ErrorClass, QueueConnection, Session, SessionHolder, SessionLimits};
use crate::control::Presence;
use crate::crash::{Crashes, GATE, Recorder};
use crate::error::Error;
use crate::event::{Connectivity, Events, ThreadConnection};
use crate::gauges::{Gauges, Shown};
use crate::log::RateLimitedLog;
use crate::minutes::Minutes;
use crate::row::failure_text;
use crate::sync::{Mutex, TasksOf, TurnToWrite, fail_point};

/// How long a shutdown waits until the sessions of handlers that do not return have ended.
pub(super) const ENDING: Duration = Duration::from_secs(5);

/// The shared state of a poller. It has more than ten fields because every thread gets all that it needs from here.
pub(crate) struct PollerShared<C: QueueConnection> {
    pub(crate) sessions: PollerSessions<C>,
    pub(crate) settings: PollerSettings,
    pub(crate) runners: Vec<Box<dyn Runner<C>>>,
    /// Whether the messages of each runner may be processed.
    pub(crate) gates: Vec<Gate>,
    pub(crate) board: Arc<WorkBoard>,
    pub(crate) wake_signal: Arc<WakeSignal>,
    /// Whether the poller ends when nothing is due.
    pub(crate) until_idle: bool,
    /// The runtime on which the tasks run that handlers spawn.
    pub(super) tasks: TasksOf,
    /// The threads that use the database.
    pub(super) posts: Mutex<Vec<Arc<Post>>>,
    /// The sessions that were left behind, and since when each has been silent.
    pub(super) silent: Mutex<Vec<(i64, Instant)>>,
    /// All threads that may not have ended.
    pub(super) threads: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) crashes: Arc<Crashes>,
    pub(crate) log: RateLimitedLog,
    pub(crate) events: Events,
    pub(crate) health: HealthBoard,
    pub(super) writer: Arc<TurnToWrite>,
    pub(super) gauges: Gauges,
    pub(super) shown: Mutex<Shown>,
    pub(super) minutes: Option<Minutes>,
    /// What it says of itself to others.
    pub(super) presence: Option<Presence>,
}

impl<C: QueueConnection> PollerShared<C> {
    /// Makes a slot in which one more worker registers its attempts.
    pub(crate) fn new_slot(&self) -> Arc<Slot> {
        Arc::new(Slot::new(Recorder::new(self.crashes.clone())))
    }

    /// Returns the slots of all workers.
    pub(crate) fn slots(&self) -> Vec<Arc<Slot>> {
        self.posts.lock().iter().filter_map(|post| post.slot().cloned()).collect()
    }

    /// Returns the threads that use the database.
    pub(crate) fn posts(&self) -> Vec<Arc<Post>> {
        self.posts.lock().clone()
    }

    /// Makes the post of a thread that is about to start. `patience`: how long the database may take to answer it.
    pub(crate) fn new_post(&self, duty: Duty, connection: ThreadConnection, patience: Duration) -> Arc<Post> {
        let post = Post::new(duty, connection, patience, self.settings.patience());
        self.posts.lock().push(post.clone());
        post
    }

    /// Keeps a thread that has started.
    pub(crate) fn keep_thread(&self, thread: JoinHandle<()>) {
        let mut threads = self.threads.lock();
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
    }

    /// Waits for the process's turn to write, if the database has one writer.
    pub(crate) fn turn_to_write(&self) -> Option<MutexGuard<'_, ()>> {
        C::Backend::ONE_WRITER.then(|| self.writer.take())
    }

    /// Takes the transactions away from all running attempts and ends their sessions. Returns how many.
    pub(crate) fn revoke_all(self: &Arc<Self>) -> usize {
        // First the leases: an attempt that is about to write its answer sees this, or is found in its slot.
        let calls = self.runners.iter().map(|runner| runner.revoke()).sum();
        self.board.count_interrupted(calls);
        fail_point("leases-revoked");
        self.board.revoke();
        let slots = self.slots();
        let revoke = |slot: &Arc<Slot>| Some((slot.clone(), slot.revoke_for_shutdown()?));
        let revoked: Vec<_> = slots.iter().filter_map(revoke).collect();
        // Neither this poller nor the others of the process wait for their ends any more.
        slots.iter().for_each(|slot| GATE.note_stuck(slot.gate_number()));
        let session =
            |(slot, (runner, session)): &(Arc<Slot>, (usize, Option<i64>))| Some((slot.clone(), *runner, (*session)?));
        let sessions: Vec<_> = revoked.iter().filter_map(session).collect();
        if !sessions.is_empty() || slots.iter().any(|slot| slot.recorder().has_mark()) {
            let (shared, (done, is_done)) = (self.clone(), mpsc::channel::<()>());
            let end = move || {
                let _done = done;
                shared.end_sessions(&sessions);
            };
            if thread::Builder::new().name("queueable-end".to_owned()).spawn(end).is_ok() {
                // The server may say nothing.
                let _ = is_done.recv_timeout(ENDING);
            }
        }
        revoked.len() + calls
    }

    /// Ends the sessions of the attempts of these runners. Then it removes the crash marks of their rows: the process may end
    /// while their handlers run, and that is no crash.
    fn end_sessions(&self, sessions: &[(Arc<Slot>, usize, i64)]) {
        match self.sessions.open() {
            Ok(mut killer) => {
                for (_, runner, session) in sessions {
                    self.end_session(&mut killer, *runner, *session);
                }
                // Also of those that a timeout has revoked just before.
                for slot in self.slots() {
                    if let Some((runner, row)) = slot.take_marked() {
                        self.runners[runner].unmark(&mut killer, &slot, row);
                    }
                }
            }
            // The sessions end with the process at the latest. None of their writes can commit.
            Err(error) => {
                let error = failure_text(&error, 500);
                self.log.warn("poller", &format!("running sessions cannot be ended: {error}"));
            }
        }
    }

    /// Moves to the file that has replaced the database's, as when a backup is restored. An open connection stays with
    /// the old file, which has no name any more.
    pub(crate) fn follow_file(&self, holder: &mut SessionHolder<C>, file: &mut Option<(u64, u64)>) {
        if !C::Backend::ONE_WRITER {
            return;
        }
        // The next probe logs trouble with the session.
        let Ok(Ok(Some(found))) = holder.session().map(|session| session.file_identity()) else { return };
        if file.replace(found).is_some_and(|before| before != found) {
            let text = "another file has replaced the database's file: all sessions move to it; if this happened while the \
                        queue was running, commits that the old file has received since the copy was made are lost";
            self.log.warn("poller", text);
            self.sessions.connections.close_idle();
            let files = self.sessions.note_moved_file();
            holder.move_to_file(files);
        }
    }

    /// Notes a session that was left behind, silent since then. The scout ends it.
    pub(crate) fn note_silent(&self, session: i64, since: Instant) {
        self.silent.lock().push((session, since));
        self.wake_signal.notify(None);
    }

    /// Ends the sessions that were left behind: their transactions may hold locks.
    pub(crate) fn end_silent_sessions(&self, holder: &mut SessionHolder<C>) {
        loop {
            let first = self.silent.lock().first().copied();
            // The next probe logs trouble with the scout's own session.
            let (Some((session, since)), Ok(own)) = (first, holder.session()) else { return };
            if let Err(error) = own.end_silent_session(session, since.elapsed()) {
                self.log.warn("poller", &format!("a silent session cannot be ended: {}", failure_text(&error, 500)));
                if C::classify(&error) == ErrorClass::ConnectionLost {
                    return holder.close();
                }
            }
            self.silent.lock().retain(|(other, _)| *other != session);
        }
    }

    /// Stops the poller, because nothing can be processed any more for this reason.
    pub(crate) fn stop_because(&self, runner: usize, why: &str) {
        if self.board.stop() {
            tracing::error!(entity = self.runners[runner].info().entity, "{why}: the poller stops");
            self.wake_signal.notify(None);
        }
    }

    /// Logs a warning about the entity of a runner.
    pub(crate) fn warn(&self, runner: usize, text: &str) {
        self.log.warn(self.runners[runner].info().entity, text);
    }

    /// Ends the session of an attempt that lost its transaction.
    pub(crate) fn end_session(&self, connection: &mut C, runner: usize, session: i64) {
        if let Err(error) = connection.end_session(session) {
            self.warn(runner, &format!("a session cannot be ended: {error}"));
        }
    }
}

/// Makes the board of a poller. `shares`: how many workers may work for each runner at the same time.
pub(super) fn board_for<C: QueueConnection>(runners: &[Box<dyn Runner<C>>], shares: Vec<usize>) -> Arc<WorkBoard> {
    let counts = |runner: &dyn Runner<C>| runner.calls().map(|calls| calls.counts().clone());
    let work = runners
        .iter()
        .zip(shares)
        .map(|(runner, share)| (share, runner.info().target.options.exclusive, counts(&**runner)));
    let board = Arc::new(WorkBoard::new(work));
    for calls in runners.iter().filter_map(|runner| counts(&**runner)) {
        // The board has the counts, and a call may outlive the poller.
        let board = Arc::downgrade(&board);
        calls.wakes(move || {
            if let Some(board) = board.upgrade() {
                board.wake_for_calls();
            }
        });
    }
    board
}

/// A running thread of the poller. The board notices its end, however it ends.
struct ThreadGuard<C: QueueConnection> {
    shared: Arc<PollerShared<C>>,
    post: Arc<Post>,
}

impl<C: QueueConnection> Drop for ThreadGuard<C> {
    fn drop(&mut self) {
        self.shared.posts.lock().retain(|other| !Arc::ptr_eq(other, &self.post));
        self.shared.board.remove_thread(self.post.leave());
    }
}

/// Starts a thread of the poller, whose [`ThreadGuard`] reports when it has left, and holds no session any more.
pub(crate) fn spawn<C: QueueConnection>(
    shared: &Arc<PollerShared<C>>,
    post: Arc<Post>,
    name: String,
    work: impl FnOnce() + Send + 'static,
) -> Result<(), Error> {
    shared.board.add_thread();
    let mut thread = post.thread.clone();
    let thread_guard = ThreadGuard { shared: shared.clone(), post };
    let run = move || {
        let _thread_guard = thread_guard;
        thread.enter();
        work();
    };
    shared.keep_thread(thread::Builder::new().name(name).spawn(run).map_err(Error::Thread)?);
    Ok(())
}

/// The sessions of a poller.
pub(crate) struct PollerSessions<C: QueueConnection> {
    pub(crate) connections: Connections<C>,
    /// The name of the database in which the queues are.
    pub(crate) database: Arc<str>,
    pub(crate) limits: SessionLimits,
    /// How long a thread waits for a connection.
    pool_timeout: Duration,
    /// How often another file has replaced the database's.
    files: AtomicU64,
    /// Which of the threads have connections.
    pub(crate) connectivity: Arc<Connectivity>,
}

impl<C: QueueConnection> PollerSessions<C> {
    pub(super) fn new(
        connections: Connections<C>,
        database: &str,
        limits: SessionLimits,
        pool_timeout: Duration,
        events: Events,
    ) -> Self {
        let connectivity = Arc::new(Connectivity::new(events));
        let (database, files) = (database.into(), AtomicU64::new(0));
        PollerSessions { connections, database, limits, pool_timeout, files, connectivity }
    }

    /// Opens a session at once.
    pub(crate) fn open(&self) -> Result<Session<'static, C>, Error> {
        Session::open(&self.connections, self.pool_timeout, self.limits, &Arc::default())
    }

    /// Returns what a thread knows about its connection at first.
    pub(crate) fn unknown(&self) -> ThreadConnection {
        ThreadConnection::new(self.connectivity.clone())
    }

    /// Returns the holder of a worker's session.
    pub(crate) fn of_worker(&self, post: &Post) -> SessionHolder<'static, C> {
        self.holder(post, self.pool_timeout, self.limits)
    }

    /// Returns the holder of the scout's session.
    pub(crate) fn of_scout(&self, post: &Post) -> SessionHolder<'static, C> {
        let limits = SessionLimits { attempts: false, ..self.limits };
        self.holder(post, self.pool_timeout, limits)
    }

    /// Returns the holder of the reporter's session, whose statements end before the database counts as silent.
    pub(crate) fn of_reporter(&self, post: &Post) -> SessionHolder<'static, C> {
        let statement_timeout = self.limits.statement_timeout.min(post.patience() / 2);
        self.holder(post, self.pool_timeout, SessionLimits { attempts: false, statement_timeout, ..self.limits })
    }

    /// Returns the holder of the heartbeat's session, which has to answer within the heartbeat's pause.
    pub(crate) fn of_heartbeat(&self, post: &Post, pause: Duration) -> SessionHolder<'static, C> {
        // A lock that is held for long must not keep the other leases from being extended.
        let timeout = pause.max(Duration::from_secs(1));
        let limits = SessionLimits {
            lock_timeout: self.limits.lock_timeout.min(pause),
            timeout,
            statement_timeout: timeout,
            attempts: false,
        };
        self.holder(post, self.pool_timeout.min(pause), limits)
    }

    fn holder(&self, post: &Post, pool_timeout: Duration, limits: SessionLimits) -> SessionHolder<'static, C> {
        let (connection, wait) = (post.connection.clone(), post.wait.clone());
        SessionHolder::new(self.connections.clone(), pool_timeout, limits, connection, wait)
    }

    /// Notes that another file has replaced the database's. Returns how often that has happened.
    pub(crate) fn note_moved_file(&self) -> u64 {
        self.files.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns how often another file has replaced the database's.
    pub(crate) fn files(&self) -> u64 {
        self.files.load(Ordering::Acquire)
    }
}
