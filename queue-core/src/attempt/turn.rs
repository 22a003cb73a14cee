//! The result of a worker's turn, and counts of these results.

use serde::{Deserialize, Serialize};

use crate::row::Settlement;

/// The number of rows that a poller has processed, by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Tally {
    /// Rows that became `SUCCESS` or were removed by their handler.
    pub succeeded: u64,
    /// Rows that failed and will be retried.
    pub retried: u64,
    /// Rows that became `FAILED`, or whose run failed for good while their schedule goes on.
    pub failed: u64,
    /// Rows that run again later without a failure, including those whose scheduled run came too late.
    pub again: u64,
    /// Rows that went on to another stage.
    pub advanced: u64,
    /// Rows that became `SKIPPED`.
    pub skipped: u64,
    /// Attempts that ended without recording anything, because of a conflict, a lost connection or a shutdown.
    pub interrupted: u64,
    /// Attempts whose end the database refused to write on their row, because of a constraint or a trigger. Such a row
    /// stays due and is tried again after pauses that grow to an hour.
    #[serde(default)]
    pub refused: u64,
    /// Attempts in lease mode that no longer held their row when they ended. They wrote nothing.
    pub lost: u64,
}

impl Tally {
    /// Counts the result of a row, or of the rows of a group.
    pub(crate) fn count(&mut self, turn: Turn) {
        match turn {
            Turn::Settled(Settlement::Succeeded | Settlement::Deleted) => self.succeeded += 1,
            Turn::Settled(Settlement::Retried) => self.retried += 1,
            Turn::Settled(Settlement::Failed) => self.failed += 1,
            Turn::Settled(Settlement::Again) => self.again += 1,
            Turn::Settled(Settlement::Advanced) => self.advanced += 1,
            Turn::Settled(Settlement::Skipped) => self.skipped += 1,
            Turn::Interrupted => self.interrupted += 1,
            Turn::Refused => self.refused += 1,
            Turn::Lost => self.lost += 1,
            Turn::Group(rows) => {
                self.succeeded += rows.succeeded;
                self.retried += rows.retried;
                self.failed += rows.failed;
                self.again += rows.again;
                self.advanced += rows.advanced;
                self.skipped += rows.skipped;
                self.interrupted += rows.interrupted;
                self.refused += rows.refused;
                self.lost += rows.lost;
            }
            Turn::Idle | Turn::Suspect | Turn::GivenUp | Turn::Trouble => {}
        }
    }
}

/// The result of a worker's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing was due.
    Idle,
    /// A row's new state was committed.
    Settled(Settlement),
    /// A row was claimed, but nothing was recorded: it is due again.
    Interrupted,
    /// The database refused to write on the claimed row. The row is left alone for a while.
    Refused,
    /// The attempt no longer held the row when it ended.
    Lost,
    /// Several rows were claimed, with these results.
    Group(Tally),
    /// The claimed row is suspected of ending its process: the worker takes another turn, alone in the process.
    Suspect,
    /// A handler returned long after its timeout, and another thread has recorded that already.
    GivenUp,
    /// The database returned an error: the worker waits before its next turn.
    Trouble,
}
