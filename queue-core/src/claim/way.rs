//! How a row is claimed: what the setting asks for, and what the database's locks and the entity's order allow.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use serde::{Deserialize, Serialize};

use crate::backend::{Dialect, QueueBackend, QueueConnection};
use crate::entity::Key;
use crate::row::{Missed, Options};
use crate::statement::{ErasedQueue, Scope};

/// How a claim finds the rows that it locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimWay {
    /// By keys that the claim is given.
    Given,
    /// By the key of the row at the head of an exclusive queue.
    Head,
    /// Along the index: the claim passes over rows that others hold, and locks only those that it takes.
    Index,
    /// By keys that were read before, since a claim along the index would keep others from settling their rows. The
    /// due time alone decides which row is next, so that the workers can share the keys.
    Keys,
    /// The same where an order, a condition or the stages decide too: each claim reads candidates of its own.
    Candidates,
}

impl ClaimWay {
    /// Returns the way for the rows of this scope. Nothing but the keys and the stages of a scope changes it, and stages
    /// can be paused.
    pub(crate) fn of<DB: QueueBackend, K>(options: &Options, scope: &Scope<'_, K>) -> Self {
        let chooses = options.order.is_some() || options.conditional || scope.stages.is_some();
        match () {
            () if scope.only.is_some() => ClaimWay::Given,
            () if options.exclusive => ClaimWay::Head,
            () if chooses && DB::LOCKS_WHAT_IT_PASSES => ClaimWay::Candidates,
            () if !chooses && !options.is_scheduled() && DB::PREFETCHES_KEYS => ClaimWay::Keys,
            () => ClaimWay::Index,
        }
    }
}

/// How a claim writes leases on due rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseWay {
    /// One statement writes them, as its own transaction. If the database refuses it, the rows are locked first.
    AtOnce,
    /// The claim locks the rows in one of the ways of [`ClaimWay`], and then writes the leases.
    Lock,
    /// An update writes the leases, and a select finds them by its mark.
    Take,
}

/// How lease mode claims its rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ClaimStyle {
    /// A select passes over the rows that others are claiming (`SKIP LOCKED`), if the server supports it. Otherwise,
    /// and on SQLite, the same as [`UpdateThenSelect`](ClaimStyle::UpdateThenSelect).
    #[default]
    Auto,
    /// An update marks the rows, and a select finds them by the mark. Every database supports this, but workers that
    /// claim at the same time wait for one another.
    UpdateThenSelect,
}

/// After this many refusals in a row, no more claims are made by one statement.
const REFUSALS: u32 = 3;

/// Which statements claim the leases of one entity: what the server supports, and what has failed on it before.
pub(crate) struct LeaseStatements {
    style: ClaimStyle,
    skips_locked_rows: AtomicBool,
    can_lock: AtomicBool,
    /// Whether no more claims are made by one statement.
    in_steps: AtomicBool,
    /// How many times in a row the one statement was refused, although the same rows could be claimed in steps.
    refusals: AtomicU32,
}

impl LeaseStatements {
    pub(crate) fn new(style: ClaimStyle) -> Self {
        LeaseStatements {
            style,
            skips_locked_rows: AtomicBool::new(false),
            can_lock: AtomicBool::new(false),
            in_steps: AtomicBool::new(false),
            refusals: AtomicU32::new(0),
        }
    }

    /// Notes what the server supports.
    pub(crate) fn learn<C: QueueConnection>(&self, skips_locked_rows: bool) {
        self.skips_locked_rows.store(skips_locked_rows && self.style == ClaimStyle::Auto, Ordering::Relaxed);
        self.can_lock.store(skips_locked_rows || C::Backend::ONE_WRITER, Ordering::Relaxed);
    }

    /// Returns the way of a claim, of rows with `given` keys or of any. `has_places`: it counts the leases in lanes.
    pub(crate) fn way<K: Key, C: QueueConnection>(
        &self,
        queue: &ErasedQueue<K, C>,
        given: bool,
        has_places: bool,
    ) -> LeaseWay {
        let options = queue.sql.options;
        // A queue that leaves out late runs has to know when the row was due, and an update overwrites that time.
        let keeps_due = options.periodic.is_some_and(|periodic| matches!(periodic.missed, Missed::Skip(_)));
        // A queue that processes one row at a time claims one, under a lock that keeps others from claiming.
        let takes_turns = has_places || options.exclusive;
        let skips_locked_rows = self.skips_locked_rows.load(Ordering::Relaxed);
        match () {
            () if !given && queue.leases_at_once() && self.are_one() => LeaseWay::AtOnce,
            // Rows that a survey has found are also locked first, by their keys.
            () if given || skips_locked_rows || takes_turns || keeps_due => LeaseWay::Lock,
            () => LeaseWay::Take,
        }
    }

    /// Tells whether rows can be locked without waiting for others.
    pub(crate) fn can_lock(&self) -> bool {
        self.can_lock.load(Ordering::Relaxed)
    }

    /// Tells whether one statement makes a claim, if the queue allows that.
    pub(crate) fn are_one(&self) -> bool {
        !self.in_steps.load(Ordering::Relaxed) && self.skips_locked_rows.load(Ordering::Relaxed)
    }

    /// Counts the claims by one statement that the database refused. On PostgreSQL, a rule of the table may refuse all
    /// of them.
    pub(crate) fn note_answer(&self, is_refused: bool) {
        if !is_refused {
            self.refusals.store(0, Ordering::Relaxed);
        } else if self.refusals.fetch_add(1, Ordering::Relaxed) + 1 >= REFUSALS {
            self.in_steps.store(true, Ordering::Relaxed);
        }
    }

    /// Watches a claim by one statement. If its answer cannot be read, or if reading it panics, its rows are leased to
    /// nobody. From then on, claims are made in steps.
    pub(crate) fn watch(&self) -> WatchedClaim<'_> {
        WatchedClaim { way: self, can_be_read: false }
    }
}

/// A claim by one statement whose answer may not be readable.
pub(crate) struct WatchedClaim<'a> {
    way: &'a LeaseStatements,
    pub(crate) can_be_read: bool,
}

impl Drop for WatchedClaim<'_> {
    fn drop(&mut self) {
        if !self.can_be_read {
            self.way.in_steps.store(true, Ordering::Relaxed);
        }
    }
}
