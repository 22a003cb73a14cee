//! The result of the job, for people and as JSON.

use std::collections::BTreeMap;
use std::fmt;

use queueable::Tally;
use queueable::report::StatusCounts;
use serde::Serialize;

#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    /// This process's share of the work; other processes may have done the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) handled_here: Option<Tally>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) check: Option<Check>,
}

/// Whether the table and the endpoint agree.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) statuses: StatusCounts,
    pub(crate) answers: usize,
    /// How many keys the endpoint has heard once, twice, and so on.
    pub(crate) calls_per_key: BTreeMap<u32, usize>,
    /// How many attempts the endpoint has not heard of, although it should: their process was killed or lost its lease.
    pub(crate) unheard: u32,
    /// How many calls came before the time that the endpoint had asked for.
    pub(crate) early: u32,
    /// The disagreements, in words.
    pub(crate) faults: Vec<String>,
    pub(crate) holds: bool,
}

/// How many faults are printed; JSON has all of them.
const PRINTED: usize = 20;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(tally) = &self.handled_here {
            let Tally { succeeded, retried, failed, .. } = tally;
            writeln!(f, "handled here: {succeeded} answered, {retried} retried, {failed} failed\n")?;
        }
        self.check.iter().try_for_each(|check| write!(f, "{check}"))
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\ncalls per key", self.statuses)?;
        for (calls, keys) in &self.calls_per_key {
            writeln!(f, "{keys:>8} keys were heard {calls} x")?;
        }
        writeln!(f, "\ncheck: {}", if self.holds { "table and endpoint agree" } else { "THEY DO NOT AGREE" })?;
        writeln!(f, "{:>8} answers are written", self.answers)?;
        writeln!(f, "{:>8} attempts were not heard, {} calls came too early", self.unheard, self.early)?;
        self.faults.iter().take(PRINTED).try_for_each(|fault| writeln!(f, "   fault: {fault}"))
    }
}
