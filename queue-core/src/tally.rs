//! What a poller has done, as counts of rows.

use serde::{Deserialize, Serialize};

use crate::lane::Turn;
use crate::verdict::Settled;

/// What a poller has done so far, as counts of rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Tally {
    /// Rows that became `SUCCESS` or were removed by their handler.
    pub succeeded: u64,
    /// Rows that failed and will be retried.
    pub retried: u64,
    /// Rows that became `FAILED`, or whose run failed for good while their schedule goes on.
    pub failed: u64,
    /// Rows that run again later without a failure, also because a run of their schedule came too late.
    pub again: u64,
    /// Rows that went on to another stage.
    pub advanced: u64,
    /// Rows that became `SKIPPED`.
    pub skipped: u64,
    /// Attempts that ended with nothing recorded, by a conflict, a lost connection or shutdown.
    pub interrupted: u64,
    /// Attempts in lease mode whose row belonged to somebody else when they ended. They wrote nothing.
    pub lost: u64,
}

impl Tally {
    /// Counts what became of a row, or of the rows of a group.
    pub(crate) fn count(&mut self, turn: Turn) {
        match turn {
            Turn::Settled(Settled::Succeeded | Settled::Deleted) => self.succeeded += 1,
            Turn::Settled(Settled::Retried) => self.retried += 1,
            Turn::Settled(Settled::Failed) => self.failed += 1,
            Turn::Settled(Settled::Again) => self.again += 1,
            Turn::Settled(Settled::Advanced) => self.advanced += 1,
            Turn::Settled(Settled::Skipped) => self.skipped += 1,
            Turn::Interrupted => self.interrupted += 1,
            Turn::Lost => self.lost += 1,
            Turn::Group(rows) => {
                self.succeeded += rows.succeeded;
                self.retried += rows.retried;
                self.failed += rows.failed;
                self.again += rows.again;
                self.advanced += rows.advanced;
                self.skipped += rows.skipped;
                self.interrupted += rows.interrupted;
                self.lost += rows.lost;
            }
            Turn::Idle | Turn::Suspect | Turn::GivenUp | Turn::Trouble => {}
        }
    }
}
