//! The scout: the one thread of a poller that looks for due rows while the workers sleep, and keeps their budgets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::QueueConnection;
use crate::crew::{Crew, Presence};
use crate::error::Error;
use crate::failure_text::failure_text;
use crate::retry::{Retry, RetryPolicy, jittered};
use crate::session::Link;
use crate::substitute::substitute;
use crate::wake::{Bell, Rung};

/// After an announced enqueue the scout looks after 1, 2, 4, .. milliseconds, up to half a second: whoever announced it
/// has yet to insert and to commit.
const FIRST_GLANCE: Duration = Duration::from_millis(1);
const LAST_GLANCE: Duration = Duration::from_millis(512);

/// How long the scout leaves a lane alone whose due rows nobody could claim; it doubles up to the poll interval.
const HELD_PAUSE: Duration = Duration::from_millis(50);

/// How long a window stays closed at least: nothing is due then, which no time at all would say.
const SHORTEST_CLOSURE: Duration = Duration::from_millis(1);

/// How long the scout waits at least between two looks for the records of dead processes.
const SHORTEST_ADOPTION: Duration = Duration::from_secs(1);

/// How the scout backs off from a database in trouble.
const BACKOFF: Retry = Retry::exponential(Duration::from_millis(100)).max(Duration::from_secs(2));

/// The scout before it starts.
pub(crate) struct Scout<C: QueueConnection> {
    crew: Arc<Crew<C>>,
    bell: Arc<Bell>,
    until_idle: bool,
}

/// When a lane is looked at next.
struct Watch {
    next_look: Instant,
    /// The time until the glance after the next, while an announced enqueue is awaited.
    glance: Option<Duration>,
    troubles: u32,
    /// Whether the last look found nothing due, and how many turns had ended before it.
    nothing_due: bool,
    turns_seen: u64,
}

impl Watch {
    /// Sets the next look; an announced enqueue may want it earlier.
    fn look_again_in(&mut self, wait: Duration) {
        let wait = self.glance.map_or(wait, |glance| wait.min(glance));
        self.next_look = Instant::now() + wait;
        self.glance = self.glance.filter(|glance| *glance < LAST_GLANCE).map(|glance| glance * 2);
    }
}

impl<C: QueueConnection> Scout<C> {
    pub(crate) fn new(crew: Arc<Crew<C>>, bell: Arc<Bell>, until_idle: bool) -> Self {
        Scout { crew, bell, until_idle }
    }

    /// Looks until the poller stops, or, if that was asked for, until nothing is due.
    pub(crate) fn run(self) {
        let crew = &*self.crew;
        let _presence = Presence(crew);
        let now = Instant::now();
        let new = |_| Watch { next_look: now, glance: None, troubles: 0, nothing_due: false, turns_seen: 0 };
        let mut watches: Vec<_> = crew.lanes.iter().map(new).collect();
        let mut link = crew.scouts_link();
        let mut next_adoption = now;
        while !crew.is_stopping() {
            if next_adoption <= Instant::now() {
                crew.crashes.adopt();
                next_adoption = Instant::now() + crew.settings.poll_interval.max(SHORTEST_ADOPTION);
            }
            for (lane, watch) in watches.iter_mut().enumerate() {
                if watch.next_look <= Instant::now() {
                    watch.nothing_due = self.look(&mut link, lane, watch);
                }
            }
            self.keep_budgets(&mut link);
            if self.until_idle && crew.is_quiet() {
                let turns = crew.turns();
                let mut stale = watches.iter_mut().filter(|watch| watch.turns_seen != turns).peekable();
                if stale.peek().is_some() {
                    // A handler may have made rows of another queue due.
                    stale.for_each(|watch| watch.next_look = Instant::now());
                    continue;
                }
                if watches.iter().all(|watch| watch.nothing_due)
                    && !crew.lanes.iter().zip(&crew.gates).any(|(lane, gate)| gate.is_open() && lane.has_interrupted())
                {
                    return;
                }
            }
            let rung = self.bell.wait(self.next_event(&watches));
            self.answer(rung, &mut watches);
        }
    }

