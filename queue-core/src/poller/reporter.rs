//! The reporter: the thread of a poller that reports the gauges, writes the minutes and does the upkeep, on a connection of its
//! own.
//!
//! Many processes serve a queue, and one of them reports the gauges of its table: the one that holds a lock of the database.

use std::collections::HashSet;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::post::{Duty, Post};
use super::shared::{ENDING, PollerShared, spawn};
use super::upkeep::{self, Upkeep};
use crate::backend::{ErrorClass, LeadersDuty, QueueConnection, SessionHolder};
use crate::control::{PRESENT_EVERY, PollerState};
use crate::error::Error;
use crate::event::{Gauge, Measure, ThreadConnection};
use crate::gauges::{AHEAD, DESCRIPTIONS, Measured, Reading, WORKERS};
use crate::minutes::{WRITTEN_EVERY, merge_minutes};
use crate::row::failure_text;

/// How many times as long as a reading has taken the next one waits at least.
const REST: u32 = 20;

/// How long the reporter rests after a panic of its own.
const RESTART: Duration = Duration::from_secs(1);

/// How often old minutes are looked for.
const MERGED_EVERY: Duration = Duration::from_secs(3600);

/// The reporter before it starts.
pub(crate) struct Reporter<C: QueueConnection> {
    shared: Arc<PollerShared<C>>,
    post: Arc<Post>,
    next_gauges: Instant,
}

impl<C: QueueConnection> Reporter<C> {
    /// Returns the reporter of a poller, if it reports anything. `rests`: it takes the place of one that the database has not
    /// answered, and does not ask for the same at once.
    pub(crate) fn new(shared: &Arc<PollerShared<C>>, connection: ThreadConnection, rests: bool) -> Option<Self> {
        let is_wanted = shared.gauges.every.is_some() || shared.minutes.is_some() || shared.presence.is_some();
        if !is_wanted && !upkeep::is_any(&shared.runners) {
            return None;
        }
        let patience = shared.settings.patience();
        let post = shared.new_post(Duty::Reporter, connection, patience);
        let next_gauges = Instant::now() + if rests { patience } else { Duration::ZERO };
        Some(Reporter { shared: shared.clone(), post, next_gauges })
    }

    /// Starts the thread.
    pub(crate) fn spawn(self, has_tried: Option<Sender<()>>) -> Result<(), Error> {
        let (shared, post) = (self.shared.clone(), self.post.clone());
        post.tells_trial(has_tried);
        spawn(&shared, post, "queueable-report".to_owned(), move || self.run())
    }

    /// Reports until the poller stops.
    fn run(self) {
        let Reporter { shared, post, next_gauges } = self;
        let now = Instant::now();
        let mut reports = Reports {
            holder: shared.sessions.of_reporter(&post),
            leads: shared.runners.iter().map(|_| None).collect(),
            next_gauges,
            next_presence: now,
            next_minutes: now,
            next_merge: now,
            upkeep: Upkeep::new(&shared, next_gauges),
        };
        if shared.gauges.every.is_some() {
            shared.events.measure(|| Measure::Description(DESCRIPTIONS));
            // So that an alert sees if they are never read.
            (0..shared.runners.len()).for_each(|runner| shared.show(runner, Some(shared.measured(runner).unknown())));
        }
        // At once, because later the application may have taken every other connection. A report tries again, and logs why it
        // cannot.
        // The connect may be the application's own code.
        let opened = catch_unwind(AssertUnwindSafe(|| drop(reports.holder.session())));
        opened.unwrap_or_else(std::mem::forget);
        post.note_trial();
        while !shared.board.is_stopping() && !post.is_left_behind() {
            reports.holder.move_to_file(shared.sessions.files());
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| reports.make(&shared, &post))) {
                std::mem::forget(panic);
                shared.log.warn("poller", "the reporter panicked, and goes on");
                reports.holder.close();
                shared.board.pause(RESTART);
            }
            reports.holder.end_wait();
            shared.board.pause(reports.pause(&shared));
        }
        // Handlers that still run keep the poller present. The stop does not wait for another session.
        while shared.presence.is_some()
            && !post.is_left_behind()
            && reports.holder.open_session().is_some()
            && !shared.board.wait_for_turns(Duration::ZERO)
        {
            reports.next_presence = Instant::now();
            reports.write_presence(&shared, PollerState::Draining);
            reports.holder.end_wait();
            shared.board.wait_for_turns(PRESENT_EVERY);
        }
        if !post.is_left_behind() && shared.gauges.every.is_some() {
            shared.show_workers(false);
            (0..shared.runners.len()).for_each(|runner| shared.show(runner, None));
        }
    }
}

