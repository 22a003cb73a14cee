//! Rows whose handler ends the process.
//!
//! Each worker notes in a file what it is about to run. The next poller reads the files of dead processes and counts
//! the crashes of each row. After three it sets the row aside.

mod accounting;
mod accounts;
mod crash_count;
mod crash_directory;
mod exclusive_run;
mod in_flight_file;
mod in_flight_record;
mod recorder;
mod reports;
#[cfg(test)]
mod test_directory;

pub use self::accounting::CrashAccounting;

pub(crate) use self::accounts::{CrashAction, Crashes};
pub(crate) use self::crash_count::{Suspicion, earlier};
pub(crate) use self::exclusive_run::GATE;
pub(crate) use self::recorder::{CrashMark, Recorder};
