//! The fence: the state of a row that a write must find.

use super::instant::Instant;
use super::status::Status;

/// The state in which a row was claimed. Every write of an attempt names it, so that it changes nothing that somebody
/// else has changed meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    /// The status.
    pub status: Status,
    /// The number of recorded attempts.
    pub try_count: i32,
    /// Under a lease: when the attempt began, as the row says. The number of attempts alone would not tell it from another
    /// of the same number, after the row was enqueued anew.
    pub began: Option<Instant>,
    /// When the row was due, as the row says. A row that was enqueued anew, postponed or stopped in the attempt's own
    /// transaction may have the same status and tries. `None` under a lease, whose end moves, and where the column's text
    /// cannot be written again as it is (on SQLite, where an application may have written the time in a form of its own).
    pub due: Option<Instant>,
    /// How often the row's content had changed when it was claimed, where a change makes it due. Only what an attempt says
    /// of the content depends on it, see [`Change::of_content`](crate::statement::Change::of_content).
    pub change_count: Option<i64>,
}

impl Fence {
    /// A state without a lease.
    pub const fn new(status: Status, try_count: i32) -> Self {
        Fence { status, try_count, began: None, due: None, change_count: None }
    }

    /// The same state, whenever the row is due: for a row that was made due at another time since it was claimed.
    pub(crate) fn at_any_time(self) -> Self {
        Fence { due: None, ..self }
    }

    /// Whether both have one status and number of attempts, whenever they began.
    pub(crate) fn reads_as(self, other: Fence) -> bool {
        (self.status, self.try_count) == (other.status, other.try_count)
    }
}
