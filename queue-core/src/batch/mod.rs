//! Several rows, one transaction, if need be with a savepoint for each. Groups of messages and the answers of leased calls stand
//! on this.
//!
//! A batch only saves commits. One that cannot be committed is undone, and its rows are processed one by one.

mod open;
mod rows;
mod savepoint;
mod settle;

pub(crate) use self::open::{AsItIsNow, BatchBody, OpenBatch};
pub(crate) use self::rows::{
    BatchEnd, BatchRow, DecidedRow, Handled, Reservation, SETTLED_AT_ONCE, Undone, conflict, expect_rows, undone,
    witness,
};
pub(crate) use self::savepoint::is_commit_refusal;
