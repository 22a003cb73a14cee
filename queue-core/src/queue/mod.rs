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

pub use self::archive::{ArchiveOn, Redriven};
pub use self::change::ChangeOn;
pub use self::counts::StatusCounts;
pub use self::dry_run::{DryRun, Preview, PreviewOn, PreviewedRow};
pub use self::enqueue_existing::{EnqueueExisting, Progress};
pub use self::priority::PrioritizeOn;
pub use self::queue::{LoadOn, Queue, ReadOn};
pub use self::report::{
    Backlog, BacklogOn, By, ErrorGroup, ErrorReport, ErrorsOn, ExplainOn, Explains, Explanation, Interval, OddTimes,
    Part, PeriodCounts, PreviewErrorsOn, RetryErrorsOn, Statistics, StatisticsOn, Tabular,
};
pub use self::selection::{AllFilters, Chosen, EveryRow, Filtered, NoFilter, Selection};
pub use self::sweep::SweepOn;
pub use self::version::EnqueueByVersion;
