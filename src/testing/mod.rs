#![doc = include_str!("../../docs/testing.md")]

mod clock;
mod drain;
mod torment;

pub use self::clock::{days, freeze, hours, minutes, now, seconds, travel, travel_back, travel_to};
pub use self::drain::{Attempt, AttemptEnd, Drain, Drained, Kept, TestQueue, on};
pub use self::torment::{Effect, Story, Torment, TormentReport, step, torment};
