#![doc = include_str!("../../docs/testing.md")]

mod attempt;
mod clock;
mod drain;
mod failures;
mod message;
mod rehearse;
mod statements;

pub use self::attempt::Attempted;
pub use self::clock::{days, freeze, hours, minutes, now, seconds, travel, travel_back, travel_to};
pub use self::drain::{Attempt, AttemptEnd, Drain, Drained, Kept, TestQueue, on};
pub use self::failures::{Failing, Fault, fail_next};
pub use self::message::{MessageByHand, message};
pub use self::rehearse::{Rehearsal, Rehearsed, RehearsedRow, RehearsedRun};
pub use self::statements::RanStatement;
