//! The reporter: the thread of a poller that reports the gauges and writes the minutes, on a connection of its own.
//!
//! Many processes serve a queue, and one of them reports the gauges of its table, and merges its old minutes: the one that holds a
//! lock of the database.

use std::collections::HashSet;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use super::post::{Duty, Post};
use super::shared::{PollerShared, spawn};
use crate::backend::{QueueConnection, SessionHolder};
use crate::error::Error;
use crate::event::{Gauge, Measure, ThreadConnection};
use crate::gauges::{AHEAD, DESCRIPTIONS, Measured, Reading, WORKERS};
use crate::minutes::{WRITTEN_EVERY, merge_minutes};
use crate::row::failure_text;

/// How many times as long as a reading has taken the next one waits at least.
const REST: u32 = 20;

/// How often old minutes are looked for.
const MERGED_EVERY: Duration = Duration::from_secs(3600);

/// The reporter before it starts.
pub(crate) struct Reporter<C: QueueConnection> {
    shared: Arc<PollerShared<C>>,
    post: Arc<Post>,
}

impl<C: QueueConnection> Reporter<C> {
    /// Returns the reporter of a poller, if it reports anything.
    pub(crate) fn new(shared: &Arc<PollerShared<C>>, connection: ThreadConnection) -> Option<Self> {
        shared.gauges.every.map(drop).or(shared.minutes.as_ref().map(drop))?;
        let post = shared.new_post(Duty::Reporter, connection, shared.settings.patience());
        Some(Reporter { shared: shared.clone(), post })
    }

    /// Starts the thread.
    pub(crate) fn spawn(self, has_tried: Option<Sender<()>>) -> Result<(), Error> {
        let (shared, post) = (self.shared.clone(), self.post.clone());
        post.tells_trial(has_tried);
        spawn(&shared, post, "queueable-report".to_owned(), move || self.run())
    }

    /// Reports until the poller stops.
    fn run(self) {
        let Reporter { shared, post } = self;
        let mut holder = shared.sessions.of_scout(&post);
        let mut leads: Vec<_> = shared.runners.iter().map(|_| None).collect();
        let now = Instant::now();
        let (mut next_gauges, mut next_minutes, mut next_merge) =
            (shared.gauges.every.map(|_| now), shared.minutes.as_ref().map(|_| now), now);
        shared.events.measure(|| Measure::Description(DESCRIPTIONS));
        // At once, because later the application may have taken every other connection. A report tries again, and logs why it
        // cannot.
        let _ = holder.session();
        post.note_trial();
        while !shared.board.is_stopping() && !post.is_left_behind() {
            holder.move_to_file(shared.sessions.files());
            let begun = Instant::now();
            if next_minutes.is_some_and(|next| next <= begun) {
                let pause = shared.write_minutes(&mut holder);
                next_minutes = Some(Instant::now() + pause);
                if next_merge <= begun {
                    leads
                        .iter_mut()
                        .enumerate()
                        .for_each(|(runner, lead)| shared.merge_minutes(runner, &mut holder, lead));
                    next_merge = begun + MERGED_EVERY;
                }
            }
            if let Some(every) = shared.gauges.every.filter(|_| next_gauges.is_some_and(|next| next <= begun)) {
                let begun = Instant::now();
                shared.show_workers();
                for (runner, lead) in leads.iter_mut().enumerate() {
                    let read = catch_unwind(AssertUnwindSafe(|| read_gauges(&shared, runner, &mut holder, lead)));
                    if post.is_left_behind() {
                        return;
                    }
                    let read = read.unwrap_or_else(|panic| {
                        std::mem::forget(panic);
                        shared.warn(runner, "reading the gauges panicked");
                        holder.close();
                        None
                    });
                    shared.show(runner, read);
                }
                next_gauges = Some(begun + every.max(begun.elapsed().saturating_mul(REST)));
            }
            holder.end_wait();
            let next = next_gauges.into_iter().chain(next_minutes).min().unwrap_or(begun);
            shared.board.pause(next.saturating_duration_since(Instant::now()));
        }
        if !post.is_left_behind() {
            (0..shared.runners.len()).for_each(|runner| shared.show(runner, None));
        }
    }
}

