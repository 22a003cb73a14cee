//! Slow work: the claim is committed, the call runs outside of any transaction, and a short transaction applies the answer.
//!
//! A heartbeat extends the leases of running calls. The row of a dead worker becomes due when its lease ends.

mod answers;
mod attempt;
mod call_turns;
mod calls;
mod claim;
mod claim_size;
mod claimed;
mod heartbeat;
mod leased_rows;
mod runner;
mod settle;
mod together;
mod turns;

pub(crate) use self::runner::{Calling, LeaseRunner};