    /// Looks at one lane and decides when to look again. Returns whether nothing is due.
    fn look(&self, link: &mut Link<C>, lane: usize, watch: &mut Watch) -> bool {
        let crew = &*self.crew;
        let interval = jittered(crew.settings.poll_interval, 0.1, fastrand::f64());
        let (hot, fruitless) = crew.heat_of(lane);
        if hot {
            // The workers are at it; they say when they find nothing more.
            if let Err(error) = self.ask_whether_open(link, lane) {
                crew.noise
                    .warn(crew.lanes[lane].entity(), &format!("cannot ask the time: {}", failure_text(&error, 500)));
                link.close();
            }
            watch.look_again_in(interval);
            return false;
        }
        watch.turns_seen = crew.turns();
        let looked = self.ask_whether_open(link, lane).and_then(|closed_for| match closed_for {
            Some(closed_for) => Ok(Some(closed_for.max(SHORTEST_CLOSURE))),
            None => Ok(crew.lanes[lane].look(link.session()?)?),
        });
        let due_in = match looked {
            Ok(due_in) => due_in,
            Err(error) => {
                crew.noise.warn(
                    crew.lanes[lane].entity(),
                    &format!("cannot look for due rows: {}", failure_text(&error, 500)),
                );
                link.close();
                watch.troubles += 1;
                let pause = BACKOFF.delay(watch.troubles).unwrap_or(interval);
                watch.next_look = Instant::now() + jittered(pause, 1.0, fastrand::f64());
                return false;
            }
        };
        watch.troubles = 0;
        let wait = match due_in {
            Some(Duration::ZERO) => {
                crew.heat(lane);
                // If nobody can claim what is due, others hold it: do not hammer.
                HELD_PAUSE.saturating_mul(1 << fruitless.min(10)).min(interval)
            }
            Some(due_in) => due_in.min(interval),
            None => interval,
        };
        watch.look_again_in(wait);
        due_in != Some(Duration::ZERO)
    }

    /// Tells a lane's window the database's time. Returns how long it stays closed, if it is.
    fn ask_whether_open(&self, link: &mut Link<C>, lane: usize) -> Result<Option<Duration>, Error> {
        let gate = &self.crew.gates[lane];
        if !gate.has_window() {
            return Ok(None);
        }
        let asked = Instant::now();
        let now = self.crew.lanes[lane].present(link.session()?)?;
        Ok(gate.tell(now, asked))
    }

    fn answer(&self, rung: Rung, watches: &mut [Watch]) {
        let now = Instant::now();
        for (lane, watch) in watches.iter_mut().enumerate() {
            if rung.announced.contains(&self.crew.lanes[lane].queue()) {
                watch.glance = Some(FIRST_GLANCE);
                watch.next_look = watch.next_look.min(now + FIRST_GLANCE);
            }
            // A lane that cools for the first time is looked at for the time of its next row; one whose due rows are
            // held keeps its pause.
            if rung.all || (rung.cooled.contains(&lane) && self.crew.heat_of(lane).1 <= 1) {
                watch.next_look = now;
            }
        }
    }

    /// Takes the transaction away from handlers that are over their budget.
    fn keep_budgets(&self, link: &mut Link<C>) {
        let now = Instant::now();
        for slot in self.crew.slots() {
            let Some((entity, session)) = slot.revoke_if_over_budget(now) else { continue };
            self.crew.noise.warn(entity, "a handler is over its budget and loses its transaction");
            if let Some(session) = session {
                match link.session() {
                    Ok(connection) => self.crew.end_session(connection, entity, session),
                    Err(error) => {
                        let error = failure_text(&error, 500);
                        self.crew.noise.warn(entity, &format!("a session cannot be ended: {error}"));
                    }
                }
            }
            substitute(&self.crew, &self.bell, link, &slot);
        }
    }

    fn next_event(&self, watches: &[Watch]) -> Instant {
        let deadlines = self.crew.slots().into_iter().filter_map(|slot| slot.deadline());
        let looks = watches.iter().map(|watch| watch.next_look);
        // A worker that takes a row does not ring. While one may, the scout sleeps no longer than the shortest budget, so
        // that it is late by one budget at most; in a quiet crew nothing begins before the scout says so.
        let budgets = self.crew.lanes.iter().map(|lane| lane.budget());
        let interval = self.crew.settings.poll_interval;
        let longest = if self.crew.is_quiet() { interval } else { budgets.fold(interval, Duration::min) };
        let latest = Instant::now() + longest;
        looks.chain(deadlines).min().unwrap_or(latest).min(latest)
    }
}
