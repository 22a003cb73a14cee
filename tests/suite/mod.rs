//! The promises, each written once. The three roots mount this module beside a `db`, so a test says `crate::db` and runs
//! on every backend.

pub(crate) mod attempt;
pub(crate) mod bank;
mod check;
pub(crate) mod chinook;
mod columns;
mod crash;
mod emails;
mod explain;
pub(crate) mod fate;
mod frozen;
pub(crate) mod group;
mod group_at_once;
mod group_end;
mod harness;
mod heartbeat;
mod held;
mod keys;
pub(crate) mod lease;
mod lease_trouble;
pub(crate) mod main_job;
mod migration;
mod migration_race;
mod misconduct;
mod mixed;
pub(crate) mod modes;
pub(crate) mod names;
mod operations;
mod poller;
mod pools;
mod retry;
mod scout;
mod serde;
mod shutdown;
mod snapshots;
mod takeover;
mod webhooks;
