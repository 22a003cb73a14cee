//! What reports take.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::control::Author;
use super::times::{duration, pace};

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Exit with 4 if something is wrong, for cron and for probes
    #[arg(long)]
    pub(crate) check: bool,

    /// How long the oldest due row may have waited
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    pub(crate) max_age: Duration,

    /// How many rows may be due
    #[arg(long, value_name = "ROWS")]
    pub(crate) max_due: Option<i64>,

    /// How many rows may have failed
    #[arg(long, value_name = "ROWS")]
    pub(crate) max_failed: Option<i64>,

    /// How many pollers must be alive for each queue, if pollers register
    #[arg(long, value_name = "POLLERS", default_value_t = 1)]
    pub(crate) min_pollers: usize,

    /// A pause is no finding
    #[arg(long)]
    pub(crate) allow_paused: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Top {
    /// How long it waits before it asks the database again
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = pace)]
    pub(crate) every: Duration,

    #[command(flatten)]
    pub(crate) author: Author,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Where it listens. Any address but a loopback one needs a program that names people
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,

    /// Let people change rows, pauses and limits
    #[arg(long)]
    pub(crate) allow_changes: bool,
}

/// The rows of one queue, or of all.
#[derive(Debug, Args)]
pub(crate) struct OfRows {
    /// The queue: its table, `table.status` if the table has several, or its entity [default: all]
    #[arg(index = 1)]
    pub(crate) queue: Option<String>,

    /// Only rows for which this holds: `company_id = 3345 and amount_cents > 100`
    #[arg(long = "where", value_name = "CONDITION")]
    pub(crate) filter: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Keys {
    /// The queue
    #[arg(index = 1)]
    pub(crate) queue: String,

    /// The rows' keys; the parts of a key are separated by commas
    #[arg(index = 2, required = true, value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) keys: Vec<String>,
}

/// The state of the rows.
#[derive(Debug, Default, Args)]
#[group(multiple = false)]
pub(crate) struct States {
    /// Rows that are due
    #[arg(long)]
    pub(crate) due: bool,

    /// Rows whose next attempt is later
    #[arg(long)]
    pub(crate) scheduled: bool,

    /// Rows under a lease
    #[arg(long)]
    pub(crate) running: bool,

    /// Rows that have failed for good
    #[arg(long)]
    pub(crate) failed: bool,

    /// Rows that were skipped
    #[arg(long)]
    pub(crate) skipped: bool,

    /// Rows that have ended in any way
    #[arg(long)]
    pub(crate) finished: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// The latest attempt first
    Latest,
    /// The earliest next attempt first
    Next,
    /// By the key
    Key,
    /// By the key, the last one first
    KeyDescending,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) rows: OfRows,

    #[command(flatten)]
    pub(crate) states: States,

    /// The columns, separated by commas [default: the key, and what fits of the domain's columns]
    #[arg(long, value_delimiter = ',', value_name = "COLUMNS")]
    pub(crate) columns: Vec<String>,

    /// How the rows are sorted [default: failed and finished rows by their latest attempt, due and scheduled ones by their next, others by
    /// the key]
    #[arg(long, value_enum)]
    pub(crate) order: Option<Order>,

    /// How many rows
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,

    /// Where the page begins: the text that the page before ends with
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Report {
    #[command(flatten)]
    pub(crate) rows: OfRows,

    /// Split by the values of this column
    #[arg(long, value_name = "COLUMN")]
    pub(crate) by: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Errors {
    #[command(flatten)]
    pub(crate) report: Report,

    /// Only rows that were attempted within this time
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) since: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Statistics {
    #[command(flatten)]
    pub(crate) report: Report,

    /// How far back
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = duration)]
    pub(crate) since: Duration,

    /// How long a period is [default: minutes for up to two hours, hours for up to three days, else days]
    #[arg(long, value_enum)]
    pub(crate) interval: Option<Interval>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Interval {
    Minute,
    Hour,
    Day,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// The queue [default: all]
    #[arg(index = 1)]
    pub(crate) queue: Option<String>,

    /// Write what a ticket needs into this file: findings, backlogs, reasons, folded errors, plans, pauses, pollers, versions, settings; no
    /// rows, and no password
    #[arg(long, value_name = "FILE")]
    pub(crate) bundle: Option<PathBuf>,

    /// Exit with 4 only for errors, not for warnings
    #[arg(long)]
    pub(crate) errors_only: bool,
}
