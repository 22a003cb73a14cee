//! `replay`: the last attempt of a row once more, by the application's handler, in a transaction that is always rolled back.
//!
//! The attempt is a worker's own, through the test kit.

mod attempt;
mod handlers;
mod report;
mod run;
mod statements;

pub(crate) use self::handlers::Handlers;
pub use self::handlers::Replayable;
pub(crate) use self::run::run;
