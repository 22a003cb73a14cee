//! The test kit: tests as users write them, and tests of what the kit promises. Each runs in a transaction that is rolled back,
//! all on one database where the server can do that.

mod assertions;
mod async_calls;
mod attempt;
mod clock;
mod drain;
mod failures;
mod kinds;
mod limits;
mod rehearse;
mod schema;
pub(crate) mod shop;
mod torment;
