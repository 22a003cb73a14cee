//! What operations on rows take.

use std::time::Duration;

use chrono::{DateTime, Utc};
use clap::Args;

use super::control::Author;
use super::reports::States;
use super::times::{duration, time};

/// A change of rows.
#[derive(Debug, Args)]
pub(crate) struct Change {
    /// The queue
    #[arg(index = 1)]
    pub(crate) queue: String,

    /// The rows' keys
    #[arg(index = 2, value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) keys: Vec<String>,

    /// Only rows for which this holds
    #[arg(long = "where", value_name = "CONDITION")]
    pub(crate) filter: Option<String>,

    #[command(flatten)]
    pub(crate) states: States,

    /// Only rows of this group of `errors`
    #[arg(long, value_name = "GROUP")]
    pub(crate) error_group: Option<String>,

    /// All rows, without a condition
    #[arg(long)]
    pub(crate) all: bool,

    /// Show what would change, and change nothing; exits with 4 if there is something
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,

    #[command(flatten)]
    pub(crate) author: Author,

    /// How many rows are changed in one transaction
    #[arg(long, value_name = "ROWS", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=5000))]
    pub(crate) batch: u32,

    /// The name of the environment, which is asked for before more than 1,000 rows of a production are changed
    #[arg(long, value_name = "NAME")]
    pub(crate) environment: Option<String>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false, id = "when")]
pub(crate) struct When {
    /// Until this time: RFC 3339
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) until: Option<DateTime<Utc>>,

    /// For so long from now on
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) lasting: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Postpone {
    #[command(flatten)]
    pub(crate) change: Change,

    #[command(flatten)]
    pub(crate) when: When,
}

#[derive(Debug, Args)]
pub(crate) struct Purge {
    #[command(flatten)]
    pub(crate) change: Change,

    /// Only rows whose last attempt is older
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) older_than: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Redrive {
    #[command(flatten)]
    pub(crate) change: Change,

    /// Rows that have succeeded, not those that have failed
    #[arg(long)]
    pub(crate) succeeded: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Priority {
    #[command(flatten)]
    pub(crate) change: Change,

    /// The priority
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub(crate) to: i32,
}
