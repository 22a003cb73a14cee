//! Which runners have work, which workers are busy, and which threads wait. The board knows runners only by their
//! numbers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, PoisonError};
use std::time::{Duration, Instant};

use crate::attempt::{InFlight, Tally, Turn};
use crate::crash::GATE;
use crate::sync::Mutex;

/// The board on which the threads of a poller note what there is to do, and what they did.
pub(crate) struct WorkBoard {
    board: Mutex<Board>,
    /// Workers without work wait for it.
    work: Condvar,
    /// Threads that wait for others to leave, or for the poller to stop, wait for it.
    ended: Condvar,
    stopping: AtomicBool,
    revoked: AtomicBool,
}

#[derive(Default)]
struct Board {
    runners: Vec<RunnerWork>,
    running: isize,
    /// How many of them were given up, so that no thread waits for their handlers. A turn may end before it is counted
    /// here.
    stuck: isize,
    /// The runner that a worker asks first, so that a busy one starves no other.
    next: usize,
    tally: Tally,
    /// How many turns have ended.
    turns: u64,
    /// How many threads have not left.
    threads: isize,
    /// How many of them the database does not answer. Others have taken their places.
    left_behind: isize,
    /// Whether the scout has found nothing more to do, or has stopped.
    has_scouted: bool,
}

impl Board {
    /// Permits a turn for the next runner that has work.
    fn permit(&mut self, is_stopping: bool) -> Option<TurnPermit> {
        let runners = self.runners.len();
        let is_open = |runner: &usize| self.runners[*runner].is_open(is_stopping);
        let runner = (0..runners).map(|i| (self.next + i) % runners).find(is_open)?;
        self.next = (runner + 1) % runners;
        self.running += 1;
        self.runners[runner].working += 1;
        Some(TurnPermit { runner, generation: self.runners[runner].generation })
    }

    fn is_only_work(&self, runner: usize) -> bool {
        let is_at_rest = |work: &RunnerWork| !work.has_work && !work.has_answers();
        self.runners.iter().enumerate().all(|(other, work)| other == runner || is_at_rest(work))
    }

    /// Returns how many threads there are, but for those that are stuck or left behind.
    fn at_work(&self) -> isize {
        self.threads - self.stuck - self.left_behind
    }

    /// Tells whether rows are left whose calls have begun beside the workers.
    fn has_calls(&self) -> bool {
        self.runners.iter().any(RunnerWork::has_calls)
    }
}

#[derive(Default)]
struct RunnerWork {
    has_work: bool,
    /// Whether one message is processed at a time, anywhere.
    is_exclusive: bool,
    /// How many workers may be busy with it as long as nothing else limits it.
    share: isize,
    /// How many workers are busy with it, and how many may be. Stuck workers have been replaced, and do not count.
    working: isize,
    most: isize,
    /// Raised whenever there may be work. A worker that found none takes back only the work that it has seen.
    generation: u64,
    /// How many turns in a row found nothing although there seemed to be work.
    empty_turns: u32,
    /// The counts of its calls beside the workers, if there are any.
    calls: Option<Arc<InFlight>>,
}

impl RunnerWork {
    /// Tells whether one more worker may take a turn. While the poller stops, it settles rows whose calls have ended, and
    /// does nothing else.
    fn is_open(&self, is_stopping: bool) -> bool {
        let has_room = self.calls.as_ref().is_none_or(|calls| calls.has_room());
        let may_claim = self.has_work && has_room && !is_stopping;
        self.working < self.most && (may_claim || self.has_answers())
    }

    /// Tells whether calls have ended whose rows are to be settled.
    fn has_answers(&self) -> bool {
        self.calls.as_ref().is_some_and(|calls| calls.has_answers())
    }

    /// Tells whether rows are left whose calls have begun beside the workers.
    fn has_calls(&self) -> bool {
        self.calls.as_ref().is_some_and(|calls| calls.unsettled() > 0)
    }

    /// Notes that there may be work.
    fn note_work(&mut self) {
        self.has_work = true;
        self.generation += 1;
    }
}

/// A worker's permit to take a turn for a runner.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnPermit {
    pub(crate) runner: usize,
    generation: u64,
}

