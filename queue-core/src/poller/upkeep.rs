//! The upkeep: one process at a time removes the rows of a queue that the entity keeps no longer, a few at a time.
//!
//! A pass walks over the table once, and the next one begins an hour after its end. All that a pass does is bounded and has a rest,
//! so that a table of any size is only a longer pass.

use std::fs::File;
use std::time::{Duration, Instant};

use diesel::result::QueryResult;

use super::shared::PollerShared;
use crate::attempt::{Runner, RunnerInfo};
use crate::backend::{Dialect, ErrorClass, LeadersDuty, QueueConnection, SessionHolder, check_rights};
use crate::entity::IsKey;
use crate::error::Finding;
use crate::event::Measure;
use crate::row::{Leaving, OnFinish, failure_text};
use crate::statement::ErasedKey;

/// How many times as long as a step has taken the upkeep rests after it: it takes a twentieth of a session's time, and less of it
/// when the database becomes slow. A guess, and the rule of the gauges.
const REST: u32 = 20;

/// The shortest rest.
const SHORTEST: Duration = Duration::from_millis(10);

/// How long the upkeep rests after it has seen all rows. A guess: rows are kept for days.
const BETWEEN_PASSES: Duration = Duration::from_secs(3600);

/// How often a process looks whether it is the one, and whether the workers have caught up.
const LOOKS: Duration = Duration::from_secs(5);

/// How long the oldest due row may have waited while all workers are busy. Then claims come first, and a step only follows
/// [`WHEN_BUSY`] after the last one: a queue that is never idle must not grow for ever. Guesses.
const BEHIND: Duration = Duration::from_secs(1);
const WHEN_BUSY: Duration = Duration::from_secs(60);

/// How long the upkeep rests after an error that no row of its own explains.
const AFTER_TROUBLE: Duration = Duration::from_secs(60);

/// How often rows are tried in all, if that loses against other transactions.
const TRIES: u32 = 2;

/// How many rows a step looks at, and removes, at most. The second is halved when a step has taken longer than [`LONG`], and doubled
/// when it has taken less than half of that.
const MOST_LOOKED_AT: usize = 5_000;
const MOST_REMOVED: usize = 500;
const LEAST: usize = 10;
const LONG: Duration = Duration::from_millis(50);

/// The upkeep of the queues of a poller whose entities ask for it.
pub(super) struct Upkeep(Vec<Pass>);

/// The walk over one queue's table.
struct Pass {
    runner: usize,
    /// On SQLite, the file that holds the lock of the queue's upkeep.
    lead: Option<File>,
    next: Instant,
    /// When the next pass begins, and the last step was made.
    begins: Instant,
    last_step: Option<Instant>,
    /// The last row that was looked at.
    place: Option<ErasedKey>,
    size: usize,
    done: Done,
    /// The trouble that was logged last, so that it is logged once.
    trouble: Option<String>,
}

/// What a pass has done so far.
#[derive(Default)]
struct Done {
    looked_at: usize,
    deleted: usize,
    archived: usize,
    /// How many rows stay although they have expired, and why the first of them does.
    stay: usize,
    why: Option<String>,
}

/// Tells whether a poller has an upkeep.
pub(super) fn is_any<C: QueueConnection>(runners: &[Box<dyn Runner<C>>]) -> bool {
    runners.iter().any(|runner| runner.info().target.options.leaving().next().is_some())
}

impl Upkeep {
    /// Makes the first step at this time.
    pub(super) fn new<C: QueueConnection>(shared: &PollerShared<C>, next: Instant) -> Self {
        let kept = |runner: &usize| shared.leaving(*runner).next().is_some();
        let pass = |runner| {
            shared.leaving(runner).for_each(|leaving| shared.count(runner, leaving, 0, 0));
            Pass {
                runner,
                lead: None,
                next,
                begins: next,
                last_step: None,
                place: None,
                size: MOST_REMOVED,
                done: Done::default(),
                trouble: None,
            }
        };
        Upkeep((0..shared.runners.len()).filter(kept).map(pass).collect())
    }

