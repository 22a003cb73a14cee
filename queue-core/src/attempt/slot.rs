//! Where a worker registers its attempt, so that other threads can take the transaction away from it.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::crash::Recorder;
use crate::event::Watch;
use crate::handler::{LeaseClock, LeaseLost, StopSignal};
use crate::sync::in_test::take_late;
use crate::sync::{Mutex, ThreadMark};

/// The attempt that one worker is running.
#[derive(Default)]
pub(crate) struct Slot {
    run: Mutex<Option<Run>>,
    recorder: Recorder,
    /// The number of the runner for which the worker takes a turn.
    runner: AtomicUsize,
    /// The worker's number at the process's gate, see [`GATE`](crate::crash::GATE).
    gate_number: AtomicU64,
    /// Whether another thread has taken this worker's place.
    replaced: AtomicBool,
    /// Whether an attempt of the worker's turn was given up.
    gave_up: AtomicBool,
    /// Tells a handler's async code that its transaction was taken away.
    stop: StopSignal,
    /// What the worker holds bears this mark.
    thread: Mutex<ThreadMark>,
}

/// A running attempt.
struct Run {
    /// The number of its runner.
    runner: usize,
    session: Option<i64>,
    started: Instant,
    timeout: Duration,
    phase: Phase,
    held: Option<ErasedRow>,
    given_up: bool,
    /// Whether a scout has taken the transaction away.
    lost_to_scout: bool,
    /// The clock of a leased row, which tells when the handler's time is over.
    lease: Option<Arc<LeaseClock>>,
    /// The attempts whose handler runs: several if it handles a group at once. None without a listener.
    watches: Vec<Watch>,
}

/// The row of an attempt, as its runner knows it.
pub(crate) type ErasedRow = Box<dyn Any + Send>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The handler may still be stopped.
    Running,
    /// COMMIT is on its way, so nothing can be taken back.
    Committing,
    /// The transaction was taken away.
    Revoked(Revocation),
}

/// Why an attempt lost its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Revocation {
    /// The handler took longer than its timeout.
    TimedOut,
    /// The poller shut down and the grace period was over.
    Shutdown,
}

impl Slot {
    /// Makes the slot of a worker.
    pub(crate) fn new(recorder: Recorder) -> Self {
        Slot { recorder, ..Slot::default() }
    }

    /// Returns what the worker knows about crashes.
    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Notes that the worker takes a turn for the runner with this number.
    pub(crate) fn note_turn_for(&self, runner: usize) {
        self.runner.store(runner, Ordering::Relaxed);
        self.gave_up.store(false, Ordering::Relaxed);
        self.thread.lock().enter();
    }

    /// Notes that an attempt begins on this session.
    pub(crate) fn enter(&self, session: Option<i64>, timeout: Duration) {
        let mut slot = self.run.lock();
        *slot = Some(self.new_run(session, timeout));
        self.stop.reset();
    }

    fn new_run(&self, session: Option<i64>, timeout: Duration) -> Run {
        let (runner, started, phase) = (self.runner.load(Ordering::Relaxed), Instant::now(), Phase::Running);
        let (given_up, lost_to_scout, watches) = (false, false, Vec::new());
        Run { runner, session, started, timeout, phase, held: None, given_up, lost_to_scout, lease: None, watches }
    }

    /// Notes that a handler runs under a lease, without a session.
    pub(crate) fn enter_leased(&self, lease: Arc<LeaseClock>, row: ErasedRow, watch: &Watch) {
        // In one step: the scout must not see a run without an end.
        let run = self.new_run(None, Duration::MAX);
        *self.run.lock() = Some(Run { held: Some(row), lease: Some(lease), watches: heard([watch]), ..run });
    }

    /// Returns what tells the handler's async code that its transaction was taken away.
    pub(crate) fn stop_signal(&self) -> &StopSignal {
        &self.stop
    }

    /// Returns the number of the running attempt's runner, unless that attempt was given up, or its worker was left behind.
    pub(crate) fn runner(&self) -> Option<usize> {
        self.run.lock().as_ref().filter(|run| !run.given_up && !self.is_replaced()).map(|run| run.runner)
    }