impl WorkBoard {
    /// Makes a board for runners, each with its largest number of workers, with whether it is exclusive, and with the
    /// counts of its calls beside the workers.
    pub(crate) fn new(runners: impl IntoIterator<Item = (usize, bool, Option<Arc<InFlight>>)>) -> Self {
        let work = |(most, is_exclusive, calls)| RunnerWork {
            share: isize::try_from(most).unwrap_or(isize::MAX),
            most: isize::try_from(most).unwrap_or(isize::MAX),
            is_exclusive,
            calls,
            ..RunnerWork::default()
        };
        WorkBoard {
            board: Mutex::new(Board { runners: runners.into_iter().map(work).collect(), ..Board::default() }),
            work: Condvar::new(),
            ended: Condvar::new(),
            stopping: AtomicBool::new(false),
            revoked: AtomicBool::new(false),
        }
    }

    /// Tells whether the poller stops.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Stops the poller: workers finish their turns, and waiting threads wake. Returns whether it was not stopping before.
    pub(crate) fn stop(&self) -> bool {
        let was_stopping = self.stopping.swap(true, Ordering::AcqRel);
        self.release_waiting();
        !was_stopping
    }

    /// Notes that the grace period of a shutdown is over, and running handlers are left behind.
    pub(crate) fn revoke(&self) {
        self.revoked.store(true, Ordering::Release);
        self.release_waiting();
    }

