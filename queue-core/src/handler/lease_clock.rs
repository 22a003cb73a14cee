//! How long a lease still holds, as the handler and the heartbeat see it.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use crate::lock::Mutex;

/// What this process knows about one lease, by its monotonic clock.
#[derive(Debug)]
pub(crate) struct LeaseClock {
    pub(crate) lease: Duration,
    state: Mutex<ClockState>,
}

#[derive(Debug)]
struct ClockState {
    /// When this process sent the last statement that claimed or extended the lease. The lease ends no earlier than
    /// this time plus its length, whatever the clock.
    confirmed: Instant,
    /// When the handler's time is over.
    deadline: Instant,
    /// Whether the handler has answered and its answer is being written.
    settling: bool,
    ended: Option<LeaseEnd>,
}

/// Why a lease has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseEnd {
    /// The row is no longer in the state in which this worker claimed it.
    Overtaken,
    /// Half the lease has passed without an answer from the database that confirms it.
    Unconfirmed,
    /// The handler took longer than its timeout.
    TimedOut,
    /// The poller shut down and the grace was over.
    Shutdown,
}

impl LeaseClock {
    /// Starts the clock of a lease whose claim was sent at `claimed`. The row still waits for a worker.
    pub(crate) fn new(claimed: Instant, lease: Duration) -> Self {
        let deadline = far_from(claimed, Duration::MAX);
        let state = ClockState { confirmed: claimed, deadline, settling: false, ended: None };
        LeaseClock { lease, state: Mutex::new(state) }
    }

    /// Begins the handler's time.
    pub(crate) fn begin(&self, timeout: Duration) {
        self.state.lock().deadline = far_from(Instant::now(), timeout);
    }

    /// Ends the handler's time, because it has answered, while its answer waits for a worker that writes it. The heartbeat
    /// goes on extending the lease.
    pub(crate) fn awaits_writing(&self) {
        if self.ended() != Some(LeaseEnd::TimedOut) {
            let mut state = self.state.lock();
            (state.deadline, state.settling) = (far_from(Instant::now(), Duration::MAX), false);
        }
    }

    /// Ends the handler's time, because it has answered. Returns why the lease has ended, if it has.
    pub(crate) fn answered(&self) -> Option<LeaseEnd> {
        let ended = self.ended();
        let mut state = self.state.lock();
        state.settling = true;
        // The scout may have ended the lease between the two calls.
        state.ended.or(ended)
    }

    /// Moves the end of the handler's time to `by` from now, unless it is later already.
    pub(crate) fn extend(&self, by: Duration) -> Result<(), LeaseEnd> {
        if let Some(why) = self.ended() {
            return Err(why);
        }
        let mut state = self.state.lock();
        state.deadline = state.deadline.max(far_from(Instant::now(), by));
        Ok(())
    }

    /// Notes that a statement sent at `sent` has extended the lease.
    pub(crate) fn confirm(&self, sent: Instant) {
        let mut state = self.state.lock();
        state.confirmed = state.confirmed.max(sent);
    }

    /// Ends the lease, and returns whether this call ended it. A lease that was only unconfirmed counts as not ended
    /// yet. `Overtaken` replaces every other reason, because nothing may be written on a row that belongs to somebody
    /// else.
    pub(crate) fn end(&self, why: LeaseEnd) -> bool {
        let mut state = self.state.lock();
        let first = matches!(state.ended, None | Some(LeaseEnd::Unconfirmed));
        if first || why == LeaseEnd::Overtaken {
            state.ended = Some(why);
        }
        first
    }

    /// Returns why the lease has ended, if it has.
    pub(crate) fn ended(&self) -> Option<LeaseEnd> {
        let mut state = self.state.lock();
        let now = Instant::now();
        // An unconfirmed lease times out too: the heartbeat extends it again as soon as it can, and a handler that
        // never returns would keep its row for ever.
        if matches!(state.ended, None | Some(LeaseEnd::Unconfirmed)) && !state.settling && now >= state.deadline {
            state.ended = Some(LeaseEnd::TimedOut);
        }
        if state.ended.is_none() && now.duration_since(state.confirmed) >= self.lease / 2 {
            state.ended = Some(LeaseEnd::Unconfirmed);
        }
        state.ended
    }

