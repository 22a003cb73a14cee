//! Rows whose handler ends the process.
//!
//! Each worker notes in a file what it is about to run. The next poller reads the files of dead processes and counts
//! the crashes of each row. After three it sets the row aside.

mod accounts;
mod crash_directory;
mod exclusive_run;
mod in_flight;
mod reports;
#[cfg(test)]
mod test_directory;

pub use self::accounts::CrashAccounting;

pub(crate) use self::accounts::{CrashAction, CrashMark, Crashes, Recorder, as_it_was};
pub(crate) use self::exclusive_run::GATE;