    /// Tells whether the grace period of a shutdown is over, and running handlers are left behind.
    pub(crate) fn has_revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }

    /// Notes that a runner may have work. One waiting worker wakes, and wakes the next when it finds some.
    pub(crate) fn signal_work(&self, runner: usize) {
        self.board.lock().runners[runner].note_work();
        self.work.notify_one();
    }

    /// Wakes a waiting worker, because a call beside the workers has ended, or one more may begin.
    pub(crate) fn wake_for_calls(&self) {
        // A worker that has just found nothing waits before this notifies it.
        drop(self.board.lock());
        self.work.notify_one();
    }

    /// Finds a runner that has work. `None`: there is none, or the poller stops.
    pub(crate) fn find_work(&self) -> Option<TurnPermit> {
        if self.has_revoked() { None } else { self.board.lock().permit(self.is_stopping()) }
    }

    /// Waits for a runner that has work. `None`: the poller stops, and no calls are left whose rows workers settle.
    pub(crate) fn wait_for_work(&self) -> Option<TurnPermit> {
        let mut board = self.board.lock();
        loop {
            let is_stopping = self.is_stopping();
            if self.has_revoked() || (is_stopping && !board.has_calls()) {
                return None;
            }
            if let Some(permit) = board.permit(is_stopping) {
                return Some(permit);
            }
            board = self.work.wait(board).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Notes that a worker has claimed a row, and wakes the next worker. `has_more`: more rows are claimed already, for
    /// any worker.
    pub(crate) fn found_work(&self, runner: usize, has_more: bool) {
        let mut board = self.board.lock();
        let work = &mut board.runners[runner];
        work.empty_turns = 0;
        if work.is_exclusive {
            // Nobody else finds any before the end of the turn, which signals work again.
            work.has_work = false;
            return;
        }
        if has_more {
            // Another worker may have found nothing more to claim meanwhile, and reported that the runner is drained.
            work.note_work();
        }
        drop(board);
        self.work.notify_one();
    }

    /// Gives a turn back. Returns whether the runner has just been drained.
    pub(crate) fn end_turn(&self, permit: TurnPermit, turn: Turn) -> bool {
        let mut board = self.board.lock();
        board.tally.count(turn);
        board.running -= 1;
        board.stuck -= isize::from(turn == Turn::GivenUp);
        board.turns += 1;
        let work = &mut board.runners[permit.runner];
        work.working -= isize::from(turn != Turn::GivenUp);
        let mut drained = false;
        if turn != Turn::Idle && work.is_exclusive {
            work.note_work();
            self.work.notify_one();
        }
        if turn == Turn::Idle && work.has_work && work.generation == permit.generation {
            work.has_work = false;
            work.empty_turns = work.empty_turns.saturating_add(1);
            drained = true;
        }
        if work.is_open(false) && work.working + 1 == work.most {
            // Other workers may have found it closed.
            self.work.notify_one();
        }
        // The scout is to look, although no worker has: with the last call the last work may be done.
        drained |= turn != Turn::Idle && work.calls.is_some() && !work.has_work && !work.has_calls();
        if self.is_stopping() && !board.has_calls() {
            // The other workers wait for the last of the calls.
            self.work.notify_all();
        }
        drained
    }

    /// Counts a message after which the worker takes the next one in the same turn, unless another runner has work or the runner has
    /// more workers than it may have. Returns whether it does.
    pub(crate) fn try_go_on(&self, permit: &mut TurnPermit, turn: Turn) -> bool {
        let mut board = self.board.lock();
        let work = &board.runners[permit.runner];
        // The limit may be a new one.
        let goes_on = work.working <= work.most && board.is_only_work(permit.runner);
        if goes_on {
            board.tally.count(turn);
            board.turns += 1;
            permit.generation = board.runners[permit.runner].generation;
        }
        goes_on
    }

    /// Notes that a turn was given up. It ends as [`Turn::GivenUp`], if it ends. What becomes of its row is counted by itself.
    pub(crate) fn give_up_turn(&self, runner: usize) {
        let mut board = self.board.lock();
        board.stuck += 1;
        board.runners[runner].working -= 1;
        board.turns += 1;
        drop(board);
        self.ended.notify_all();
        // The runner may have had as many workers as it may have at the same time.
        self.work.notify_one();
    }

    /// Leaves a thread behind that the database does not answer, in a turn for this runner if it takes one.
    pub(crate) fn leave_behind(&self, turn: Option<usize>) {
        let mut board = self.board.lock();
        board.left_behind += 1;
        if let Some(runner) = turn {
            board.running -= 1;
            board.runners[runner].working -= 1;
            board.turns += 1;
        }
        drop(board);
        self.ended.notify_all();
        self.work.notify_one();
    }

    /// Counts what has become of a turn that was given up, or in which the worker was left behind.
    pub(crate) fn count(&self, turn: Turn) {
        self.board.lock().tally.count(turn);
    }

    /// Notes that the scout has found nothing more to do, or has stopped.
    pub(crate) fn note_scouted(&self) {
        self.board.lock().has_scouted = true;
        self.ended.notify_all();
    }

    /// Tells whether the poller stops and no thread is at work any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_stopping() && self.board.lock().at_work() <= 0
    }

    /// Tells whether the scout has ended.
    pub(crate) fn has_scouted(&self) -> bool {
        self.board.lock().has_scouted
    }

    /// Waits until the scout has ended, or the poller stops.
    pub(crate) fn wait_for_scout(&self) {
        let board = self.board.lock();
        drop(self.ended.wait_while(board, |board| !board.has_scouted && !self.is_stopping()));
    }

    /// Returns whether the runner has work, and how many turns in a row found nothing.
    pub(crate) fn work_of(&self, runner: usize) -> (bool, u32) {
        let board = self.board.lock();
        (board.runners[runner].has_work, board.runners[runner].empty_turns)
    }

    /// Tells whether no other runner has work, as far as is known.
    pub(crate) fn is_only_work(&self, runner: usize) -> bool {
        self.board.lock().is_only_work(runner)
    }

    /// Tells whether no runner has work, no turn is taken and no call is in flight.
    pub(crate) fn is_quiet(&self) -> bool {
        let board = self.board.lock();
        board.running == board.stuck && !board.has_calls() && board.runners.iter().all(|runner| !runner.has_work)
    }

    /// Counts rows that a shutdown has taken from their calls.
    pub(crate) fn count_interrupted(&self, rows: usize) {
        let interrupted = u64::try_from(rows).unwrap_or(u64::MAX);
        self.board.lock().tally.count(Turn::Group(Tally { interrupted, ..Tally::default() }));
    }

    /// Returns how many turns have ended.
    pub(crate) fn turns(&self) -> u64 {
        self.board.lock().turns
    }

    /// Sets how many workers may be busy with a runner; `None`: as many as from the start.
    pub(crate) fn limit(&self, runner: usize, most: Option<u32>) {
        let mut board = self.board.lock();
        let work = &mut board.runners[runner];
        work.most = most.map_or(work.share, |most| isize::try_from(most).unwrap_or(isize::MAX));
        drop(board);
        self.work.notify_all();
    }

    /// Waits until no turn is taken and no call is in flight, as far as threads wait for them, but not longer than this. Returns
    /// whether that is so, or handlers were stopped that did not end.
    pub(crate) fn wait_for_turns(&self, patience: Duration) -> bool {
        let is_busy = |board: &mut Board| (board.running > board.stuck || board.has_calls()) && !self.has_revoked();
        let waited = self.ended.wait_timeout_while(self.board.lock(), patience, is_busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Sleeps, but not beyond the poller's stop.
    pub(crate) fn pause(&self, pause: Duration) {
        drop(self.ended.wait_timeout_while(self.board.lock(), pause, |_| !self.is_stopping()));
    }

    /// Wakes every waiting thread, which then sees that the poller stops.
    fn release_waiting(&self) {
        drop(self.board.lock());
        self.work.notify_all();
        self.ended.notify_all();
        GATE.ask_again();
    }

    /// Counts a thread of the poller that is about to start.
    pub(crate) fn add_thread(&self) {
        self.board.lock().threads += 1;
    }

    /// Takes a worker, the scout or the heartbeat off that has left.
    pub(crate) fn remove_thread(&self, was_left_behind: bool) {
        let mut board = self.board.lock();
        board.threads -= 1;
        board.left_behind -= isize::from(was_left_behind);
        drop(board);
        self.ended.notify_all();
    }

    /// Sleeps, but not beyond the moment at which the poller stops or a thread leaves. Once the poller stops, those
    /// moments may be past: then it sleeps for `stopping` at most.
    pub(crate) fn sleep_until_change(&self, pause: Duration, stopping: Duration) {
        let board = self.board.lock();
        let pause = if self.is_stopping() { stopping.min(pause) } else { pause };
        drop(self.ended.wait_timeout(board, pause));
    }

    /// Tells whether the calling thread is the last one, apart from those for which no thread waits.
    pub(crate) fn is_last(&self) -> bool {
        self.board.lock().at_work() <= 1
    }

    /// Tells whether every thread has left, the stuck ones too.
    pub(crate) fn is_empty(&self) -> bool {
        self.board.lock().threads == 0
    }

    /// Waits until every thread has left for which others wait, but not beyond the deadline. Returns whether they have.
    pub(crate) fn wait_until_done(&self, deadline: Option<Instant>) -> bool {
        let (board, is_at_work) = (self.board.lock(), |board: &mut Board| board.at_work() > 0);
        let Some(deadline) = deadline else {
            drop(self.ended.wait_while(board, is_at_work));
            return true;
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self.ended.wait_timeout_while(board, left, is_at_work).unwrap_or_else(PoisonError::into_inner);
        !waited.1.timed_out()
    }

    /// Returns how many turns were given up whose handlers have not returned.
    pub(crate) fn stuck(&self) -> usize {
        usize::try_from(self.board.lock().stuck).unwrap_or(0)
    }

    /// Tells whether one more worker could work for a runner, if it had work.
    pub(crate) fn has_free_worker(&self, runner: usize) -> bool {
        let board = self.board.lock();
        let work = &board.runners[runner];
        work.working < work.most && work.calls.as_ref().is_none_or(|calls| calls.has_room())
    }

    /// Returns the counts so far.
    pub(crate) fn tally(&self) -> Tally {
        self.board.lock().tally
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn a_turn_that_is_given_up_makes_room_for_a_waiting_worker() {
        let board = Arc::new(WorkBoard::new([(1, false, None)]));
        board.signal_work(0);
        assert_eq!(board.wait_for_work().map(|permit| permit.runner), Some(0));
        let (found, finds) = mpsc::channel();
        let waiting = board.clone();
        // It waits until the only permit comes back, or finds it.
        let waits = thread::spawn(move || found.send(waiting.wait_for_work().map(|permit| permit.runner)));
        assert!(board.find_work().is_none());
        board.give_up_turn(0);
        assert_eq!(finds.recv_timeout(PATIENCE), Ok(Some(0)), "the waiting worker sleeps on");
        waits.join().expect("it does not panic").expect("the test has waited");
    }
}