    /// Tells whether the heartbeat should extend the lease: it was not confirmed lately, and no answer is being
    /// written.
    pub(crate) fn is_due_for_renewal(&self) -> bool {
        let wanted = matches!(self.ended(), None | Some(LeaseEnd::Unconfirmed));
        let state = self.state.lock();
        wanted && !state.settling && state.confirmed.elapsed() >= self.lease / 8
    }

    /// Returns the earliest time at which the lease can end, by this process's clock.
    pub(crate) fn holds_until(&self) -> Instant {
        self.state.lock().confirmed + self.lease
    }

    /// Returns when the handler's time is over.
    pub(crate) fn deadline(&self) -> Instant {
        self.state.lock().deadline
    }
}

/// Adds a duration that may be longer than the clock reaches; it is cut to a year.
fn far_from(now: Instant, duration: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    now + duration.min(FAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_lease_without_a_sign_of_life_ends_the_lease_for_good() {
        let lease = Duration::from_secs(60);
        let long_ago = Instant::now().checked_sub(lease / 2).expect("the machine has run for a minute");
        let clock = LeaseClock::new(long_ago, lease);
        assert!(clock.is_due_for_renewal());
        assert_eq!(clock.ended(), Some(LeaseEnd::Unconfirmed));
        clock.confirm(Instant::now());
        assert_eq!(clock.ended(), Some(LeaseEnd::Unconfirmed), "the handler may have given up already");
        assert_eq!(clock.extend(lease), Err(LeaseEnd::Unconfirmed));
    }

    #[test]
    fn a_handler_that_was_told_once_is_past_its_timeout_all_the_same() {
        let lease = Duration::from_secs(60);
        let long_ago = Instant::now().checked_sub(lease / 2).expect("the machine has run for a minute");
        let clock = LeaseClock::new(long_ago, lease);
        assert_eq!(clock.ended(), Some(LeaseEnd::Unconfirmed));
        clock.confirm(Instant::now());
        clock.begin(Duration::ZERO);
        assert_eq!(clock.ended(), Some(LeaseEnd::TimedOut));
        assert!(!clock.is_due_for_renewal());
    }

    #[test]
    fn an_answer_that_waits_to_be_written_is_not_late_and_its_lease_is_extended() {
        let lease = Duration::from_secs(60);
        let claimed = Instant::now().checked_sub(lease / 4).expect("the machine has run for a minute");
        let clock = LeaseClock::new(claimed, lease);
        clock.begin(lease);
        clock.awaits_writing();
        assert!(clock.deadline() > Instant::now() + 2 * lease);
        assert!(clock.is_due_for_renewal());
        assert_eq!(clock.answered(), None);
        let late = LeaseClock::new(Instant::now(), lease);
        late.begin(Duration::ZERO);
        late.awaits_writing();
        assert_eq!(late.answered(), Some(LeaseEnd::TimedOut));
    }

    #[test]
    fn a_handler_past_its_timeout_loses_the_lease_unless_it_asked_for_more_or_has_answered() {
        let clock = || LeaseClock::new(Instant::now(), Duration::from_secs(60));
        let late = clock();
        late.begin(Duration::ZERO);
        assert_eq!(late.ended(), Some(LeaseEnd::TimedOut));
        assert_eq!(late.answered(), Some(LeaseEnd::TimedOut));
        let asked = clock();
        asked.begin(Duration::from_secs(60));
        assert_eq!(asked.extend(Duration::from_secs(600)), Ok(()));
        assert_eq!(asked.ended(), None);
        assert_eq!(asked.answered(), None);
        asked.begin(Duration::ZERO);
        assert_eq!(asked.ended(), None, "what is being written is not taken back");
    }
}
