//! The operations on a queue's rows, picked by a domain filter: an operator's tools.
//!
//! Each operation is a method of [`Queue`] in a file of its own; `report` counts and explains.

mod archive;
mod change;
mod counts;
mod dry_run;
mod enqueue_existing;
mod operation;
mod priority;
mod purge;
mod queue;
mod report;
mod selection;
mod sweep;
mod version;

pub use self::archive::Redriven;
pub use self::counts::StatusCounts;
pub use self::dry_run::{DryRun, Preview, PreviewedRow};
pub use self::enqueue_existing::{EnqueueExisting, Progress};
pub use self::queue::{LoadOn, Queue, ReadOn};
pub use self::report::{
    Backlog, By, ErrorGroup, ErrorReport, ExplainOn, Explains, Explanation, Interval, OddTimes, Part, PeriodCounts,
    Statistics, Tabular,
};
pub use self::selection::{AllFilters, Chosen, EveryRow, Filtered, NoFilter, Selection};
pub use self::version::EnqueueByVersion;
