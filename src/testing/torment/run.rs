//! One run of a row, from the same beginning to its end.

use std::collections::BTreeMap;
use std::mem::discriminant;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use chrono::TimeDelta;
use queue_core::internals::testing::{Turned, Workbench, offer_second_calls, travel, travel_to};

use super::watch::{Fault, Killed, Point, Watch};
use crate::bounds::{Explains, HandlerFor, QueueConnection};
use crate::testing::drained::{attempts_of, expect_no_trouble};
use crate::testing::rolled_back::{depth_of, roll_back_to};
use crate::testing::{Attempt, AttemptEnd};
use crate::{Error, Explanation, Queueable};

/// After so many turns, a row goes round.
const TURNS: usize = 60;

/// By how much the clock goes beyond a due time.
const BEYOND: TimeDelta = TimeDelta::seconds(1);

/// What a run came to.
pub(super) struct Run {
    /// The points that were passed.
    pub(super) points: Vec<Point>,
    /// The rows that came to an end in each turn, each with its end.
    turns: Vec<Vec<(Arc<str>, AttemptEnd)>>,
    pub(super) attempts: Vec<Attempt>,
    /// How the rows are explained in the end.
    pub(super) states: Vec<Explanation>,
    /// Whether the rows came to an end.
    pub(super) is_settled: bool,
    /// Whether the tries were used up by the end of the world.
    pub(super) is_given_up: bool,
    /// Whether the world has ended.
    pub(super) has_struck: bool,
}

impl Run {
    /// Tells whether a row was given up.
    pub(super) fn has_failed(&self) -> bool {
        self.attempts.iter().any(|attempt| attempt.end == AttemptEnd::GaveUp)
    }

    /// Returns how a row ended otherwise than in the other run.
    pub(super) fn other_end(&self, expected: &Run) -> Option<String> {
        let mut states = self.states.iter().zip(&expected.states);
        let (found, expected) = states.find(|(found, expected)| discriminant(*found) != discriminant(*expected))?;
        Some(format!("the row: {found}; undisturbed: {expected}"))
    }
}

/// What is run.
pub(super) struct Work<'a, Q: Queueable, H> {
    pub(super) handler: &'a H,
    pub(super) keys: &'a [Q::Key],
}

impl<Q: Queueable + 'static, H> Work<'_, Q, H> {
    /// Works the rows until they come to their ends. The world ends at one point, if that is the plan; what was committed before
    /// that stays, and a new worker goes on. `like`: a run that nothing disturbed.
    pub(super) fn run<C>(
        &self,
        connection: &mut C,
        end: Option<(usize, Fault)>,
        like: Option<&Run>,
    ) -> Result<Run, Error>
    where
        C: QueueConnection + Explains<Q>,
        H: HandlerFor<Q, C>,
    {
        let watch = Watch::ending(end);
        connection.set_instrumentation(watch.clone());
        let _watching = watch.watching();
        let _offered = matches!(end, Some((_, Fault::Twice))).then(offer_second_calls);
        let depth = depth_of(connection);
        let (mut progress, mut turns) = (Progress::new(like), 0);
        while turns < TURNS && !progress.are_all_at_an_end(self.keys.len()) {
            turns += 1;
            match self.work(connection, &watch, &mut progress, &mut turns)? {
                Stop::Ended => break,
                Stop::Killed => {
                    roll_back_to(connection, depth)?;
                    if watch.is_committed() {
                        progress.add_as_undisturbed();
                    }
                }
                Stop::Restarts => {}
            }
        }
        watch.check_second_call()?;
        let mut states = Vec::new();
        for key in self.keys {
            states.push(Q::explain(connection, key)?);
        }
        let Progress { turns, attempts, is_given_up, ended, .. } = progress;
        let is_settled = ended.len() == self.keys.len() || !states.iter().any(is_pending);
        let has_struck = watch.has_ended_once();
        Ok(Run { points: watch.points(), turns, attempts, states, is_settled, is_given_up, has_struck })
    }

