//! The scout: the one thread of a poller that probes for due rows while the workers sleep, and enforces their timeouts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use super::control_watch::ControlWatch;
use super::listener::Listener;
use super::post::{Duty, Post};
use super::shared::{PollerShared, spawn};
use super::timeouts::{enforce_timeouts, next_timeout};
use super::wake::{PollTimer, WakeReasons};
use crate::backend::{QueueConnection, SessionHolder};
use crate::claim::PROBE_INTERVAL;
use crate::entity::{Retry, RetryPolicy, jittered};
use crate::error::{Error, panic_text};
use crate::event::ThreadConnection;
use crate::row::{HORIZON, failure_text};

/// How long the scout leaves a runner alone whose due rows no worker could claim. The pause doubles up to the poll
/// interval.
const HELD_PAUSE: Duration = Duration::from_millis(50);

/// The shortest time for which a window stays closed: a closure of no time would not say that nothing is due.
const SHORTEST_CLOSURE: Duration = Duration::from_millis(1);

/// The shortest and the longest time between two searches for another file of the database, with a look at its clock.
const SURVEYED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// How often the scout looks for columns that another build of an entity has added. A look reads the catalogue.
const COLUMNS_CHECKED: Duration = Duration::from_secs(10);

/// How the scout backs off from a database in trouble.
const BACKOFF: Retry = Retry::exponential(Duration::from_millis(50)).max(Duration::from_millis(400));

/// The pause between two tries to read the control table for the first time.
const UNTIL_KNOWN: Duration = Duration::from_millis(20);

/// How long the scout rests after a panic of its own.
const RESTART: Duration = Duration::from_secs(1);

/// The result of a probe for a runner.
enum Seen {
    /// The workers are busy, and report when they find nothing more.
    Busy,
    /// Its queue is paused, or stands still.
    Paused,
    /// Its window is closed for this long.
    Closed(Duration),
    /// The next row is due after this time. `None`: no row is known to become due.
    Due(Option<Duration>),
}

/// The scout before it starts.
pub(crate) struct Scout<C: QueueConnection> {
    shared: Arc<PollerShared<C>>,
    holder: SessionHolder<'static, C>,
    listener: Listener<C>,
    control: ControlWatch<C>,
    post: Arc<Post>,
    next_survey: Instant,
    next_columns: Instant,
    /// The identity of the database's file, as the last survey has found it.
    file: Option<(u64, u64)>,
}

impl<C: QueueConnection> Scout<C> {
    pub(crate) fn new(shared: Arc<PollerShared<C>>, connection: ThreadConnection) -> Self {
        let (listener, control) = (Listener::new(shared.clone()), ControlWatch::new(shared.clone()));
        let post = shared.new_post(Duty::Scout, connection, shared.settings.patience());
        let (holder, next_survey) = (shared.sessions.of_scout(&post), Instant::now());
        // The start has just looked for columns.
        let next_columns = next_survey + COLUMNS_CHECKED;
        Scout { shared, holder, listener, control, post, next_survey, next_columns, file: None }
    }

    /// Starts the thread.
    pub(crate) fn spawn(self, has_tried: Option<Sender<()>>) -> Result<(), Error> {
        let (shared, post) = (self.shared.clone(), self.post.clone());
        post.tells_trial(has_tried);
        spawn(&shared, post, "queueable-scout".to_owned(), move || self.run())
    }