/// Reads the gauges of a runner's table. `None`: another process does so, or they cannot be read.
fn read_gauges<C: QueueConnection>(
    shared: &PollerShared<C>,
    runner: usize,
    holder: &mut SessionHolder<C>,
    lead: &mut Option<File>,
) -> Option<Reading> {
    let (served, info) = (shared.runners[runner].served(), shared.runners[runner].info());
    let measured = Measured {
        entity: info.entity,
        queue: info.queue,
        sql: served.sql(),
        is_leased: info.heartbeat_interval.is_some(),
    };
    let read = holder.session().and_then(|session| {
        let leads = session.try_lead(&info.target, lead)?;
        Ok(if leads { Some(measured.read(&mut **session, &shared.gauges)?) } else { None })
    });
    read.unwrap_or_else(|error| {
        shared.warn(runner, &format!("the gauges cannot be read: {}", failure_text(&error, 500)));
        // With the session the lock ends: another process may have a better connection.
        (*lead, _) = (None, holder.close());
        None
    })
}

impl<C: QueueConnection> PollerShared<C> {
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
        let infos = self.runners.iter().map(|runner| runner.info());
        let queues = infos.map(|info| (info.entity, info.key_prefix.clone())).collect();
        let written = holder.session().and_then(|session| {
            let now = self.runners[0].served().present(session)?;
            let _writing = self.turn_to_write();
            minutes.write(&mut **session, now, &queues)?;
            let period = WRITTEN_EVERY.as_millis() as i64;
            Ok(Duration::from_millis((period - now.timestamp_millis().rem_euclid(period)).unsigned_abs()))
        });
        written.unwrap_or_else(|error| {
            self.log.warn("poller", &format!("the minutes cannot be written: {}", failure_text(&error, 500)));
            holder.close();
            WRITTEN_EVERY
        })
    }

    /// Merges the old minutes of a runner's queue, if this process has its lock.
    fn merge_minutes(&self, runner: usize, holder: &mut SessionHolder<C>, lead: &mut Option<File>) {
        let (served, info) = (self.runners[runner].served(), self.runners[runner].info());
        let merged = holder.session().and_then(|session| {
            if session.try_lead(&info.target, lead)? {
                let now = served.present(session)?;
                let _writing = self.turn_to_write();
                merge_minutes(&mut **session, &info.key_prefix, now)?;
            }
            Ok(())
        });
        if let Err(error) = merged {
            self.warn(runner, &format!("old minutes cannot be merged: {}", failure_text(&error, 500)));
            (*lead, _) = (None, holder.close());
        }
    }

    /// Writes what was counted last, after the workers have left.
    pub(super) fn write_last_minutes(&self) {
        if self.minutes.is_some() {
            let connection = self.sessions.unknown();
            let post = Post::new(Duty::Reporter, connection, self.settings.patience(), self.settings.patience());
            _ = self.write_minutes(&mut self.sessions.of_scout(&post));
        }
    }

    /// Shows what the workers of this process do.
    fn show_workers(&self) {
        let entities: Vec<_> = self.runners.iter().map(|runner| runner.info().entity).collect();
        let (slots, stuck) = (self.slots(), self.board.stuck());
        let busy = slots.iter().filter(|slot| slot.runner().is_some()).count();
        let idle = slots.len().saturating_sub(busy + stuck);
        for (state, workers) in [("busy", busy), ("idle", idle), ("stuck", stuck)] {
            let labels = vec![("poller", entities.join(",")), ("state", state.to_owned())];
            self.events.measure(|| Measure::Gauge(Gauge { name: WORKERS, labels, value: workers as f64 }));
        }
        for runner in self.runners.iter().filter(|runner| runner.info().heartbeat_interval.is_some()) {
            let (labels, ahead) = (vec![("entity", runner.info().entity.to_owned())], runner.claimed_ahead());
            self.events.measure(|| Measure::Gauge(Gauge { name: AHEAD, labels, value: ahead as f64 }));
        }
    }
}