    /// Returns when it is time for the next step.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.iter().map(|pass| pass.next).min()
    }

    /// Makes the steps whose time has come.
    pub(super) fn go_on<C: QueueConnection>(&mut self, shared: &PollerShared<C>, holder: &mut SessionHolder<C>) {
        for pass in self.0.iter_mut().filter(|pass| pass.next <= Instant::now()) {
            let rest = pass.step(shared, holder).unwrap_or_else(|trouble| {
                if pass.trouble.as_ref() != Some(&trouble) {
                    let text = format!("the upkeep cannot remove rows, and tries again every minute: {trouble}");
                    shared.warn(pass.runner, &text);
                    pass.trouble = Some(trouble);
                }
                // With the session the lock ends: another process may have a better connection.
                (pass.lead, _) = (None, holder.close());
                AFTER_TROUBLE
            });
            pass.next = Instant::now() + rest;
        }
    }
}

impl Pass {
    /// Looks at some rows, and removes those that have expired. Returns how long the upkeep rests then.
    fn step<C: QueueConnection>(
        &mut self,
        shared: &PollerShared<C>,
        holder: &mut SessionHolder<C>,
    ) -> Result<Duration, String> {
        let served = shared.runners[self.runner].served();
        let session = holder.session().map_err(|error| failure_text(&error, 500))?;
        let text = |error| failure_text(&error, 500);
        if !session.try_lead(&served.info().target, LeadersDuty::Upkeep, &mut self.lead).map_err(text)? {
            (self.place, self.done, self.begins) = (None, Done::default(), Instant::now());
            return Ok(LOOKS);
        }
        if let Some(rest) = self.begins.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero()) {
            return Ok(rest.min(LOOKS));
        }
        let may_be_busy = self.last_step.is_some_and(|last| last.elapsed() < WHEN_BUSY);
        if may_be_busy && !shared.board.has_free_worker(self.runner) {
            let waits = served.oldest_due(session).map_err(text)?;
            if waits.is_some_and(|waits| waits > BEHIND) {
                return Ok(LOOKS);
            }
        }
        let begun = Instant::now();
        self.last_step = Some(begun);
        let limits = (MOST_LOOKED_AT, self.size);
        let found = served.next_rows(session, self.place.as_ref(), limits).map_err(text)?;
        for leaving in shared.leaving(self.runner) {
            let with_status = found.expired.iter().filter(|(status, _)| status == leaving.0[0].as_str());
            let keys: Vec<_> = with_status.map(|(_, key)| key.clone()).collect();
            self.remove(shared, holder, (leaving, &keys), true)?;
        }
        self.trouble = None;
        self.done.looked_at += found.looked_at;
        self.done.stay(found.undecodable, "its key cannot be decoded");
        self.place = found.last;
        let took = begun.elapsed();
        self.size = match took {
            _ if took > LONG => (self.size / 2).max(LEAST),
            _ if took < LONG / 2 => (self.size * 2).min(MOST_REMOVED),
            _ => self.size,
        };
        if self.place.is_none() {
            self.end(shared);
        }
        Ok(took.saturating_mul(REST).max(SHORTEST))
    }

    /// Removes rows of one status: together if the database accepts that, and else those halves that it accepts, down to one row.
    /// `is_first`: these are all rows of a step.
    fn remove<C: QueueConnection>(
        &mut self,
        shared: &PollerShared<C>,
        holder: &mut SessionHolder<C>,
        (leaving, keys): (Leaving, &[IsKey<C::Backend>]),
        is_first: bool,
    ) -> Result<(), String> {
        if keys.is_empty() || shared.board.is_stopping() {
            return Ok(());
        }
        let session = holder.session().map_err(|error| failure_text(&error, 500))?;
        let error = match self.remove_together(shared, session, (leaving, keys)) {
            Ok(rows) => {
                let all = if leaving.2 == OnFinish::Delete { &mut self.done.deleted } else { &mut self.done.archived };
                *all += rows;
                shared.count(self.runner, leaving, rows, 0);
                return Ok(());
            }
            Err(error) => error,
        };
        let text = failure_text(&error, 500);
        match C::classify(&error) {
            // Each part of them would wait as long for the same lock.
            ErrorClass::Conflict => self.done.stay(keys.len(), &text),
            ErrorClass::Other if C::refuses_writes(&error) => return Err(text),
            ErrorClass::Other => {
                if is_first && !C::Backend::ONE_WRITER {
                    self.check_rights(shared, session)?;
                }
                if let [_] = keys {
                    if self.done.why.is_none() {
                        shared.warn(
                            self.runner,
                            &format!("the upkeep leaves a row in the table that has expired: {text}"),
                        );
                    }
                    self.done.stay(1, &text);
                    shared.count(self.runner, leaving, 0, 1);
                    return Ok(());
                }
                let (first, second) = keys.split_at(keys.len() / 2);
                self.remove(shared, holder, (leaving, first), false)?;
                self.remove(shared, holder, (leaving, second), false)?;
            }
            ErrorClass::ConnectionLost | ErrorClass::NoRoom => return Err(text),
        }
        Ok(())
    }

    /// Removes some rows, if the database accepts that for all of them.
    fn remove_together<C: QueueConnection>(
        &self,
        shared: &PollerShared<C>,
        connection: &mut C,
        (leaving, keys): (Leaving, &[IsKey<C::Backend>]),
    ) -> QueryResult<usize> {
        let served = shared.runners[self.runner].served();
        let mut tries = 0;
        loop {
            let removed = {
                let _turn = shared.turn_to_write();
                served.remove_expired(connection, keys, leaving)
            };
            tries += 1;
            let is_conflict = matches!(&removed, Err(error) if C::classify(error) == ErrorClass::Conflict);
            if !is_conflict || tries == TRIES || shared.board.is_stopping() {
                return removed;
            }
        }
    }

    /// Finds out whether the account lacks a right without which no row can be removed.
    fn check_rights<C: QueueConnection>(&self, shared: &PollerShared<C>, connection: &mut C) -> Result<(), String> {
        let missing = check_rights(connection, &shared.runners[self.runner].info().target);
        match missing.map_err(|error| failure_text(&error, 500))?.into_iter().next().map(|right| right.finding) {
            Some(Finding { problem, mend, .. }) => Err(format!("{problem}; {mend}")),
            None => Ok(()),
        }
    }

    /// Ends the pass, and says what it has done.
    fn end<C: QueueConnection>(&mut self, shared: &PollerShared<C>) {
        let entity = shared.runners[self.runner].info().entity;
        let Done { looked_at, deleted, archived, stay, why } = std::mem::take(&mut self.done);
        if deleted + archived + stay > 0 {
            tracing::info!(entity, deleted, archived, stay, looked_at, "the upkeep has seen all rows");
        } else {
            tracing::debug!(entity, looked_at, "the upkeep has seen all rows, and none had expired");
        }
        if let Some(why) = why {
            let text = format!(
                "the upkeep leaves {stay} rows in the table that have expired, and tries again in an hour: {why}; if other rows \
                 refer to them, remove those first, or give the foreign key ON DELETE CASCADE"
            );
            shared.warn(self.runner, &text);
        }
        self.begins = Instant::now() + BETWEEN_PASSES;
    }
}

impl Done {
    fn stay(&mut self, rows: usize, why: &str) {
        self.stay += rows;
        if rows > 0 {
            self.why.get_or_insert_with(|| why.to_owned());
        }
    }
}

impl<C: QueueConnection> PollerShared<C> {
    /// Returns which rows of a runner's queue the upkeep removes.
    fn leaving(&self, runner: usize) -> impl Iterator<Item = Leaving> + use<C> {
        self.runners[runner].info().target.options.leaving()
    }

    /// Counts rows that were removed, and that the database refuses to let go.
    fn count(&self, runner: usize, (of, _, leaves): Leaving, removed: usize, refused: usize) {
        let RunnerInfo { entity, key_prefix: queue, .. } = self.runners[runner].info();
        let how = if leaves == OnFinish::Delete { "deleted" } else { "archived" };
        for (outcome, rows) in [(how, removed), ("refused", refused)] {
            self.events.measure(|| Measure::Upkeep { entity, queue, status: of[0].as_str(), outcome, rows });
        }
    }
}
