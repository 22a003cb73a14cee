//! Which statements claim leases: what the server supports, and what has failed on it before.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::backend::{LockSql, QueueConnection};
use crate::claim::ClaimStyle;

/// After this many refusals in a row, no more claims are made by one statement.
const REFUSALS: u32 = 3;

/// How the leases of one entity are claimed.
pub(crate) struct ClaimWay {
    style: ClaimStyle,
    skips_locked_rows: AtomicBool,
    can_lock: AtomicBool,
    /// Whether no more claims are made by one statement.
    in_steps: AtomicBool,
    /// How many times in a row the one statement was refused, although the same rows could be claimed in steps.
    refusals: AtomicU32,
}

impl ClaimWay {
    pub(crate) fn new(style: ClaimStyle) -> Self {
        ClaimWay {
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

    /// Tells whether claims pass over the rows that others are claiming.
    pub(crate) fn skips_locked_rows(&self) -> bool {
        self.skips_locked_rows.load(Ordering::Relaxed)
    }

    /// Tells whether rows can be locked without waiting for others.
    pub(crate) fn can_lock(&self) -> bool {
        self.can_lock.load(Ordering::Relaxed)
    }

    /// Tells whether claims are made in several statements, although the server supports one.
    pub(crate) fn is_in_steps(&self) -> bool {
        self.in_steps.load(Ordering::Relaxed)
    }

    /// Counts the claims by one statement that the database refused. On PostgreSQL, a rule of the table may refuse all
    /// of them.
    pub(crate) fn was_refused(&self, is_refused: bool) {
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
    way: &'a ClaimWay,
    pub(crate) can_be_read: bool,
}

impl Drop for WatchedClaim<'_> {
    fn drop(&mut self) {
        if !self.can_be_read {
            self.way.in_steps.store(true, Ordering::Relaxed);
        }
    }
}
