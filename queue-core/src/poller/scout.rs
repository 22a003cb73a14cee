//! The scout: the one thread of a poller that probes for due rows while the workers sleep, and enforces their timeouts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use super::control_watch::ControlWatch;
use super::gate::Gate;
use super::listener::Listener;
use super::poll_timer::PollTimer;
use super::replace_stuck::replace_stuck;
use super::shared::PollerShared;
use super::wake::WakeReasons;
use crate::backend::{LockSql, QueueConnection, SessionHolder};
use crate::claim::PROBE_INTERVAL;
use crate::entity::{Retry, RetryPolicy, jittered};
use crate::error::{Error, panic_text};
use crate::row::{HORIZON, failure_text};

/// How long the scout leaves a runner alone whose due rows nobody could claim. The pause doubles up to the poll
/// interval.
const HELD_PAUSE: Duration = Duration::from_millis(50);

/// The shortest time for which a window stays closed: a closure of no time would not say that nothing is due.
const SHORTEST_CLOSURE: Duration = Duration::from_millis(1);

/// The shortest time between two searches for the records of dead processes.
const SHORTEST_ADOPTION: Duration = Duration::from_secs(1);

/// How the scout backs off from a database in trouble.
const BACKOFF: Retry = Retry::exponential(Duration::from_millis(50)).max(Duration::from_millis(400));

/// The pause between two tries to read the control table for the first time.
const UNTIL_KNOWN: Duration = Duration::from_millis(20);

/// How long the scout rests after a panic of its own.
const RESTART: Duration = Duration::from_secs(1);

/// The result of a probe for a runner.
enum Seen {
    /// Its window is closed for this long.
    Closed(Duration),
    /// The next row is due after this time. `None`: no row is known to become due.
    Due(Option<Duration>),
}

/// The scout before it starts.
pub(crate) struct Scout<C: QueueConnection> {
    shared: Arc<PollerShared<C>>,
    listener: Listener,
    control: ControlWatch,
    until_idle: bool,
}

impl<C: QueueConnection> Scout<C> {
    pub(crate) fn new(shared: Arc<PollerShared<C>>, listener: Listener, until_idle: bool) -> Self {
        let control = ControlWatch::new(shared.settings.control, shared.runners.len());
        Scout { shared, listener, control, until_idle }
    }

