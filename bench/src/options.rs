//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use contestant::Backend;

use crate::limits::REFERENCE;

/// Measures queueable beside hand-written SQL and beside other job frameworks, in one sitting, and prints medians and their
/// ratios to the hand-written limit `naive` of the same run.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// What to measure; by default, everything.
    #[arg(value_enum)]
    pub(crate) workloads: Vec<Workload>,
    /// Which contestants to measure, by their names in the tables; by default, all. `naive` always takes part.
    #[arg(long, value_delimiter = ',')]
    pub(crate) contestants: Vec<String>,
    /// On which databases; by default, on all.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) backend: Vec<Database>,
    /// How many workers `drain` and `no-op` try.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 16])]
    pub(crate) workers: Vec<usize>,
    /// How often everything is measured, in another order each time.
    #[arg(long)]
    pub(crate) repeats: Option<usize>,
    /// Measures `naive` right before each other contestant, and divides by that. Takes twice as long, but also gives good ratios
    /// on a machine that is busy with other work.
    #[arg(long)]
    pub(crate) paired: bool,
    /// Measures everything once and for a short time, to see that it works, and in which direction a change goes.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Where tables, samples and plots go.
    #[arg(long, default_value = "results")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Database {
    Postgres,
    Mariadb,
    Sqlite,
}

/// A workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// Rows already due, each handled by one insert.
    Drain,
    /// Rows already due, with a handler that does nothing.
    NoOp,
    /// How long an idle worker takes to pick a message up.
    Latency,
    /// Getting messages into the queue.
    Enqueue,
    /// A million rows that are due, or finished.
    Backlog,
    /// 900 rows that are due, by their order among a million that wait for their time.
    Waiting,
    /// Two minutes beside an old transaction, which keeps all dead rows.
    OldSnapshot,
    /// A process with nothing to do.
    Idle,
    /// Bytes of the server's log per message.
    Wide,
    /// A process's memory beside a million rows.
    Memory,
    /// 1, 2 and 4 processes on one queue.
    Processes,
    /// A thousand calls in flight to a service that answers after 200 ms.
    Calls,
    /// How long reports take beside ten million finished rows.
    Reports,
}

impl Options {
    pub(crate) fn backends(&self) -> Vec<Backend> {
        let of = |database: &Database| match database {
            Database::Postgres => vec![Backend::Postgres],
            Database::Mariadb => vec![Backend::Mariadb],
            Database::Sqlite => vec![Backend::SqliteFull, Backend::SqliteNormal],
        };
        let chosen = if self.backend.is_empty() { Database::value_variants() } else { &self.backend };
        chosen.iter().flat_map(of).collect()
    }

    /// Whether the contestant with this name takes part.
    pub(crate) fn chooses(&self, name: &str) -> bool {
        name == REFERENCE || self.contestants.is_empty() || self.contestants.iter().any(|chosen| chosen == name)
    }

    pub(crate) fn workloads(&self) -> &[Workload] {
        if self.workloads.is_empty() { Workload::value_variants() } else { &self.workloads }
    }

    pub(crate) fn repeats(&self) -> usize {
        self.repeats.unwrap_or(if self.quick { 1 } else { 3 })
    }

    /// The warm-up and the window of a measured rate.
    pub(crate) fn window(&self) -> (Duration, Duration) {
        if self.quick {
            (Duration::from_millis(200), Duration::from_millis(1000))
        } else {
            (Duration::from_millis(1000), Duration::from_millis(4000))
        }
    }
}
