//! The fence: the state of a row that a write must find.

use super::instant::Instant;
use super::status::Status;

/// The state in which a row was claimed. Every write of an attempt names it, so that it never overwrites what somebody
/// else has changed meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    /// The status.
    pub status: Status,
    /// The number of recorded attempts.
    pub try_count: i32,
    /// Under a lease: when the attempt began, as stored on the row. A row that was enqueued anew can reach the same
    /// number of attempts; this time tells the two apart.
    pub began: Option<Instant>,
    /// When the row was due, as stored on the row. A row that was enqueued anew, postponed or stopped in the attempt's
    /// own transaction may have the same status and tries. `None` under a lease, because the end of the lease moves,
    /// and where the column's text cannot be written back exactly (on SQLite, where an application may have written the
    /// time in its own format).
    pub due: Option<Instant>,
    /// How often the row's content had changed at the claim, for an entity with `rerun_on_change`. Only writes that
    /// depend on the content compare it, see [`Change::of_content`](crate::statement::Change::of_content).
    pub change_count: Option<i64>,
}

impl Fence {
    /// Makes a fence without a lease.
    pub const fn new(status: Status, try_count: i32) -> Self {
        Fence { status, try_count, began: None, due: None, change_count: None }
    }

    /// Drops the due time, for a row whose due time was changed after the claim.
    pub(crate) fn at_any_time(self) -> Self {
        Fence { due: None, ..self }
    }

    /// Tells whether both have the same status and number of attempts, whenever they began.
    pub(crate) fn reads_as(self, other: Fence) -> bool {
        (self.status, self.try_count) == (other.status, other.try_count)
    }
}
