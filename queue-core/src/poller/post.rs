//! The threads of a poller that use the database, as the other threads see them.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use crate::attempt::{ErasedRow, Slot};
use crate::backend::ServerWait;
use crate::event::ThreadConnection;
use crate::sync::{Mutex, ThreadMark};

/// What a thread of a poller does.
#[derive(Clone)]
pub(crate) enum Duty {
    /// It looks for due rows.
    Scout,
    /// It extends leases.
    Heartbeat,
    /// It reports gauges.
    Reporter,
    /// It processes messages, and registers its attempts here.
    Worker(Arc<Slot>),
}

impl fmt::Display for Duty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Duty::Scout => "the scout",
            Duty::Heartbeat => "the heartbeat",
            Duty::Reporter => "the reporter",
            Duty::Worker(_) => "a worker",
        })
    }
}

/// A thread of a poller that uses the database.
pub(crate) struct Post {
    duty: Duty,
    pub(crate) wait: Arc<ServerWait>,
    pub(crate) connection: ThreadConnection,
    /// How long the database may take to answer.
    patience: Duration,
    /// How long a connect may take.
    connects_for: Duration,
    state: Mutex<PostState>,
    /// What a thread without a slot holds bears this mark.
    pub(super) thread: ThreadMark,
}

#[derive(Default)]
struct PostState {
    /// The runner for which a worker takes a turn.
    turn: Option<usize>,
    is_left_behind: bool,
    has_left: bool,
    /// Dropped when the thread has tried to open its session, or never will.
    has_tried: Option<Sender<()>>,
}

/// What was known of a thread when it was left behind.
pub(crate) struct LeftBehind {
    pub(crate) duty: Duty,
    /// The runner for which it takes a turn.
    pub(crate) turn: Option<usize>,
    /// The row that a worker holds.
    pub(crate) row: Option<ErasedRow>,
    pub(crate) waited: Duration,
}

impl Post {
    pub(crate) fn new(
        duty: Duty,
        connection: ThreadConnection,
        patience: Duration,
        connects_for: Duration,
    ) -> Arc<Self> {
        let (wait, state, thread) = Default::default();
        Arc::new(Post { duty, wait, connection, patience, connects_for, state, thread })
    }

    /// Has this sender dropped when the thread has tried to open its session, or never will.
    pub(crate) fn tells_trial(&self, has_tried: Option<Sender<()>>) {
        self.state.lock().has_tried = has_tried;
    }

    /// Notes that the thread has tried to open its session.
    pub(crate) fn note_trial(&self) {
        self.state.lock().has_tried = None;
    }

    /// Returns where a worker registers its attempts.
    pub(crate) fn slot(&self) -> Option<&Arc<Slot>> {
        if let Duty::Worker(slot) = &self.duty { Some(slot) } else { None }
    }

    /// Returns how long the thread waits for the database before it is left behind.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// Returns how long the thread has waited for the database. `None`: it does not wait, or was left behind.
    pub(crate) fn longest_wait(&self) -> Option<Duration> {
        if self.is_left_behind() { None } else { self.wait.elapsed() }
    }

    /// Notes that a worker begins a turn for a runner.
    pub(crate) fn begin_turn(&self, runner: usize) {
        self.state.lock().turn = Some(runner);
    }

    /// Notes that a worker's turn has ended. Returns whether it was left behind in it.
    pub(crate) fn end_turn(&self) -> bool {
        self.state.lock().turn.take().is_none()
    }

    /// Tells whether another thread has taken this one's place.
    pub(crate) fn is_left_behind(&self) -> bool {
        self.state.lock().is_left_behind
    }

    /// Notes that the thread leaves. Returns whether it was left behind.
    pub(crate) fn leave(&self) -> bool {
        let mut state = self.state.lock();
        (state.has_left, state.has_tried) = (true, None);
        state.is_left_behind
    }

    /// Leaves the thread behind if the database has not answered it for too long. It leaves by itself once the database does.
    pub(crate) fn leave_behind_if_silent(&self) -> Option<LeftBehind> {
        let patience = if self.wait.connects() { self.connects_for } else { self.patience };
        let waited = self.wait.elapsed().filter(|waited| *waited > patience)?;
        let mut state = self.state.lock();
        if state.has_left || state.is_left_behind {
            return None;
        }
        let row = self.slot().map_or(Some(None), |slot| slot.leave_behind())?;
        (state.is_left_behind, state.has_tried) = (true, None);
        self.thread.give_up();
        Some(LeftBehind { duty: self.duty.clone(), turn: state.turn.take(), row, waited })
    }
}