/// What the reporter works with, and when it is time for each report.
struct Reports<C: QueueConnection> {
    holder: SessionHolder<'static, C>,
    /// On SQLite, the file that holds the lock of each runner's queue.
    leads: Vec<Option<File>>,
    next_gauges: Instant,
    next_presence: Instant,
    next_minutes: Instant,
    next_merge: Instant,
    upkeep: Upkeep,
}

impl<C: QueueConnection> Reports<C> {
    /// Returns how long it is until the next report.
    fn pause(&self, shared: &PollerShared<C>) -> Duration {
        let gauges = shared.gauges.every.map(|_| self.next_gauges);
        let minutes = shared.minutes.as_ref().map(|_| self.next_minutes);
        let presence = shared.presence.as_ref().map(|_| self.next_presence);
        let next = gauges.into_iter().chain(minutes).chain(presence).chain(self.upkeep.next()).min();
        next.map_or(WRITTEN_EVERY, |next| next.saturating_duration_since(Instant::now()))
    }

    /// Makes the reports whose time has come.
    fn make(&mut self, shared: &PollerShared<C>, post: &Post) {
        self.write_minutes(shared);
        self.write_presence(shared, shared.state());
        if shared.minutes.is_some() && self.next_merge <= Instant::now() {
            self.next_merge = Instant::now() + MERGED_EVERY;
            for runner in 0..shared.runners.len() {
                shared.merge_minutes(runner, &mut self.holder);
                self.write_minutes(shared);
            }
        }
        self.upkeep.go_on(shared, &mut self.holder);
        let Some(every) = shared.gauges.every.filter(|_| self.next_gauges <= Instant::now()) else { return };
        let begun = Instant::now();
        shared.show_workers(true);
        for runner in 0..shared.runners.len() {
            // A reading may take long.
            self.write_minutes(shared);
            self.write_presence(shared, shared.state());
            if shared.board.is_stopping() {
                return;
            }
            let read = self.read_gauges(shared, runner);
            if post.is_left_behind() {
                return;
            }
            shared.show(runner, read);
        }
        self.next_gauges = begun + every.max(begun.elapsed().saturating_mul(REST));
    }

    fn write_minutes(&mut self, shared: &PollerShared<C>) {
        if self.next_minutes <= Instant::now() {
            self.next_minutes = Instant::now() + shared.write_minutes(&mut self.holder);
        }
    }

    fn write_presence(&mut self, shared: &PollerShared<C>, state: PollerState) {
        if self.next_presence <= Instant::now() {
            self.next_presence = Instant::now() + PRESENT_EVERY;
            shared.write_presence(&mut self.holder, state);
        }
    }

    /// Reads the gauges of a runner's table. `None`: another process does so, or they cannot be read.
    fn read_gauges(&mut self, shared: &PollerShared<C>, runner: usize) -> Option<Reading> {
        let (info, lead) = (shared.runners[runner].info(), &mut self.leads[runner]);
        let mut read = |holder: &mut SessionHolder<C>| -> Result<Option<Reading>, Error> {
            let session = holder.session()?;
            let leads = session.try_lead(&info.target, LeadersDuty::Gauges, lead)?;
            Ok(if leads { Some(shared.measured(runner).read(&mut **session, &shared.gauges)?) } else { None })
        };
        let is_lost = |error: &Error| match error {
            Error::Database(error) => C::classify(error) == ErrorClass::ConnectionLost,
            _ => false,
        };
        let mut found = read(&mut self.holder);
        if found.as_ref().is_err_and(is_lost) {
            // A connection that was idle for long may have been closed, and the next one works.
            self.holder.close();
            found = read(&mut self.holder);
        }
        found.unwrap_or_else(|error| {
            shared.warn(runner, &format!("the gauges cannot be read: {}", failure_text(&error, 500)));
            // With the session the lock ends: another process may have a better connection.
            (*lead, _) = (None, self.holder.close());
            None
        })
    }
}

impl<C: QueueConnection> PollerShared<C> {
    fn measured(&self, runner: usize) -> Measured<C::Backend> {
        let (info, sql) = (self.runners[runner].info(), self.runners[runner].served().sql());
        let (name, is_leased) = (info.key_prefix.clone(), info.heartbeat_interval.is_some());
        Measured { entity: info.entity, name, queue: info.queue, sql, is_leased }
    }

    /// Shows the gauges of a runner's table. `None`: this process does not know them.
    fn show(&self, runner: usize, read: Option<Reading>) {
        let mut shown = self.shown.lock();
        let mut gone: HashSet<_> = shown.extract_if(|(other, ..)| *other == runner).collect();
        // A value that was not read again has no rows any more. If there are too many values, it may be one of the others.
        let value_of_gone = if read.as_ref().is_some_and(|read| !read.is_cut) { 0.0 } else { f64::NAN };
        for Gauge { name, labels, value } in read.unwrap_or_default().gauges {
            let key = (runner, name, labels.clone());
            gone.remove(&key);
            shown.insert(key);
            self.events.measure(|| Measure::Gauge(Gauge { name, labels, value }));
        }
        for (_, name, labels) in gone {
            self.events.measure(|| Measure::Gauge(Gauge { name, labels, value: value_of_gone }));
        }
    }

