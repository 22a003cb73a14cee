#![doc = include_str!("../../docs/testing.md")]

mod assert;
mod clock;
mod drain;

#[doc(hidden)]
pub use self::assert::__assert;
#[doc(inline)]
pub use self::assert::{assert_enqueued, assert_next, assert_nothing_due, assert_settled, refute_enqueued};
pub use self::clock::{days, freeze, hours, minutes, now, seconds, travel, travel_back, travel_to};
pub use self::drain::{Attempt, AttemptEnd, Drain, Drained, Kept, TestQueue, on};
