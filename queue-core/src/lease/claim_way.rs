//! By which statements leases are claimed: what the server can do, and what has failed on it before.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::claim_style::ClaimStyle;

/// After how many refusals in a row of a claim by one statement none is sent any more.
const REFUSALS: u32 = 3;

/// How the leases of one entity are claimed.
pub(crate) struct ClaimWay {
    style: ClaimStyle,
    skips_locked_rows: AtomicBool,
    can_lock: AtomicBool,
    /// Whether no claim is made by one statement any more.
    in_steps: AtomicBool,
    /// How often in a row the one statement was refused, and the same rows could be claimed in steps.
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

    /// Learns what the server can do.
    pub(crate) fn learn(&self, skips_locked_rows: bool, can_lock: bool) {
        self.skips_locked_rows.store(skips_locked_rows && self.style == ClaimStyle::Auto, Ordering::Relaxed);
        self.can_lock.store(can_lock, Ordering::Relaxed);
    }

    /// Whether claims pass over the rows that others are claiming.
    pub(crate) fn skips_locked_rows(&self) -> bool {
        self.skips_locked_rows.load(Ordering::Relaxed)
    }

    /// Whether rows can be locked without waiting for others.
    pub(crate) fn can_lock(&self) -> bool {
        self.can_lock.load(Ordering::Relaxed)
    }

    /// Whether claims are made in several statements, although the server knows the one.
    pub(crate) fn is_in_steps(&self) -> bool {
        self.in_steps.load(Ordering::Relaxed)
    }

    /// Counts the claims by one statement that were refused. On PostgreSQL a rule of the table's may do so to all of them.
    pub(crate) fn was_refused(&self, is_refused: bool) {
        if !is_refused {
            self.refusals.store(0, Ordering::Relaxed);
        } else if self.refusals.fetch_add(1, Ordering::Relaxed) + 1 >= REFUSALS {
            self.in_steps.store(true, Ordering::Relaxed);
        }
    }

    /// Watches a claim by one statement. Its rows are leased to nobody if its answer cannot be read, or if reading it panics:
    /// then claims are made in steps from now on.
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