    /// Writes what was counted. Returns how long until it is time to do so again, in step with the database's clock.
    fn write_minutes(&self, holder: &mut SessionHolder<C>) -> Duration {
        let Some(minutes) = &self.minutes else { return WRITTEN_EVERY };
        let written = holder.session().and_then(|session| {
            let now = self.runners[0].served().present(session)?;
            minutes.write(&mut **session, now, || self.turn_to_write())?;
            let period = WRITTEN_EVERY.as_millis() as i64;
            Ok(Duration::from_millis((period - now.timestamp_millis().rem_euclid(period)).unsigned_abs()))
        });
        written.unwrap_or_else(|error| {
            self.log.warn("poller", &format!("the minutes cannot be written: {}", failure_text(&error, 500)));
            holder.close();
            WRITTEN_EVERY
        })
    }

    /// Says in the table of pollers what the poller does.
    fn write_presence(&self, holder: &mut SessionHolder<C>, state: PollerState) {
        let Some(presence) = &self.presence else { return };
        let written = holder.session().and_then(|session| {
            let _turn = self.turn_to_write();
            Ok(presence.write(&mut **session, state)?)
        });
        let is_conflict = matches!(&written, Err(Error::Database(error)) if C::classify(error) == ErrorClass::Conflict);
        if let (Err(error), false) = (written, is_conflict) {
            self.log.warn("poller", &format!("the poller cannot be registered: {}", failure_text(&error, 500)));
            holder.close();
        }
    }

    /// Returns what the poller does.
    fn state(&self) -> PollerState {
        if self.sessions.connectivity.threads_without() > 0 {
            return PollerState::WithoutConnection;
        }
        if self.gates.iter().any(|gate| gate.is_open()) { PollerState::Running } else { PollerState::Paused }
    }

    /// Merges the old minutes of a runner's queue.
    fn merge_minutes(&self, runner: usize, holder: &mut SessionHolder<C>) {
        let (served, queue) = (self.runners[runner].served(), &self.runners[runner].info().key_prefix);
        let merged = holder.session().and_then(|session| {
            let now = served.present(session)?;
            let goes_on = || !self.board.is_stopping();
            Ok(merge_minutes(&mut **session, queue, now, (goes_on, || self.turn_to_write()))?)
        });
        if let Err(error) = merged {
            self.warn(runner, &format!("old minutes cannot be merged: {}", failure_text(&error, 500)));
            holder.close();
        }
    }

    /// Writes what was counted last, after the workers have left, and that the poller has stopped. The database may never answer, so
    /// this waits no longer than for the end of sessions.
    pub(super) fn report_end(self: &Arc<Self>) {
        if self.minutes.is_none() && self.presence.is_none() {
            return;
        }
        let (shared, (done, is_done)) = (self.clone(), mpsc::channel::<()>());
        let write = move || {
            let _done = done;
            let patience = shared.settings.patience();
            let post = Post::new(Duty::Reporter, shared.sessions.unknown(), patience, patience);
            let mut holder = shared.sessions.of_reporter(&post);
            shared.write_minutes(&mut holder);
            shared.write_presence(&mut holder, PollerState::Stopped);
        };
        if thread::Builder::new().name("queueable-last".to_owned()).spawn(write).is_ok() {
            let _ = is_done.recv_timeout(ENDING);
        }
    }

    /// Shows what the workers of this process do; none is left after the end.
    fn show_workers(&self, are_at_work: bool) {
        let infos = self.runners.iter().map(|runner| runner.info());
        let (entities, queues): (Vec<_>, Vec<_>) = infos.map(|info| (info.entity, &*info.key_prefix)).unzip();
        let (slots, stuck) = if are_at_work { (self.slots(), self.board.stuck()) } else { (Vec::new(), 0) };
        let busy = slots.iter().filter(|slot| slot.runner().is_some()).count();
        let idle = slots.len().saturating_sub(busy + stuck);
        for (state, workers) in [("busy", busy), ("idle", idle), ("stuck", stuck)] {
            let labels = vec![("poller", entities.join(",")), ("queue", queues.join(",")), ("state", state.to_owned())];
            self.events.measure(|| Measure::Gauge(Gauge { name: WORKERS, labels, value: workers as f64 }));
        }
        for (i, runner) in
            self.runners.iter().enumerate().filter(|(_, runner)| runner.info().heartbeat_interval.is_some())
        {
            let ahead = if are_at_work { runner.claimed_ahead() } else { 0 };
            self.events.measure(|| Measure::Gauge(self.measured(i).gauge(AHEAD, Vec::new(), ahead as f64)));
        }
    }
}
