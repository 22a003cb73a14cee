//! What the application's tests stand on: the worker's own code on a test's connection, and a clock that a test moves.
//!
//! [`Workbench`] takes a worker's turns, inside the transaction of the test if there is one. `clock.rs` moves the clock of the
//! library's statements. Which points an attempt passes, and what happens there, is for [`at_points`] to say.

mod by_hand;
mod clock;
mod points;
mod workbench;

pub use self::by_hand::ByHand;
pub use self::clock::{HeldClock, end_listening, freeze, hold_clock, listen, present, travel, travel_back, travel_to};
pub use self::points::{
    AtPoints, OfferedCalls, Thrown, at_points, end_lease, fail_commit, fail_no_more, offer_second_calls, second_call,
    time_out,
};
pub use self::workbench::{Closed, Enqueued, Turned, Workbench};
