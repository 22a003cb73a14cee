//! A worker's hold on a leased row, shared by the handler, the heartbeat and the lane.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::wake::unpoisoned;

/// What is known of one lease, by this process's monotonic clock.
#[derive(Debug)]
pub(crate) struct Hold {
    lease: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// When the statement was sent whose success confirmed the lease last. The lease ends no earlier than this and the
    /// lease's length, by whatever clock.
    confirmed: Instant,
    /// When the handler's time is over.
    deadline: Instant,
    ended: Option<Ended>,
}

/// Why a lease is held no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The row is no longer in the state in which this worker claimed it.
    Overtaken,
    /// Half the lease has passed without a sign that it is still ours.
    Unconfirmed,
    /// The handler took longer than its budget.
    OverBudget,
    /// The poller shut down and the grace was over.
    Shutdown,
}

impl Hold {
    /// A lease that was claimed by a statement sent at `claimed`, for a handler that may take `budget` from now.
    pub(crate) fn new(claimed: Instant, lease: Duration, budget: Duration) -> Self {
        let deadline = far_from(Instant::now(), budget);
        Hold { lease, state: Mutex::new(State { confirmed: claimed, deadline, ended: None }) }
    }

    /// Begins the handler's time anew: the row may have waited for a worker.
    pub(crate) fn begin(&self, budget: Duration) {
        self.state().deadline = far_from(Instant::now(), budget);
    }

    /// Says that a statement sent at `sent` has extended the lease.
    pub(crate) fn confirm(&self, sent: Instant) {
        let mut state = self.state();
        state.confirmed = state.confirmed.max(sent);
    }

    /// Ends the hold, unless it has ended before; returns whether it was this call that did.
    pub(crate) fn end(&self, why: Ended) -> bool {
        let mut state = self.state();
        let first = state.ended.is_none();
        state.ended.get_or_insert(why);
        first
    }

    /// Why the lease is held no longer, if so.
    pub(crate) fn ended(&self) -> Option<Ended> {
        let mut state = self.state();
        let now = Instant::now();
        if state.ended.is_none() && now >= state.deadline {
            state.ended = Some(Ended::OverBudget);
        }
        if state.ended.is_none() && now.duration_since(state.confirmed) >= self.lease / 2 {
            state.ended = Some(Ended::Unconfirmed);
        }
        state.ended
    }

    /// Moves the end of the handler's time, if it lies before `by` from now.
    pub(crate) fn extend(&self, by: Duration) -> Result<(), Ended> {
        if let Some(why) = self.ended() {
            return Err(why);
        }
        let mut state = self.state();
        state.deadline = state.deadline.max(far_from(Instant::now(), by));
        Ok(())
    }

    /// When the lease was confirmed last.
    pub(crate) fn confirmed(&self) -> Instant {
        self.state().confirmed
    }

    /// When the handler's time is over.
    pub(crate) fn deadline(&self) -> Instant {
        self.state().deadline
    }

    fn state(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }
}

/// The instant after a duration that may be longer than the clock reaches.
fn far_from(now: Instant, duration: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    now + duration.min(FAR)
}