    /// Works the rows as one process, to its end.
    fn work<C>(
        &self,
        connection: &mut C,
        watch: &Watch,
        progress: &mut Progress<'_>,
        turns: &mut usize,
    ) -> Result<Stop, Error>
    where
        C: QueueConnection + Explains<Q>,
        H: HandlerFor<Q, C>,
    {
        let mut bench = Workbench::new(connection);
        bench.serve::<Q>(self.handler)?;
        while *turns < TURNS {
            *turns += 1;
            bench.look()?;
            bench.only::<Q>(0, self.keys.to_vec());
            watch.begin_turn();
            let turned = catch_unwind(AssertUnwindSafe(|| bench.turn(0)));
            watch.end_turn();
            let turned = match turned {
                Ok(turned) => turned?,
                Err(panic) if panic.is::<Killed>() => return Ok(Stop::Killed),
                Err(panic) => resume_unwind(panic),
            };
            if !watch.has_struck() {
                expect_no_trouble(&turned, bench.entity(0))?;
            }
            if turned.is_idle {
                return self.wait(bench.connection()?);
            }
            progress.add(turned, watch.has_struck());
            if progress.are_all_at_an_end(self.keys.len()) {
                return Ok(Stop::Ended);
            }
        }
        Ok(Stop::Ended)
    }

    /// Moves the clock to the time at which one of the rows is due.
    fn wait<C: QueueConnection + Explains<Q>>(&self, connection: &mut C) -> Result<Stop, Error> {
        let mut soonest = None;
        for key in self.keys {
            match Q::explain(connection, key)? {
                Explanation::ScheduledFor { time } | Explanation::OutsideWindow { opens: Some(time) } => {
                    soonest = soonest.into_iter().chain([time]).min();
                }
                // A worker that is gone has leased it.
                Explanation::Held { .. } => {
                    travel(connection, TimeDelta::from_std(Q::SETTINGS.lease).unwrap_or(BEYOND) + BEYOND);
                    return Ok(Stop::Restarts);
                }
                Explanation::Due => return Ok(Stop::Restarts),
                _ => {}
            }
        }
        let Some(time) = soonest else { return Ok(Stop::Ended) };
        travel_to(connection, time)?;
        travel(connection, BEYOND);
        Ok(Stop::Restarts)
    }
}

/// Why a process works no further.
enum Stop {
    /// There is nothing left that will be due.
    Ended,
    Killed,
    /// The rows are due for another process.
    Restarts,
}

/// What a run has come to so far.
struct Progress<'l> {
    like: Option<&'l Run>,
    turns: Vec<Vec<(Arc<str>, AttemptEnd)>>,
    attempts: Vec<Attempt>,
    ended: BTreeMap<Arc<str>, AttemptEnd>,
    is_given_up: bool,
}

impl<'l> Progress<'l> {
    fn new(like: Option<&'l Run>) -> Self {
        Progress { like, turns: Vec::new(), attempts: Vec::new(), ended: BTreeMap::new(), is_given_up: false }
    }

    fn add(&mut self, turned: Turned, is_disturbed: bool) {
        let attempts = attempts_of(turned);
        let given_up = attempts.iter().any(|attempt| attempt.end == AttemptEnd::GaveUp);
        self.is_given_up |= is_disturbed && given_up;
        let ends: Vec<_> = attempts.iter().map(|attempt| (attempt.key.clone(), attempt.end)).collect();
        self.attempts.extend(attempts);
        self.note(ends);
    }

    /// Notes a turn of which nobody heard, but which was committed.
    fn add_as_undisturbed(&mut self) {
        let ends = self.like.and_then(|like| like.turns.get(self.turns.len())).cloned();
        self.note(ends.unwrap_or_default());
    }

    fn note(&mut self, ends: Vec<(Arc<str>, AttemptEnd)>) {
        let is_end = |end: &AttemptEnd| {
            matches!(end, AttemptEnd::Succeeded | AttemptEnd::Skipped | AttemptEnd::RunsAgain | AttemptEnd::GaveUp)
        };
        self.ended.extend(ends.iter().filter(|(_, end)| is_end(end)).cloned());
        self.turns.push(ends);
    }

    fn are_all_at_an_end(&self, rows: usize) -> bool {
        self.ended.len() >= rows
    }
}

/// Tells whether a row will be worked.
fn is_pending(state: &Explanation) -> bool {
    !matches!(
        state,
        Explanation::NoSuchRow
            | Explanation::Archived { .. }
            | Explanation::NotQueued
            | Explanation::Stopped
            | Explanation::Skipped
            | Explanation::Succeeded { .. }
            | Explanation::FailedForGood { .. }
    )
}