    /// Tells whether the handler runs under a lease, and holds no lock and no session.
    pub(crate) fn is_leased(&self) -> bool {
        self.run.lock().as_ref().is_some_and(|run| run.lease.is_some())
    }

    /// Notes which row the attempt holds, so that another thread can record its failure if the handler does not return.
    /// `watches`: the attempts whose handler is about to run.
    pub(crate) fn hold(&self, row: ErasedRow, watches: &[&Watch]) {
        if let Some(run) = &mut *self.run.lock() {
            (run.held, run.watches) = (Some(row), heard(watches.iter().copied()));
        }
    }

    /// Notes the same of one row after others in a transaction: it has its whole time.
    pub(crate) fn hold_next(&self, row: ErasedRow, watch: &Watch) {
        if let Some(run) = &mut *self.run.lock() {
            (run.held, run.watches, run.started) = (Some(row), heard([watch]), Instant::now());
        }
    }

    /// Notes whose handler is about to run now, in a transaction with several.
    pub(crate) fn watch<'w>(&self, watches: impl IntoIterator<Item = &'w Watch>) {
        let watches = heard(watches);
        if let (false, Some(run)) = (watches.is_empty(), &mut *self.run.lock()) {
            run.watches = watches;
        }
    }

    /// Returns the attempts whose handler runs, if there is a listener.
    pub(crate) fn watches(&self) -> Vec<Watch> {
        self.run.lock().as_ref().map(|run| run.watches.clone()).unwrap_or_default()
    }

    /// Gives up an attempt that is past its timeout. The caller gets the row, with the number of its runner,
    /// which [gives up the thread](Slot::give_up_thread) and records the failure.
    pub(crate) fn give_up(&self) -> Option<(usize, ErasedRow)> {
        let mut slot = self.run.lock();
        let run = slot.as_mut().filter(|run| run.phase == Phase::Revoked(Revocation::TimedOut))?;
        let held = run.held.take()?;
        run.given_up = true;
        self.gave_up.store(true, Ordering::Relaxed);
        let runner = run.runner;
        Some((runner, held))
    }

    /// Gives up the thread of an attempt that was given up: what it holds is free.
    pub(crate) fn give_up_thread(&self) {
        self.thread.lock().give_up();
    }

    /// Leaves a worker behind that the database does not answer: another thread takes its place. Returns the row that it
    /// holds, if any; `None` if the attempt was given up, because it is past its timeout. Unless its COMMIT is on its way,
    /// the attempt commits nothing any more.
    pub(crate) fn leave_behind(&self) -> Option<Option<ErasedRow>> {
        let mut slot = self.run.lock();
        if self.gave_up.load(Ordering::Relaxed) {
            return None;
        }
        self.replace();
        self.give_up_thread();
        // What a COMMIT on its way becomes, only the database knows.
        let run = slot.as_mut().filter(|run| run.phase != Phase::Committing);
        Some(run.and_then(|run| {
            if run.phase == Phase::Running {
                run.phase = Phase::Revoked(Revocation::Shutdown);
            }
            run.held.take()
        }))
    }

    /// Returns the runner and the session of an attempt from which a scout has taken the transaction, and which nobody has
    /// given up yet.
    pub(crate) fn awaits_giving_up(&self) -> Option<(usize, Option<i64>)> {
        let is_it = |run: &&Run| run.lost_to_scout && run.held.is_some() && !run.given_up;
        self.run.lock().as_ref().filter(is_it).map(|run| (run.runner, run.session))
    }

    /// Starts another thread in the worker's place, if its attempt was given up and the handler has not returned yet. A worker
    /// that was replaced already keeps the thread that it has.
    pub(crate) fn replace_stuck<E>(&self, start: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        // Under the lock: a worker whose handler returns meanwhile has to see that it was replaced before it waits for work.
        let run = self.run.lock();
        if run.as_ref().is_some_and(|run| run.given_up) && !self.is_replaced() {
            start()?;
            self.replace();
        }
        Ok(())
    }

    /// Notes that the attempt has ended. Returns whether it was given up before.
    pub(crate) fn leave(&self) -> bool {
        self.run.lock().take().is_some_and(|run| run.given_up)
    }

    /// Sets the number by which the process's gate knows the worker.
    pub(crate) fn set_gate_number(&self, number: u64) {
        self.gate_number.store(number, Ordering::Relaxed);
    }

    /// Returns the number by which the process's gate knows the worker.
    pub(crate) fn gate_number(&self) -> u64 {
        self.gate_number.load(Ordering::Relaxed)
    }

    /// Notes that another thread takes the worker's place. The worker leaves when its handler has returned.
    fn replace(&self) {
        self.replaced.store(true, Ordering::Release);
    }

    /// Tells whether another thread has taken the worker's place.
    pub(crate) fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::Acquire)
    }

    /// Takes the transaction away if the timeout is over. Returns why it was taken away, if it was.
    pub(crate) fn check_revoked(&self) -> Option<Revocation> {
        // The scout may be late, and the server's own limit may end the session first. That must not pass for a lost
        // connection: the row would run again without using a try, and take as long.
        self.revoke_if_timed_out(Instant::now());
        match self.run.lock().as_ref()?.phase {
            Phase::Revoked(why) => Some(why),
            Phase::Running | Phase::Committing => None,
        }
    }

    /// Asks to commit. From here on no thread can take the transaction away. If another thread has, the worker must not
    /// commit.
    pub(crate) fn begin_commit(&self) -> Result<(), Revocation> {
        if let Some(run) = self.run.lock().as_mut() {
            if let Phase::Revoked(why) = run.phase {
                return Err(why);
            }
            run.phase = Phase::Committing;
        }
        Ok(())
    }

    /// Takes the transaction away from an attempt that is past its timeout. Returns the number of its runner, and the
    /// session to end.
    pub(crate) fn revoke_if_timed_out(&self, now: Instant) -> Option<(usize, Option<i64>)> {
        self.revoke(Revocation::TimedOut, |run| match &run.lease {
            Some(lease) => lease.ended() == Some(LeaseLost::TimedOut),
            None => take_late() || now.duration_since(run.started) > run.timeout,
        })
    }

    /// Does the same for a scout, which gives the attempt up next.
    pub(crate) fn revoke_by_scout_if_timed_out(&self, now: Instant) -> Option<(usize, Option<i64>)> {
        let revoked = self.revoke_if_timed_out(now);
        if let (Some(_), Some(run)) = (revoked, &mut *self.run.lock()) {
            run.lost_to_scout = true;
        }
        revoked
    }

    /// Takes the transaction away because of shutdown.
    pub(crate) fn revoke_for_shutdown(&self) -> Option<(usize, Option<i64>)> {
        self.revoke(Revocation::Shutdown, |_| true)
    }

    /// Takes the row of an attempt whose transaction was taken away, and its runner, if the row bears a crash mark.
    pub(crate) fn take_marked(&self) -> Option<(usize, ErasedRow)> {
        let mut slot = self.run.lock();
        let is_left = |run: &&mut Run| matches!(run.phase, Phase::Revoked(_)) && self.recorder.has_mark();
        let run = slot.as_mut().filter(is_left)?;
        Some((run.runner, run.held.take()?))
    }

    fn revoke(&self, why: Revocation, applies: impl Fn(&Run) -> bool) -> Option<(usize, Option<i64>)> {
        let mut slot = self.run.lock();
        let run = slot.as_mut().filter(|run| run.phase == Phase::Running && applies(run))?;
        run.phase = Phase::Revoked(why);
        // Under the lock, so that it stops no later attempt.
        self.stop.give();
        let (revoked, watches) = ((run.runner, run.session), run.watches.clone());
        drop(slot);
        if why == Revocation::TimedOut {
            watches.iter().for_each(Watch::mark_past_timeout);
        }
        Some(revoked)
    }

    /// Returns when the running attempt's timeout ends.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.run.lock().as_ref().filter(|run| run.phase == Phase::Running).and_then(|run| match &run.lease {
            Some(lease) => Some(lease.deadline()),
            None => run.started.checked_add(run.timeout),
        })
    }
}

