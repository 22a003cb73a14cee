//! What the commands on the library's own tables and on migrations take.

use std::path::PathBuf;
use std::time::Duration;

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};

use super::times::{duration, time};

#[derive(Debug, Clone, Args)]
pub(crate) struct Author {
    /// Who asks for it [default: the user's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,

    /// Why, for the audit
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

/// What a pause is about.
#[derive(Debug, Args)]
pub(crate) struct Scope {
    /// The queue
    #[arg(index = 1)]
    pub(crate) queue: String,

    /// Only this stage
    #[arg(long, value_name = "STAGE", conflicts_with = "value")]
    pub(crate) stage: Option<String>,

    /// Only the rows of one value: `company_id = 3345`
    #[arg(long = "where", value_name = "COLUMN = VALUE")]
    pub(crate) value: Option<String>,

    #[command(flatten)]
    pub(crate) author: Author,
}

#[derive(Debug, Args)]
pub(crate) struct Pause {
    #[command(flatten)]
    pub(crate) scope: Scope,

    /// Until this time: RFC 3339
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "lasting")]
    pub(crate) until: Option<DateTime<Utc>>,

    /// For so long
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) lasting: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Limits {
    /// The queue [default: show those of all]
    #[arg(index = 1)]
    pub(crate) queue: Option<String>,

    /// How many workers of each process may work for the queue
    #[arg(long, value_name = "NUMBER", requires = "queue")]
    pub(crate) workers: Option<usize>,

    /// How many rows may be processed at the same time
    #[arg(long, value_name = "ROWS", requires = "queue")]
    pub(crate) at_most: Option<u32>,

    /// How long a row that fails waits
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "queue")]
    pub(crate) retry_delay: Option<Duration>,

    /// End the limits
    #[arg(long, requires = "queue", conflicts_with_all = ["workers", "at_most", "retry_delay"])]
    pub(crate) end: bool,

    #[command(flatten)]
    pub(crate) author: Author,
}

#[derive(Debug, Args)]
pub(crate) struct Audit {
    /// The queue [default: all]
    #[arg(index = 1)]
    pub(crate) queue: Option<String>,

    /// How many rows
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,

    /// Where the page begins: the text that the page before ends with
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Environment {
    /// Give the database to this environment
    #[arg(long, value_name = "NAME")]
    pub(crate) adopt: Option<String>,

    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,

    #[command(flatten)]
    pub(crate) author: Author,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Migrate {
    /// List the migrations, and which of them have run
    List,
    /// Write the migrations as SQL files for `diesel migration`
    Write {
        /// The directory of the migrations
        directory: PathBuf,
    },
    /// Run the migrations that have not run
    Run {
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Compare the live tables with the entities; exits with 4 if they differ
    Check,
}
