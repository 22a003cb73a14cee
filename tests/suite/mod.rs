//! The promises, each written once. The three roots mount this module beside a `db`, so a test says `crate::db` and runs
//! on every backend.

mod attempt;
pub(crate) mod bank;
mod columns;
mod harness;
pub(crate) mod main_job;
mod misconduct;
mod operations;
mod poller;
mod retry;
mod scout;
mod serde;
mod shutdown;
mod takeover;