/// Returns the watches that have a listener.
fn heard<'w>(watches: impl IntoIterator<Item = &'w Watch>) -> Vec<Watch> {
    watches.into_iter().filter(|watch| watch.is_heard()).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_commit_on_its_way_is_not_taken_back_and_a_revoked_attempt_does_not_commit() {
        let slot = Slot::default();
        slot.enter(Some(7), Duration::ZERO);
        assert_eq!(slot.begin_commit(), Ok(()));
        assert_eq!(slot.revoke_for_shutdown(), None);
        slot.enter(Some(7), Duration::from_secs(60));
        assert_eq!(slot.revoke_if_timed_out(Instant::now()), None);
        assert_eq!(slot.revoke_for_shutdown(), Some((0, Some(7))));
        assert_eq!(slot.begin_commit(), Err(Revocation::Shutdown));
        slot.leave();
        assert_eq!(slot.check_revoked(), None);
    }

    #[test]
    fn a_handler_that_returns_after_its_timeout_is_revoked_although_the_scout_was_late() {
        let slot = Slot::default();
        slot.enter(Some(7), Duration::ZERO);
        while slot.deadline().is_some_and(|deadline| deadline >= Instant::now()) {}
        assert_eq!(slot.check_revoked(), Some(Revocation::TimedOut));
        assert_eq!(slot.begin_commit(), Err(Revocation::TimedOut));
    }

    #[test]
    fn the_end_of_a_run_can_be_asked_for_at_any_moment() {
        let slot = Slot::default();
        slot.enter(Some(7), Duration::MAX);
        assert_eq!(slot.deadline(), None);
        let lease = Arc::new(LeaseClock::new(Instant::now(), Duration::from_secs(60)));
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                for _ in 0..10_000 {
                    slot.enter_leased(lease.clone(), Box::new(42), &Watch::default());
                }
            });
            while !worker.is_finished() {
                slot.revoke_if_timed_out(Instant::now());
                assert!(slot.deadline().is_none_or(|deadline| deadline > Instant::now()));
            }
        });
        assert_eq!(slot.deadline(), Some(lease.deadline()));
    }

    #[test]
    fn either_the_worker_or_whoever_gives_it_up_has_the_row() {
        let slot = Slot::default();
        slot.enter(Some(7), Duration::from_secs(60));
        slot.hold(Box::new(42), &[]);
        assert!(slot.give_up().is_none(), "it may still succeed");
        assert!(!slot.leave());
        slot.enter(Some(7), Duration::ZERO);
        slot.hold(Box::new(42), &[]);
        while slot.check_revoked().is_none() {}
        assert!(slot.give_up().is_some_and(|(_, row)| row.is::<i32>()));
        assert!(slot.give_up().is_none());
        assert!(slot.leave());
        assert!(!slot.leave());
    }

    #[test]
    fn a_worker_is_replaced_once_and_only_before_its_handler_has_returned() {
        let begin = || {
            let slot = Slot::default();
            slot.enter(Some(7), Duration::ZERO);
            slot.hold(Box::new(42), &[]);
            while slot.check_revoked().is_none() {}
            slot
        };
        let never = || -> Result<(), ()> { panic!("nobody is to take its place") };
        let slot = begin();
        assert_eq!(slot.replace_stuck(never), Ok(()), "its failure is not recorded yet");
        assert!(slot.give_up().is_some());
        assert_eq!(slot.replace_stuck(|| Err("no thread")), Err("no thread"));
        assert!(!slot.is_replaced());
        thread::scope(|scope| {
            let mut worker = None;
            let start = || {
                // The handler returns while the other thread starts: the worker's next question finds itself replaced.
                worker = Some(scope.spawn(|| (slot.leave(), slot.is_replaced())));
                Ok::<_, ()>(())
            };
            assert_eq!(slot.replace_stuck(start), Ok(()));
            assert_eq!(worker.expect("it was started").join().expect("it does not panic"), (true, true));
        });
        assert_eq!(slot.replace_stuck(never), Ok(()));
        let returned = begin();
        assert!(returned.give_up().is_some() && returned.leave());
        assert_eq!(returned.replace_stuck(never), Ok(()));
        assert!(!returned.is_replaced());
    }
}
