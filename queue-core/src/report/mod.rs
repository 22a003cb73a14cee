//! What a queue reports of itself.

mod backlog;
mod by;
mod counts;
mod errors;
mod explain;
mod fold;
mod statistics;
mod table;

pub use self::backlog::{Backlog, BacklogOn};
pub use self::by::{By, Part};
pub use self::counts::StatusCounts;
pub use self::errors::{ErrorGroup, ErrorReport, ErrorsOn, PreviewErrorsOn, RetryErrorsOn};
pub use self::explain::{ExplainOn, Explanation};
pub use self::statistics::{Interval, PeriodCounts, Statistics, StatisticsOn};
#[doc(hidden)]
pub use self::table::Tabular;
