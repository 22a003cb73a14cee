//! The reporter: the thread of a poller that reports the gauges, on a connection of its own.
//!
//! Many processes serve a queue, and one of them reports the gauges of its table: the one that holds a lock of the database.

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
use crate::row::failure_text;

/// How many times as long as a reading has taken the next one waits at least.
const REST: u32 = 20;

/// The reporter before it starts.
pub(crate) struct Reporter<C: QueueConnection> {
    shared: Arc<PollerShared<C>>,
    post: Arc<Post>,
    every: Duration,
}

impl<C: QueueConnection> Reporter<C> {
    /// Returns the reporter of a poller, if it reports anything.
    pub(crate) fn new(shared: &Arc<PollerShared<C>>, connection: ThreadConnection) -> Option<Self> {
        let every = shared.gauges.every?;
        let post = shared.new_post(Duty::Reporter, connection, shared.settings.patience());
        Some(Reporter { shared: shared.clone(), post, every })
    }

    /// Starts the thread.
    pub(crate) fn spawn(self, has_tried: Option<Sender<()>>) -> Result<(), Error> {
        let (shared, post) = (self.shared.clone(), self.post.clone());
        post.tells_trial(has_tried);
        spawn(&shared, post, "queueable-report".to_owned(), move || self.run())
    }

    /// Reports until the poller stops.
    fn run(self) {
        let Reporter { shared, post, every } = self;
        let mut holder = shared.sessions.of_scout(&post);
        let mut leads: Vec<_> = shared.runners.iter().map(|_| None).collect();
        shared.events.measure(|| Measure::Description(DESCRIPTIONS));
        // At once, because later the application may have taken every other connection. A report tries again, and logs why it
        // cannot.
        let _ = holder.session();
        post.note_trial();
        while !shared.board.is_stopping() && !post.is_left_behind() {
            holder.move_to_file(shared.sessions.files());
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
            holder.end_wait();
            shared.board.pause(every.max(begun.elapsed().saturating_mul(REST)));
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
