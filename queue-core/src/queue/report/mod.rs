//! What a queue reports about itself: errors, statistics, the backlog, and why a row waits.

mod backlog;
mod by;
mod errors;
mod explain;
mod fold;
mod odd_times;
mod statistics;
mod table;

pub use self::backlog::Backlog;
pub use self::by::{By, Part};
pub use self::errors::{ErrorGroup, ErrorReport};
pub use self::explain::{ExplainOn, Explains, Explanation};
pub use self::odd_times::OddTimes;
pub use self::statistics::{Interval, PeriodCounts, Statistics};
pub use self::table::Tabular;
