//! Several messages, one transaction, a savepoint for each.
//!
//! A group that cannot be committed is undone, and its messages run one by one as in `attempt`.

mod at_once;
mod group;
mod recover;
mod runner;
mod work;

pub(crate) use self::runner::GroupRunner;
