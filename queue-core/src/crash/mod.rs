//! Rows whose handler ends the process.
//!
//! A worker marks a row before it handles it, if the row may have ended the process before. The next worker that claims a
//! marked row counts the crash. After three it sets the row aside.

mod accounts;
mod exclusive_run;

pub use self::accounts::CrashAccounting;

pub(crate) use self::accounts::{
    CrashAction, CrashMark, Crashes, MARKED, MARKED_IN_TURNS, Probation, Recorder, as_it_was, process_age,
};
pub(crate) use self::exclusive_run::GATE;