    /// Probes until the poller stops, or, if it is to end then, until nothing is due.
    fn run(mut self) {
        // A panic is ours or the driver's. Without a scout, no worker would process the rows that become due.
        while let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.watch())) {
            let text = format!("the scout panicked and starts again: {}", panic_text(panic));
            self.shared.log.warn("poller", &text);
            self.post.wait.end();
            // It still knows the database's file: one that takes its place meanwhile is another one.
            (self.holder, self.next_survey) = (self.shared.sessions.of_scout(&self.post), Instant::now());
            self.shared.board.pause(RESTART);
        }
        if !self.post.is_left_behind() {
            self.shared.board.note_scouted();
        }
    }

    fn watch(&mut self) {
        let now = Instant::now();
        let mut timers: Vec<_> = self.shared.runners.iter().map(|_| PollTimer::new(now)).collect();
        // If it cannot be opened, the first probe logs why.
        let _ = self.holder.session();
        self.read_clock();
        self.post.note_trial();
        while !self.shared.board.is_stopping() && !self.post.is_left_behind() {
            self.shared.end_silent_sessions(&mut self.holder);
            self.survey();
            self.check_columns(&mut timers);
            if !self.control.refresh(&mut self.holder, &mut timers, || self.post.is_left_behind()) {
                // A paused row must not begin because the poller has not read of its pause yet.
                self.shared.board.pause(UNTIL_KNOWN);
                continue;
            }
            self.probe_runners(&mut timers);
            self.read_oldest_due();
            enforce_timeouts(&self.shared, &mut self.holder);
            if self.shared.until_idle && self.shared.board.is_quiet() {
                if self.probe_after_turns(&mut timers) {
                    continue;
                }
                if self.is_nothing_left(&timers) {
                    return self.control.tell_what_is_left();
                }
            }
            let reasons = self.wait(&mut timers);
            self.answer(reasons, &mut timers);
        }
    }

    /// Looks for another file of the database, and reads the clock, if it is time for that.
    fn survey(&mut self) {
        if self.next_survey <= Instant::now() {
            self.shared.follow_file(&mut self.holder, &mut self.file);
            self.read_clock();
            self.next_survey = Instant::now() + self.shared.settings.poll_interval.clamp(SURVEYED.0, SURVEYED.1);
        }
    }

    /// Looks whether the queue's columns are as they were, if it is time for that. With columns that this process does not know
    /// it would finish rows that have to go on; with others, or without a right, its handlers would run and nothing be written.
    fn check_columns(&mut self, timers: &mut [PollTimer]) {
        if self.next_columns > Instant::now() {
            return;
        }
        self.next_columns = Instant::now() + COLUMNS_CHECKED;
        let shared = self.shared.clone();
        for ((runner, gate), timer) in shared.runners.iter().zip(&shared.gates).zip(timers) {
            let found = self.holder.session().and_then(|session| Ok(runner.served().altered_columns(session)?));
            let altered = match found {
                Ok(altered) => altered,
                Err(error) => {
                    // A queue that stands still is not probed, so nothing else closes the session.
                    self.holder.close();
                    let error = failure_text(&error, 500);
                    shared.log.warn(runner.info().entity, &format!("cannot look at the columns: {error}"));
                    continue;
                }
            };
            if gate.bar(runner.served().note_columns(altered)) {
                timer.probe_now(Instant::now());
            }
        }
    }

    /// Probes for the runners whose time it is.
    fn probe_runners(&mut self, timers: &mut [PollTimer]) {
        for (runner, timer) in timers.iter_mut().enumerate() {
            if timer.next_probe <= Instant::now() {
                timer.nothing_due = self.probe_safely(runner, timer);
            }
        }
    }

    /// Sets a probe for each runner that was probed for before the last turn ended: a handler may have made rows of another
    /// queue due. Returns whether there are any.
    fn probe_after_turns(&self, timers: &mut [PollTimer]) -> bool {
        let turns = self.shared.board.turns();
        let mut stale = timers.iter_mut().filter(|timer| timer.turns_seen != turns).peekable();
        let is_any = stale.peek().is_some();
        stale.for_each(|timer| timer.probe_now(Instant::now()));
        is_any
    }

    /// Tells whether nothing is due, and no row waits after an interrupted attempt.
    fn is_nothing_left(&self, timers: &[PollTimer]) -> bool {
        let mut runners = self.shared.runners.iter().zip(&self.shared.gates);
        timers.iter().all(|timer| timer.nothing_due)
            && !runners.any(|(runner, gate)| gate.is_open() && runner.served().has_interrupted())
    }

    /// Reads the database's clock for the listeners, if there are any and it was not read lately.
    fn read_clock(&mut self) {
        let Some(clock) = self.shared.events.clock().filter(|clock| clock.has_to_be_read()) else { return };
        let (queue, asked) = (self.shared.runners[0].served(), Instant::now());
        // The next probe logs trouble with the session.
        if let Ok(Ok(now)) = self.holder.session().map(|session| queue.present(session)) {
            clock.tell(now, asked);
        }
    }

    /// Reads how long rows have been due, for those who ask how the poller is. A busy poller does not probe for due rows.
    fn read_oldest_due(&mut self) {
        for (number, runner) in self.shared.runners.iter().enumerate() {
            if !self.shared.health.wants(number) {
                continue;
            }
            let asked = Instant::now();
            // The next probe logs trouble with the session.
            let Ok(Ok(oldest)) = self.holder.session().map(|session| runner.served().oldest_due(session)) else {
                return;
            };
            self.shared.health.note_oldest_due(number, oldest, asked);
        }
    }

    /// Probes for one runner as [`probe`](Self::probe) does. A user's condition that panics must not keep the scout from the
    /// other runners.
    fn probe_safely(&mut self, runner: usize, timer: &mut PollTimer) -> bool {
        catch_unwind(AssertUnwindSafe(|| self.probe(runner, timer))).unwrap_or_else(|panic| {
            self.back_off(runner, timer, Some(&format!("looking for due rows panicked: {}", panic_text(panic))));
            false
        })
    }

    /// Probes for one runner and decides when to probe again. Returns whether nothing is due.
    fn probe(&mut self, runner: usize, timer: &mut PollTimer) -> bool {
        let shared = self.shared.clone();
        // Before the probe: it may not see rows that are announced from here on.
        shared.wake_signal.begin_probe(shared.runners[runner].info().queue);
        let is_routine = timer.begin_probe(Instant::now());
        let interval = jittered(shared.settings.poll_interval, 0.1, fastrand::f64()).min(HORIZON);
        let (has_work, empty_turns) = shared.board.work_of(runner);
        let seen = match self.see(runner, timer, has_work) {
            Ok(seen) => seen,
            Err(trouble) => {
                self.back_off(runner, timer, trouble.as_deref());
                return false;
            }
        };
        match seen {
            Seen::Busy => {
                let until_low_water_probe = timer.next_low_water_probe.saturating_duration_since(Instant::now());
                // If an enqueue is still awaited then, the scout probes for it after them.
                timer.next_probe = Instant::now() + interval.min(until_low_water_probe);
                return false;
            }
            Seen::Due(Some(Duration::ZERO)) => {
                shared.board.signal_work(runner);
                timer.note_found(Instant::now());
                if is_routine && empty_turns <= 1 {
                    self.listener.note_missed(runner, &mut self.holder);
                }
                // If no worker can claim the due rows, other sessions hold them. The next probe then comes after a pause,
                // even if new rows are announced.
                let wait = HELD_PAUSE.saturating_mul(1 << empty_turns.min(10)).min(interval);
                // Work always ends with one turn that finds nothing more.
                let is_held = empty_turns > 1;
                timer.probe_again_in(wait, if is_held { HELD_PAUSE } else { Duration::ZERO }, false);
                return false;
            }
            Seen::Due(Some(due_in)) => timer.probe_again_in(due_in.min(interval), Duration::ZERO, false),
            Seen::Due(None) => timer.probe_again_in(interval, Duration::ZERO, true),
            Seen::Closed(closed_for) => timer.back_off(closed_for.min(interval)),
            // Its end brings a probe.
            Seen::Paused => timer.back_off(interval),
        }
        true
    }

    /// Finds out what there is to do for a runner. An error without a text is logged already.
    fn see(&mut self, runner: usize, timer: &mut PollTimer, has_work: bool) -> Result<Seen, Option<String>> {
        let shared = self.shared.clone();
        if has_work {
            let probed = self.probe_low_water(runner, timer);
            return probed.map(|()| Seen::Busy).map_err(|error| Some(format!("the scout's probe failed: {error}")));
        }
        timer.turns_seen = shared.board.turns();
        if shared.gates[runner].is_closed() {
            return Ok(Seen::Paused);
        }
        let probed = self.ask_whether_open(runner).and_then(|closed_for| match closed_for {
            Some(closed_for) => Ok(Seen::Closed(closed_for.max(SHORTEST_CLOSURE))),
            None => Ok(Seen::Due(
                shared.runners[runner].served().probe_due(self.holder.session()?, self.shared.until_idle)?,
            )),
        });
        let served = shared.runners[runner].served();
        match &probed {
            Ok(Seen::Due(due)) => served.note_probe(Ok(*due)),
            Ok(_) => {}
            Err(error) => served.note_probe(Err(error)),
        }
        let seen = probed.map_err(|_| None)?;
        timer.troubles = 0;
        shared.health.note_answer();
        Ok(seen)
    }

    /// Probes for rows below the low-water mark while the workers are busy, if it is time for that.
    fn probe_low_water(&mut self, runner: usize, timer: &mut PollTimer) -> Result<(), String> {
        let now = Instant::now();
        if now < timer.next_low_water_probe {
            return Ok(());
        }
        let asked = self.ask_whether_open(runner);
        let probed =
            asked.and_then(|_| Ok(self.shared.runners[runner].served().probe_low_water(self.holder.session()?)?));
        probed.map_err(|error| failure_text(&error, 500))?;
        (timer.troubles, timer.next_low_water_probe) = (0, now + PROBE_INTERVAL);
        Ok(())
    }

    /// Leaves a database in trouble alone for a while.
    fn back_off(&mut self, runner: usize, timer: &mut PollTimer, trouble: Option<&str>) {
        trouble.inspect(|trouble| self.shared.warn(runner, trouble));
        self.holder.close();
        timer.troubles += 1;
        let pause = BACKOFF.delay(timer.troubles).unwrap_or(self.shared.settings.poll_interval);
        timer.back_off(jittered(pause, 1.0, fastrand::f64()));
    }

    /// Sleeps until there is something to do or a thread wakes the scout. If it listens for notifications, it receives
    /// them meanwhile.
    fn wait(&mut self, timers: &mut [PollTimer]) -> WakeReasons {
        let next_event = self.next_event(timers);
        loop {
            if self.listener.receive(&mut self.holder, timers) {
                return WakeReasons::default();
            }
            let listens = self.listener.listens(&mut self.holder);
            self.holder.end_wait();
            let pause = listens.then(|| Instant::now() + self.listener.pause());
            let reasons = self.shared.wake_signal.wait(pause.map_or(next_event, |pause| pause.min(next_event)));
            if reasons.is_any() || next_event <= Instant::now() {
                return reasons;
            }
        }
    }

    /// Tells a runner's gate the database's time. Returns how long the window stays closed, if it is.
    fn ask_whether_open(&mut self, runner: usize) -> Result<Option<Duration>, Error> {
        let gate = &self.shared.gates[runner];
        if !gate.has_window() {
            return Ok(None);
        }
        let asked = Instant::now();
        let now = self.shared.runners[runner].served().present(self.holder.session()?)?;
        Ok(gate.tell(now, asked))
    }

    fn answer(&self, reasons: WakeReasons, timers: &mut [PollTimer]) {
        let now = Instant::now();
        for (runner, timer) in timers.iter_mut().enumerate() {
            let (has_work, empty_turns) = self.shared.board.work_of(runner);
            let is_announced = reasons.announced.contains(&self.shared.runners[runner].info().queue);
            let is_drained = reasons.drained.contains(&runner);
            timer.hear(is_announced, is_drained, has_work, now);
            // A runner that is drained for the first time is probed for the time of its next row. A runner whose due
            // rows are held keeps its pause.
            if reasons.all || (is_drained && empty_turns <= 1) {
                timer.probe_now(now);
            }
        }
    }

    /// Returns when there is something to do next.
    fn next_event(&self, timers: &[PollTimer]) -> Instant {
        let probes = timers.iter().map(|timer| timer.next_probe);
        let latest = next_timeout(&self.shared);
        probes.chain(self.control.next_read()).chain([self.next_columns]).min().unwrap_or(latest).min(latest)
    }
}
