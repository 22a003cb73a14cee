//! The operations on a queue's rows, picked by a domain filter: an operator's tools.
//!
//! Each operation is a method of [`QueueRows`]; `report` counts and explains.

mod archive;
mod by_name;
mod change;
mod dry_run;
mod existing;
mod operate;
mod operation;
mod page;
mod queue;
mod read;
mod report;
mod sweep;

pub use self::archive::Redriven;
pub use self::by_name::{Figures, GroupTexts, TextPage, TextRow, is_timeout, key_names, limit_session, queue_name_of};
pub use self::dry_run::{DryRun, Preview, PreviewedRow};
pub use self::existing::{EnqueueByVersion, EnqueueExisting};
pub use self::operate::{Operate, Operated, Picked, Progress};
pub use self::page::{Cursor, Page};
pub use self::queue::{AllFilters, Chosen, EveryRow, Filtered, NoFilter, QueueRows, Selection};
pub use self::read::{ChangesRows, LoadsRows, MovesRows, ReadsRows, StatusCounts};
pub use self::report::{
    AttemptCounts, Backlog, By, Counted, ErrorGroup, ErrorReport, ExplainedRows, Explains, Explanation, Explanations,
    Interval, OddTimes, Part, PeriodCounts, Statistics, Tabular, pattern,
};
