#![doc = include_str!("../../docs/testing.md")]

mod clock;
mod drain;
#[cfg(feature = "sqlite")]
mod fixture;
mod schema;

pub use self::clock::{days, freeze, hours, minutes, now, seconds, travel, travel_back, travel_to};
pub use self::drain::{Attempt, AttemptEnd, Drain, Drained, Kept, TestQueue, on};
#[cfg(feature = "sqlite")]
pub use self::fixture::{SqliteDatabase, SqliteTemplate};
pub use self::schema::assert_migrations_written;
pub use crate::assert_schema;