    /// Probes until the poller stops, or, if `until_idle` is set, until nothing is due. `has_tried` is dropped when the
    /// scout has tried to open its session.
    pub(crate) fn run(mut self, has_tried: Sender<()>) {
        let shared = self.shared.clone();
        // A panic is ours or the driver's. Without a scout, no worker would process the rows that become due.
        let mut has_tried = Some(has_tried);
        while let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.watch(&shared, &mut has_tried))) {
            shared.log.warn("poller", &format!("the scout panicked, and begins anew: {}", panic_text(panic)));
            shared.board.pause(RESTART);
        }
    }

    fn watch(&mut self, shared: &PollerShared<C>, has_tried: &mut Option<Sender<()>>) {
        let now = Instant::now();
        let mut timers: Vec<_> = shared.runners.iter().map(|_| PollTimer::new(now)).collect();
        let mut holder = shared.sessions.of_scout();
        // If it cannot be opened, the first probe logs why.
        let has_tried = has_tried.take();
        let _ = holder.session();
        self.read_clock(&mut holder);
        drop(has_tried);
        let mut next_adoption = now;
        let mut file = None;
        while !shared.board.is_stopping() {
            if next_adoption <= Instant::now() {
                shared.crashes.adopt();
                self.follow_file(&mut holder, &mut file);
                self.read_clock(&mut holder);
                next_adoption = Instant::now() + shared.settings.poll_interval.max(SHORTEST_ADOPTION);
            }
            if !self.control.look(&mut holder, shared, &mut timers) {
                // A row that is paused must not begin because nobody knows of it yet.
                shared.board.pause(UNTIL_KNOWN);
                continue;
            }
            for (runner, timer) in timers.iter_mut().enumerate() {
                if timer.next_probe <= Instant::now() {
                    timer.nothing_due = self.probe_safely(&mut holder, runner, timer);
                }
            }
            self.read_oldest_due(&mut holder);
            self.enforce_timeouts(&mut holder);
            if self.until_idle && shared.board.is_quiet() {
                let turns = shared.board.turns();
                let mut stale = timers.iter_mut().filter(|timer| timer.turns_seen != turns).peekable();
                if stale.peek().is_some() {
                    // A handler may have made rows of another queue due.
                    stale.for_each(|timer| timer.probe_now(Instant::now()));
                    continue;
                }
                if timers.iter().all(|timer| timer.nothing_due)
                    && !shared
                        .runners
                        .iter()
                        .zip(&shared.gates)
                        .any(|(runner, gate)| gate.is_open() && runner.served().has_interrupted())
                {
                    self.control.tell_what_is_left(shared);
                    return;
                }
            }
            let reasons = self.wait(&mut holder, &mut timers);
            self.answer(reasons, &mut timers);
        }
    }

    /// Reads the database's clock for the listeners, if there are any and it was not read lately.
    fn read_clock(&self, holder: &mut SessionHolder<C>) {
        let Some(clock) = self.shared.events.clock().filter(|clock| clock.has_to_be_read()) else { return };
        let (queue, asked) = (self.shared.runners[0].served(), Instant::now());
        // The next probe logs trouble with the session.
        if let Ok(Ok(now)) = holder.session().map(|session| queue.present(session)) {
            clock.tell(now, asked);
        }
    }

    /// Reads how long rows have been due, for those who ask how the poller is. A busy poller does not probe for due rows.
    fn read_oldest_due(&self, holder: &mut SessionHolder<C>) {
        for (number, runner) in self.shared.runners.iter().enumerate() {
            if !self.shared.health.wants(number) {
                continue;
            }
            let asked = Instant::now();
            // The next probe logs trouble with the session.
            let Ok(Ok(oldest)) = holder.session().map(|session| runner.served().oldest_due(session)) else { return };
            self.shared.health.has_read(number, oldest, asked);
        }
    }

    /// Moves to the file that has replaced the database's, as when a backup is restored. An open connection stays with
    /// the old file, which has no name any more.
    fn follow_file(&self, holder: &mut SessionHolder<C>, file: &mut Option<(u64, u64)>) {
        let shared = &*self.shared;
        if !C::Backend::ONE_WRITER {
            return;
        }
        // The next probe logs trouble with the session.
        let Ok(Ok(Some(found))) = holder.session().map(|session| session.file_identity()) else { return };
        if file.replace(found).is_some_and(|before| before != found) {
            let text = "another file is in the place of the database's: all sessions go on in that one; if it was put there \
                        while the queue ran, what was committed to the old one since its copy was made is lost";
            shared.log.warn("poller", text);
            shared.sessions.connections.close_idle();
            let files = shared.sessions.file_has_moved();
            holder.move_to_file(files);
        }
    }

    /// Probes for one runner as [`probe`](Self::probe) does. A user's condition that panics must not keep the scout from the
    /// other runners.
    fn probe_safely(&mut self, holder: &mut SessionHolder<C>, runner: usize, timer: &mut PollTimer) -> bool {
        catch_unwind(AssertUnwindSafe(|| self.probe(holder, runner, timer))).unwrap_or_else(|panic| {
            self.back_off(holder, runner, timer, &format!("looking for due rows panicked: {}", panic_text(panic)));
            false
        })
    }

    /// Probes for one runner and decides when to probe again. Returns whether nothing is due.
    fn probe(&mut self, holder: &mut SessionHolder<C>, runner: usize, timer: &mut PollTimer) -> bool {
        let shared = &*self.shared;
        // Before the probe: it may not see rows that are announced from here on.
        shared.wake_signal.begins_probe(shared.runners[runner].info().queue);
        let is_routine = timer.begins_probe(Instant::now());
        let interval = jittered(shared.settings.poll_interval, 0.1, fastrand::f64()).min(HORIZON);
        let (has_work, empty_turns) = shared.board.work_of(runner);
        if has_work {
            // The workers are busy, and report when they find nothing more.
            match self.probe_low_water(holder, runner, timer) {
                Ok(()) => {
                    let until_low_water_probe = timer.next_low_water_probe.saturating_duration_since(Instant::now());
                    // If an enqueue is still awaited then, the scout probes for it after them.
                    timer.next_probe = Instant::now() + interval.min(until_low_water_probe);
                }
                Err(error) => self.back_off(holder, runner, timer, &format!("cannot look beside the workers: {error}")),
            }
            return false;
        }
        timer.turns_seen = shared.board.turns();
        if shared.gates[runner].is_paused() {
            // The end of the pause brings a probe.
            timer.back_off(interval);
            return true;
        }
        let probed = self.ask_whether_open(holder, runner).and_then(|closed_for| match closed_for {
            Some(closed_for) => Ok(Seen::Closed(closed_for.max(SHORTEST_CLOSURE))),
            None => Ok(Seen::Due(shared.runners[runner].served().probe_due(holder.session()?, self.until_idle)?)),
        });
        let seen = match probed {
            Ok(seen) => seen,
            Err(error) => {
                let error = failure_text(&error, 500);
                self.back_off(holder, runner, timer, &format!("cannot look for due rows: {error}"));
                return false;
            }
        };
        timer.troubles = 0;
        shared.health.has_looked();
        match seen {
            Seen::Due(Some(Duration::ZERO)) => {
                shared.board.signal_work(runner);
                timer.found(Instant::now());
                if is_routine && empty_turns <= 1 {
                    self.listener.has_missed(runner, holder, shared);
                }
                // If nobody can claim the due rows, others hold them: the next probe comes after a pause, whatever news
                // of rows there is.
                let wait = HELD_PAUSE.saturating_mul(1 << empty_turns.min(10)).min(interval);
                // Work always ends with one turn that finds nothing more.
                let is_held = empty_turns > 1;
                timer.probe_again_in(wait, if is_held { HELD_PAUSE } else { Duration::ZERO }, false);
                return false;
            }
            Seen::Due(Some(due_in)) => timer.probe_again_in(due_in.min(interval), Duration::ZERO, false),
            Seen::Due(None) => timer.probe_again_in(interval, Duration::ZERO, true),
            Seen::Closed(closed_for) => timer.back_off(closed_for.min(interval)),
        }
        true
    }

    /// Probes beside the workers, if it is time for that.
    fn probe_low_water(
        &self,
        holder: &mut SessionHolder<C>,
        runner: usize,
        timer: &mut PollTimer,
    ) -> Result<(), String> {
        let now = Instant::now();
        if now < timer.next_low_water_probe {
            return Ok(());
        }
        let asked = self.ask_whether_open(holder, runner);
        let probed = asked.and_then(|_| Ok(self.shared.runners[runner].served().probe_low_water(holder.session()?)?));
        probed.map_err(|error| failure_text(&error, 500))?;
        (timer.troubles, timer.next_low_water_probe) = (0, now + PROBE_INTERVAL);
        Ok(())
    }

    /// Leaves a database in trouble alone for a while.
    fn back_off(&self, holder: &mut SessionHolder<C>, runner: usize, timer: &mut PollTimer, trouble: &str) {
        self.shared.warn(runner, trouble);
        holder.close();
        timer.troubles += 1;
        let pause = BACKOFF.delay(timer.troubles).unwrap_or(self.shared.settings.poll_interval);
        timer.back_off(jittered(pause, 1.0, fastrand::f64()));
    }

    /// Sleeps until something is to be done or somebody wakes the scout. If it listens for notifications, it receives
    /// them meanwhile.
    fn wait(&mut self, holder: &mut SessionHolder<C>, timers: &mut [PollTimer]) -> WakeReasons {
        let next_event = self.next_event(timers);
        loop {
            if self.listener.receive(holder, &self.shared, timers) {
                return WakeReasons::default();
            }
            let listens = self.listener.listens(holder, &self.shared);
            let pause = listens.then(|| Instant::now() + self.listener.pause());
            let reasons = self.shared.wake_signal.wait(pause.map_or(next_event, |pause| pause.min(next_event)));
            if reasons.is_any() || next_event <= Instant::now() {
                return reasons;
            }
        }
    }

    /// Tells a runner's window gate the database's time. Returns how long the window stays closed, if it is.
    fn ask_whether_open(&self, holder: &mut SessionHolder<C>, runner: usize) -> Result<Option<Duration>, Error> {
        let Gate { window: window_gate, .. } = &self.shared.gates[runner];
        if !window_gate.has_window() {
            return Ok(None);
        }
        let asked = Instant::now();
        let now = self.shared.runners[runner].served().present(holder.session()?)?;
        Ok(window_gate.tell(now, asked))
    }

    fn answer(&self, reasons: WakeReasons, timers: &mut [PollTimer]) {
        let now = Instant::now();
        for (runner, timer) in timers.iter_mut().enumerate() {
            let (has_work, empty_turns) = self.shared.board.work_of(runner);
            let (is_announced, is_drained) = (
                reasons.announced.contains(&self.shared.runners[runner].info().queue),
                reasons.drained.contains(&runner),
            );
            match (is_announced, has_work) {
                (true, true) => timer.remember(now),
                (true, false) => timer.await_enqueue(now),
                (false, false) if is_drained => timer.recall(now),
                (false, _) => {}
            }
            // A runner that is drained for the first time is probed for the time of its next row. A runner whose due
            // rows are held keeps its pause.
            if reasons.all || (is_drained && empty_turns <= 1) {
                timer.probe_now(now);
            }
        }
    }

    /// Takes the transaction away from handlers that are past their timeout.
    fn enforce_timeouts(&self, holder: &mut SessionHolder<C>) {
        let now = Instant::now();
        for runner in &self.shared.runners {
            let late = runner.calls().map_or(0, |calls| calls.abort_ended());
            if late > 0 {
                self.shared.log.warn(runner.info().entity, "calls are past their timeout and are dropped");
            }
        }
        for slot in self.shared.slots() {
            let Some((runner, session)) = slot.revoke_if_timed_out(now) else { continue };
            self.shared.warn(runner, "a handler is past its timeout and loses its transaction");
            if let Some(session) = session {
                match holder.session() {
                    Ok(connection) => self.shared.end_session(connection, runner, session),
                    Err(error) => {
                        let error = failure_text(&error, 500);
                        self.shared.warn(runner, &format!("a session cannot be ended: {error}"));
                    }
                }
            }
            replace_stuck(&self.shared, holder, &slot);
        }
    }

    fn next_event(&self, timers: &[PollTimer]) -> Instant {
        let deadlines = self.shared.slots().into_iter().filter_map(|slot| slot.deadline());
        let calls = self.shared.runners.iter().filter_map(|runner| runner.calls()?.next_deadline());
        let probes = timers.iter().map(|timer| timer.next_probe);
        // A worker that takes a row wakes nobody. While one may do so, the scout sleeps no longer than the shortest
        // timeout, so that it is late by one timeout at most. In a quiet poller nothing begins before the scout signals
        // work.
        let timeouts = self.shared.runners.iter().map(|runner| runner.info().timeout);
        let interval = self.shared.settings.poll_interval;
        let longest = if self.shared.board.is_quiet() { interval } else { timeouts.fold(interval, Duration::min) };
        let latest = Instant::now() + longest;
        probes.chain(deadlines).chain(calls).chain(self.control.next_read()).min().unwrap_or(latest).min(latest)
    }
}
