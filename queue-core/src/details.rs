//! What an attempt knows of its row beyond the five columns, where the entity asks for more.

use chrono::{DateTime, Utc};

/// The optional columns of a row as they were when it was claimed, read under its lock. What the entity does not ask for is
/// `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    /// The database's present at the claim.
    pub now: Option<DateTime<Utc>>,
    /// The text of the stage.
    pub stage: Option<String>,
    /// The seconds from run to run.
    pub period: Option<i64>,
    /// The cron expression.
    pub cron: Option<String>,
    /// The IANA time zone of the cron expression.
    pub time_zone: Option<String>,
    /// The scheduled time of the run that is due.
    pub scheduled_time: Option<DateTime<Utc>>,
    /// How often the columns have changed whose change makes the row due.
    pub change_count: Option<i64>,
}
