//! The scout: the one thread of a poller that looks for due rows while the workers sleep, and keeps their timeouts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::listener::Listener;
use super::poll_timer::Watch;
use super::replace_stuck::substitute;
use super::shared::{Crew, Presence};
use super::wake::{Bell, Rung};
use crate::backend::{Link, QueueConnection};
use crate::claim::SOUNDING;
use crate::entity::{Retry, RetryPolicy, jittered};
use crate::error::{Error, panic_text};
use crate::row::{HORIZON, failure_text};

/// How long the scout leaves a lane alone whose due rows nobody could claim; it doubles up to the poll interval.
const HELD_PAUSE: Duration = Duration::from_millis(50);

/// How long a window stays closed at least: nothing is due then, which no time at all would say.
const SHORTEST_CLOSURE: Duration = Duration::from_millis(1);

/// How long the scout waits at least between two looks for the records of dead processes.
const SHORTEST_ADOPTION: Duration = Duration::from_secs(1);

/// How the scout backs off from a database in trouble.
const BACKOFF: Retry = Retry::exponential(Duration::from_millis(100)).max(Duration::from_secs(2));

/// How long the scout rests after a panic of its own.
const RESTART: Duration = Duration::from_secs(1);

/// What a look at a lane has seen.
enum Seen {
    /// Its window is closed for so long.
    Closed(Duration),
    /// The next row is due after this time; `None`: none is that anybody knows of.
    Due(Option<Duration>),
}

/// The scout before it starts.
pub(crate) struct Scout<C: QueueConnection> {
    crew: Arc<Crew<C>>,
    bell: Arc<Bell>,
    listener: Listener,
    until_idle: bool,
}

impl<C: QueueConnection> Scout<C> {
    pub(crate) fn new(crew: Arc<Crew<C>>, bell: Arc<Bell>, listener: Listener, until_idle: bool) -> Self {
        Scout { crew, bell, listener, until_idle }
    }

