//! The result of the job, for people and as JSON.

use std::fmt;

use queueable::Tally;
use queueable::report::StatusCounts;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) statuses: StatusCounts,
    pub(crate) tally: Tally,
    pub(crate) check: Check,
}

/// Whether table and mail server agree.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    /// Mails that the table says are sent, the old ones not counted.
    pub(crate) sent: usize,
    /// Mails that were refused for good.
    pub(crate) refused: usize,
    /// Different mails that the server has taken.
    pub(crate) taken: usize,
    /// How often it has taken one of them again. Only a group that did not commit repeats its mails.
    pub(crate) repeated: u64,
    /// How often the server has refused a recipient.
    pub(crate) refusals: u64,
    pub(crate) old_rows_untouched: usize,
    /// The disagreements, in words.
    pub(crate) faults: Vec<String>,
    pub(crate) holds: bool,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Check { sent, refused, taken, repeated, refusals, old_rows_untouched, faults, holds } = &self.check;
        writeln!(f, "{}", self.statuses)?;
        writeln!(f, "check: {}", if *holds { "table and mail server agree" } else { "THEY DO NOT AGREE" })?;
        writeln!(f, "{sent:>8} mails are sent, {refused} were refused for good")?;
        writeln!(f, "{taken:>8} mails were taken by the server, {repeated} times one of them again")?;
        writeln!(f, "{refusals:>8} times the server has refused a recipient")?;
        writeln!(f, "{old_rows_untouched:>8} old rows as they were")?;
        faults.iter().try_for_each(|fault| writeln!(f, "   fault: {fault}"))
    }
}
