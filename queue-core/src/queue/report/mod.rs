//! What a queue reports about itself: errors, statistics, the backlog, and why a row waits.

mod backlog;
mod errors;
mod explain;
mod explanation;
mod fold;
mod statistics;
mod table;

pub use self::backlog::Backlog;
pub use self::errors::{ErrorGroup, ErrorReport};
pub use self::explain::Explains;
pub use self::explanation::Explanation;
pub use self::statistics::{Interval, PeriodCounts, Statistics};
pub use self::table::{By, OddTimes, Part, Tabular};