    /// Looks until the poller stops, or, if that was asked for, until nothing is due.
    pub(crate) fn run(mut self) {
        let crew = self.crew.clone();
        let _presence = Presence(&*crew);
        // A panic is ours or the driver's. Without a scout nothing that becomes due would be worked.
        while let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.watch(&crew))) {
            crew.noise.warn("poller", &format!("the scout panicked, and begins anew: {}", panic_text(panic)));
            crew.pause(RESTART);
        }
    }

    fn watch(&mut self, crew: &Crew<C>) {
        let now = Instant::now();
        let mut watches: Vec<_> = crew.lanes.iter().map(|_| Watch::new(now)).collect();
        let mut link = crew.scouts_link();
        let mut next_adoption = now;
        while !crew.is_stopping() {
            if next_adoption <= Instant::now() {
                crew.crashes.adopt();
                next_adoption = Instant::now() + crew.settings.poll_interval.max(SHORTEST_ADOPTION);
            }
            for (lane, watch) in watches.iter_mut().enumerate() {
                if watch.next_look <= Instant::now() {
                    watch.nothing_due = self.look_safely(&mut link, lane, watch);
                }
            }
            self.enforce_timeouts(&mut link);
            if self.until_idle && crew.is_quiet() {
                let turns = crew.turns();
                let mut stale = watches.iter_mut().filter(|watch| watch.turns_seen != turns).peekable();
                if stale.peek().is_some() {
                    // A handler may have made rows of another queue due.
                    stale.for_each(|watch| watch.look_now(Instant::now()));
                    continue;
                }
                if watches.iter().all(|watch| watch.nothing_due)
                    && !crew.lanes.iter().zip(&crew.gates).any(|(lane, gate)| gate.is_open() && lane.has_interrupted())
                {
                    return;
                }
            }
            let rung = self.rest(&mut link, &mut watches);
            self.answer(rung, &mut watches);
        }
    }

    /// Looks at one lane as [`look`](Self::look) does. A condition of the user's that panics must not keep the scout from the other
    /// lanes.
    fn look_safely(&mut self, link: &mut Link<C>, lane: usize, watch: &mut Watch) -> bool {
        catch_unwind(AssertUnwindSafe(|| self.look(link, lane, watch))).unwrap_or_else(|panic| {
            self.back_off(link, lane, watch, &format!("looking for due rows panicked: {}", panic_text(panic)));
            false
        })
    }

    /// Looks at one lane and decides when to look again. Returns whether nothing is due.
    fn look(&mut self, link: &mut Link<C>, lane: usize, watch: &mut Watch) -> bool {
        let crew = &*self.crew;
        // Before the look: what is announced from here on may not be seen by it.
        self.bell.looks(crew.lanes[lane].queue());
        let is_routine = watch.looks(Instant::now());
        let interval = jittered(crew.settings.poll_interval, 0.1, fastrand::f64()).min(HORIZON);
        let (hot, fruitless) = crew.heat_of(lane);
        if hot {
            // The workers are at it; they say when they find nothing more.
            match self.sound(link, lane, watch) {
                Ok(()) => {
                    let until_sounding = watch.next_sounding.saturating_duration_since(Instant::now());
                    watch.look_beside_the_workers_in(interval.min(until_sounding));
                }
                Err(error) => self.back_off(link, lane, watch, &format!("cannot look beside the workers: {error}")),
            }
            return false;
        }
        watch.turns_seen = crew.turns();
        let looked = self.ask_whether_open(link, lane).and_then(|closed_for| match closed_for {
            Some(closed_for) => Ok(Seen::Closed(closed_for.max(SHORTEST_CLOSURE))),
            None => Ok(Seen::Due(crew.lanes[lane].look(link.session()?, self.until_idle)?)),
        });
        let seen = match looked {
            Ok(seen) => seen,
            Err(error) => {
                let error = failure_text(&error, 500);
                self.back_off(link, lane, watch, &format!("cannot look for due rows: {error}"));
                return false;
            }
        };
        watch.troubles = 0;
        match seen {
            Seen::Due(Some(Duration::ZERO)) => {
                crew.heat(lane);
                watch.found(Instant::now());
                if is_routine && fruitless <= 1 {
                    self.listener.has_missed(lane, link, crew);
                }
                // If nobody can claim what is due, others hold it: do not hammer, whatever is heard of new rows.
                let wait = HELD_PAUSE.saturating_mul(1 << fruitless.min(10)).min(interval);
                // One turn that finds nothing more is how work ends.
                let is_held = fruitless > 1;
                watch.look_again_in(wait, if is_held { HELD_PAUSE } else { Duration::ZERO }, false);
                return false;
            }
            Seen::Due(Some(due_in)) => watch.look_again_in(due_in.min(interval), Duration::ZERO, false),
            Seen::Due(None) => watch.look_again_in(interval, Duration::ZERO, true),
            Seen::Closed(closed_for) => watch.rest(closed_for.min(interval)),
        }
        true
    }

    /// Looks beside the workers, if its time has come.
    fn sound(&self, link: &mut Link<C>, lane: usize, watch: &mut Watch) -> Result<(), String> {
        let now = Instant::now();
        if now < watch.next_sounding {
            return Ok(());
        }
        let asked = self.ask_whether_open(link, lane);
        let sounded = asked.and_then(|_| Ok(self.crew.lanes[lane].sound(link.session()?)?));
        sounded.map_err(|error| failure_text(&error, 500))?;
        (watch.troubles, watch.next_sounding) = (0, now + SOUNDING);
        Ok(())
    }

    /// Leaves a database in trouble alone for a while.
    fn back_off(&self, link: &mut Link<C>, lane: usize, watch: &mut Watch, trouble: &str) {
        self.crew.noise.warn(self.crew.lanes[lane].entity(), trouble);
        link.close();
        watch.troubles += 1;
        let pause = BACKOFF.delay(watch.troubles).unwrap_or(self.crew.settings.poll_interval);
        watch.rest(jittered(pause, 1.0, fastrand::f64()));
    }

    /// Sleeps until something is to be done or the bell rings; where notifications are listened for, listening for them.
    fn rest(&mut self, link: &mut Link<C>, watches: &mut [Watch]) -> Rung {
        let next_event = self.next_event(watches);
        loop {
            if self.listener.hear(link, &self.crew, watches) {
                return Rung::default();
            }
            let listens = self.listener.listens(link, &self.crew);
            let pause = listens.then(|| Instant::now() + self.listener.pause());
            let rung = self.bell.wait(pause.map_or(next_event, |pause| pause.min(next_event)));
            if rung.is_any() || next_event <= Instant::now() {
                return rung;
            }
        }
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
            let (hot, fruitless) = self.crew.heat_of(lane);
            let (is_announced, has_cooled) =
                (rung.announced.contains(&self.crew.lanes[lane].queue()), rung.cooled.contains(&lane));
            match (is_announced, hot) {
                (true, true) => watch.remember(now),
                (true, false) => watch.await_enqueue(now),
                (false, false) if has_cooled => watch.recall(now),
                (false, _) => {}
            }
            // A lane that cools for the first time is looked at for the time of its next row; one whose due rows are
            // held keeps its pause.
            if rung.all || (has_cooled && fruitless <= 1) {
                watch.look_now(now);
            }
        }
    }

    /// Takes the transaction away from handlers that are past their timeout.
    fn enforce_timeouts(&self, link: &mut Link<C>) {
        let now = Instant::now();
        for slot in self.crew.slots() {
            let Some((entity, session)) = slot.revoke_if_timed_out(now) else { continue };
            self.crew.noise.warn(entity, "a handler is past its timeout and loses its transaction");
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
        // A worker that takes a row does not ring. While one may, the scout sleeps no longer than the shortest timeout, so
        // that it is late by one timeout at most; in a quiet crew nothing begins before the scout says so.
        let timeouts = self.crew.lanes.iter().map(|lane| lane.timeout());
        let interval = self.crew.settings.poll_interval;
        let longest = if self.crew.is_quiet() { interval } else { timeouts.fold(interval, Duration::min) };
        let latest = Instant::now() + longest;
        looks.chain(deadlines).min().unwrap_or(latest).min(latest)
    }
}
