//! Several messages, one transaction, a savepoint for each.
//!
//! A group that cannot be committed is undone, and its messages run one by one as in `attempt`.

mod at_once;
mod end;
mod group;
mod handle;
mod recover;
mod runner;
mod savepoint;
mod work;

pub(crate) use self::runner::GroupRunner;
