//! What a drain did: its attempts, and what it left.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use queue_core::internals::testing::Turned;

use crate::{AttemptEvent, Error, Event, Paused};

/// What a drain did.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Drained {
    /// The attempts, in the order in which they ended.
    pub attempts: Vec<Attempt>,
    /// The entities of which nothing was worked, and why.
    pub kept: Vec<Kept>,
}

/// Why no row of an entity was worked.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Kept {
    /// Its queue is paused.
    #[non_exhaustive]
    Paused {
        /// The entity's name.
        entity: &'static str,
        /// By whom, since when, and why.
        pause: Box<Paused>,
    },
    /// Its window is closed.
    #[non_exhaustive]
    OutsideWindow {
        /// The entity's name.
        entity: &'static str,
        /// When the window opens next, if ever.
        opens: Option<DateTime<Utc>>,
    },
    /// Rows of it are due, and a worker would not take them now: others of their turn come first, places are taken, the database
    /// refused to write on them, or they were interrupted and rest for a moment. [`explain`](crate::Queueable::explain) says which.
    #[non_exhaustive]
    Due {
        /// The entity's name.
        entity: &'static str,
    },
}

impl Drained {
    /// Returns the attempts on the row with this key.
    pub fn of(&self, key: impl fmt::Display) -> impl Iterator<Item = &Attempt> {
        let key = key.to_string();
        self.attempts.iter().filter(move |attempt| *attempt.key == key)
    }

    /// Counts the attempts that ended so.
    pub fn count(&self, end: AttemptEnd) -> usize {
        self.attempts.iter().filter(|attempt| attempt.end == end).count()
    }

    /// Counts the attempts whose rows are `SUCCESS`, or were removed as their handlers wished.
    pub fn succeeded(&self) -> usize {
        self.count(AttemptEnd::Succeeded)
    }

    /// Counts the attempts that have failed and will be retried.
    pub fn retried(&self) -> usize {
        self.count(AttemptEnd::WillRetry)
    }

    /// Counts the attempts whose rows are `FAILED`.
    pub fn failed(&self) -> usize {
        self.count(AttemptEnd::GaveUp)
    }
}

impl fmt::Display for Drained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.attempts.iter().try_for_each(|attempt| writeln!(f, "{attempt}"))?;
        self.kept.iter().try_for_each(|kept| writeln!(f, "{kept}"))
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kept::Paused { entity, pause } => {
                write!(f, "{entity}: not worked, paused by {}: {}", pause.by, pause.reason)
            }
            Kept::OutsideWindow { entity, opens: Some(opens) } => {
                write!(f, "{entity}: not worked, its window opens at {opens}")
            }
            Kept::Due { entity } => write!(f, "{entity}: rows are due and were not worked; `explain` says why"),
            Kept::OutsideWindow { entity, opens: None } => write!(f, "{entity}: not worked, its window never opens"),
        }
    }
}

/// One attempt in a test.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Attempt {
    /// The entity's name.
    pub entity: &'static str,
    /// The row's primary key as the logs write it: the database's text, with commas between the parts of a key of several columns.
    pub key: Arc<str>,
    /// The text of the stage in which it began, if the entity has stages.
    pub stage: Option<&'static str>,
    /// The number of the attempt, from 1.
    pub try_number: u32,
    /// What became of it.
    pub end: AttemptEnd,
    /// Why it failed or was interrupted.
    pub error: Option<String>,
    /// When the row is due again, by the test's clock, if it is. A time that the database counts from its own may differ by
    /// milliseconds.
    pub next: Option<DateTime<Utc>>,
    /// How long the handler and the settlement took. `None`: the handler was not called.
    pub duration: Option<Duration>,
    /// The entities of which rows were given a due time meanwhile, by [`due_now`](crate::Queueable::due_now) and its siblings: the
    /// entity's name if the drain serves it, or else the name of the module that the derive writes.
    pub enqueued: Vec<String>,
}

/// What becomes of an attempt, in the words of [`Event`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttemptEnd {
    /// The row is `SUCCESS`, or was removed as its handler wished.
    Succeeded,
    /// The row has gone on to another stage.
    Advanced,
    /// The row runs again later without a failure.
    RunsAgain,
    /// The row is `SKIPPED`.
    Skipped,
    /// The attempt has failed, the row is `ERROR`, and it will be retried.
    WillRetry,
    /// The row is `FAILED`; or the run of a schedule that goes on has failed for good.
    GaveUp,
    /// The attempt has ended without a result, and the row is due again after a pause.
    Interrupted,
    /// The database refuses to write the end of the attempt on its row.
    Refused,
    /// In lease mode: the row was changed or removed meanwhile, and nothing was written.
    LeaseLost,
}

