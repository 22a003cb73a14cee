//! What a queue reports about itself: errors, statistics, the backlog, and why a row waits.

mod counts;
mod errors;
mod explain;
mod explanation;
mod statistics;
mod table;
mod trial;

pub use self::counts::Backlog;
pub(super) use self::counts::troubled;
pub use self::errors::{ErrorGroup, ErrorReport};
pub use self::explain::Explains;
pub use self::explanation::{ExplainedRows, Explanation, Explanations};
pub use self::statistics::{AttemptCounts, Counted, Interval, PeriodCounts, Statistics};
pub(super) use self::table::beginning;
pub use self::table::{By, OddTimes, Part, Tabular, pattern};
