#![doc = include_str!("../../docs/testing.md")]

mod assert;
mod attempt;
mod clock;
mod drain;
mod drained;
mod failures;
#[cfg(feature = "sqlite")]
mod fixture;
mod message;
mod rehearse;
mod rolled_back;
mod schema;
mod statements;
mod test_queue;
mod torment;

#[doc(hidden)]
pub use self::assert::__assert;
#[doc(inline)]
pub use self::assert::{assert_enqueued, assert_next, assert_nothing_due, assert_settled, refute_enqueued};
pub use self::attempt::Attempted;
pub use self::clock::{days, freeze, hours, minutes, now, seconds, travel, travel_back, travel_to};
pub use self::drain::{Drain, on};
pub use self::drained::{Attempt, AttemptEnd, Drained, Kept};
pub use self::failures::{Failing, Fault, fail_next};
#[cfg(feature = "sqlite")]
pub use self::fixture::{SqliteDatabase, SqliteTemplate};
pub use self::message::{MessageByHand, message};
pub use self::rehearse::{Rehearsal, Rehearsed, RehearsedRow, RehearsedRun};
pub use self::schema::assert_migrations_written;
pub use self::statements::RanStatement;
pub use self::test_queue::TestQueue;
pub use self::torment::{Effect, Story, Torment, TormentReport, step, torment};
pub use crate::assert_schema;
