//! The lock of an exclusive queue, which processes one message at a time, and the places of a lane.

use diesel::Connection;
use diesel::result::QueryResult;

use super::target::Target;

/// The lock of an exclusive queue, which processes one message at a time.
pub trait Exclusion<DB = <Self as Connection>::Backend>: Connection {
    /// Takes the queue's lock without waiting. `false`: another session holds it. A session that already holds it gets
    /// it again. The call must be in a transaction. The lock ends with that transaction or, on some databases, with
    /// [`end_exclusion`](Self::end_exclusion) after it. The end of the session always ends it.
    fn try_exclude(&mut self, target: &Target) -> QueryResult<bool>;

    /// Returns the session that holds the lock, in words by which an operator finds it. `None`: this session, or none.
    fn exclusion_holder(&mut self, _target: &Target) -> QueryResult<Option<String>> {
        Ok(None)
    }

    /// Gives the lock back after the end of the transaction, if it outlives the transaction.
    fn end_exclusion(&mut self, _target: &Target) -> QueryResult<()> {
        Ok(())
    }

    /// Takes one of this number of places of a lane without waiting, and returns which. `None`: other sessions hold all
    /// of them. The call must be in a transaction. The place ends with that transaction or, on some databases, with
    /// [`leave_place`](Self::leave_place) after it. The end of the session always ends it.
    fn take_place(&mut self, target: &Target, lane: &str, places: u32) -> QueryResult<Option<u32>>;

    /// Gives a place back after the end of the transaction, if it outlives the transaction.
    fn leave_place(&mut self, _target: &Target, _lane: &str, _place: u32) -> QueryResult<()> {
        Ok(())
    }
}

/// One of the places of a lane, as the session's lock names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The queue among those of its table.
    pub(crate) queue: String,
    /// The table.
    pub(crate) table: String,
    /// The lane among those of the queue.
    pub(crate) lane: String,
    /// How many places the lane has.
    pub(crate) places: i64,
}

impl Place {
    /// One of this number of places.
    pub fn of(target: &Target, lane: &str, places: u32) -> Self {
        Place {
            queue: format!("queueable {}", target.columns.status),
            table: target.table.to_string(),
            lane: lane.to_owned(),
            // The servers have fewer locks.
            places: i64::from(places.min(i32::MAX.unsigned_abs())),
        }
    }
}