impl AttemptEnd {
    /// Returns how the attempt has ended that an event is about, if that is its end.
    #[doc(hidden)]
    pub fn of(event: &Event) -> Option<(Self, &AttemptEvent)> {
        Some(match event {
            Event::Succeeded(attempt) => (AttemptEnd::Succeeded, attempt),
            Event::Advanced(attempt) => (AttemptEnd::Advanced, attempt),
            Event::RunsAgain(attempt) => (AttemptEnd::RunsAgain, attempt),
            Event::Skipped(attempt) => (AttemptEnd::Skipped, attempt),
            Event::WillRetry(attempt) => (AttemptEnd::WillRetry, attempt),
            Event::GaveUp(attempt) => (AttemptEnd::GaveUp, attempt),
            Event::Interrupted(attempt) => (AttemptEnd::Interrupted, attempt),
            Event::Refused(attempt) => (AttemptEnd::Refused, attempt),
            Event::LeaseLost(attempt) => (AttemptEnd::LeaseLost, attempt),
            _ => return None,
        })
    }
}

impl fmt::Display for AttemptEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AttemptEnd::Succeeded => "succeeded",
            AttemptEnd::Advanced => "advanced",
            AttemptEnd::RunsAgain => "runs again",
            AttemptEnd::Skipped => "skipped",
            AttemptEnd::WillRetry => "will be retried",
            AttemptEnd::GaveUp => "gave up",
            AttemptEnd::Interrupted => "interrupted",
            AttemptEnd::Refused => "refused",
            AttemptEnd::LeaseLost => "lost its lease",
        })
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.entity, self.key)?;
        if let Some(stage) = self.stage {
            write!(f, " in {stage}")?;
        }
        write!(f, ": try {} {}", self.try_number, self.end)?;
        if let Some(next) = self.next {
            write!(f, ", due at {}", next.format("%Y-%m-%d %H:%M:%S%.3f UTC"))?;
        }
        if !self.enqueued.is_empty() {
            write!(f, ", enqueued {}", self.enqueued.join(", "))?;
        }
        self.error.as_ref().map_or(Ok(()), |error| write!(f, ": {error}"))
    }
}

/// Returns an error if the database, or the table, kept the worker from working.
pub(super) fn expect_no_trouble(turned: &Turned, entity: &str) -> Result<(), Error> {
    if !turned.is_trouble {
        return Ok(());
    }
    let found = format!("keeping a worker from {entity}: {}", turned.warnings.join("; "));
    Err(Error::Setting { setting: "the database", found, expected: "a queue that a worker can serve" })
}

/// Returns the attempts of a turn.
pub(super) fn attempts_of(turned: Turned) -> Vec<Attempt> {
    let Turned { events, mut next, enqueued, .. } = turned;
    let attempt = |(end, attempt): (AttemptEnd, &AttemptEvent)| {
        let AttemptEvent { entity, key, stage, try_number, error, duration, .. } = attempt;
        let place = next.iter().position(|(of, _)| of == key);
        // What a failed attempt has written is undone.
        let stands = !matches!(
            end,
            AttemptEnd::WillRetry | AttemptEnd::GaveUp | AttemptEnd::Interrupted | AttemptEnd::LeaseLost
        );
        let enqueued = enqueued.iter().filter(|enqueued| stands && enqueued.by.as_ref() == Some(key));
        Attempt {
            entity,
            key: key.clone(),
            stage: *stage,
            try_number: *try_number,
            end,
            error: error.clone(),
            next: place.map(|place| next.remove(place).1),
            duration: *duration,
            enqueued: enqueued.map(|enqueued| name_of(enqueued.entity, enqueued.type_name)).collect(),
        }
    };
    events.iter().filter_map(AttemptEnd::of).map(attempt).collect()
}

/// Returns the name of an entity, or that of the module which the derive writes for it.
fn name_of(entity: Option<&str>, type_name: &str) -> String {
    let module = || type_name.rsplit("::").nth(1).unwrap_or(type_name);
    entity.unwrap_or_else(module).to_owned()
}
