//! Webhooks in lease mode: a worker posts each due row to an HTTP endpoint, and writes down the answer.
//!
//! ```sh
//! cargo run --example webhooks                                 # SQLite and an endpoint, nothing to install
//! cargo run --example webhooks --features postgres -- --database-url postgres://me@localhost/empty
//! ```
//!
//! A call may be slow, and it cannot be rolled back. So the worker commits the claim first, and no transaction is open
//! during the call. A short transaction then writes the answer together with the queue state. If the process is killed
//! meanwhile, its lease ends, and the row is due again: the endpoint may hear a call twice, under the same
//! `Idempotency-Key`, but the answer is written once. A process that was frozen and wakes up too late writes nothing.
//!
//! `webhook.rs` has the tables and the entity, `job.rs` the handler and the operations on the queue, and `client.rs`
//! the meaning of an HTTP answer for a retry. `endpoint.rs` is the other side, `report.rs` prints, and `database.rs`
//! chooses the kind of database.
//!
//! The parts can run as processes of their own. Several processes may work at the same time:
//!
//! ```sh
//! webhooks --only endpoint                                     # says its URL, and serves until it is stopped
//! webhooks --only enqueue --database-url FILE --endpoint URL
//! webhooks --only work --database-url FILE                     # until no webhook is pending
//! webhooks --only check --database-url FILE --endpoint URL
//! ```
//!
//! Exit codes: 0, 1 when table and endpoint do not agree at the end, 2 when the database cannot be used.

mod client;
mod database;
mod endpoint;
mod report;
mod webhook;

use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};

use crate::report::Report;

/// Posts webhooks, through a queue on their table
#[derive(Debug, Parser)]
#[command(name = "webhooks")]
struct Options {
    /// The database: a SQLite file, or the URL of an empty database, postgres://.. or mysql://.. [default: a new file that
    /// is removed at the end]
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,

    /// How many webhooks there are
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..))]
    webhooks: u16,

    /// Within how many seconds they become due, one after the other
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    over: u16,

    /// How many webhooks are posted at the same time
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
    workers: u8,

    /// Decides which webhook is answered how
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Runs one part only
    #[arg(long, value_name = "PART")]
    only: Option<Part>,

    /// An endpoint that runs already [default: one of this process's own]
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,

    /// Checks the totals of a run in which a process was killed or frozen: some tries were not heard
    #[arg(long)]
    after_a_crash: bool,

    /// Prints one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// A part of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Serves as the endpoint until the process is stopped
    Endpoint,
    /// Creates the tables and enqueues the webhooks
    Enqueue,
    /// Posts webhooks until none is pending
    Work,
    /// Compares the table with what the endpoint has heard
    Check,
}

impl Options {
    /// The endpoint's URL; there is one before the job begins.
    fn endpoint(&self) -> &str {
        self.endpoint.as_deref().unwrap_or_default()
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr).init();
    match run(options) {
        Ok(report) if report.check.as_ref().is_none_or(|check| check.holds) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(mut options: Options) -> Result<Report> {
    match options.only {
        Some(Part::Endpoint) => {
            println!("endpoint {}", endpoint::start()?);
            loop {
                thread::park();
            }
        }
        Some(part) => {
            ensure!(options.database_url.is_some(), "a part needs the database of the others: give --database-url");
            let named = options.endpoint.is_some() || part == Part::Work;
            ensure!(named, "this part needs the endpoint of the others: give --endpoint");
        }
        None if options.endpoint.is_none() => options.endpoint = Some(endpoint::start()?),
        None => {}
    }
    let directory = tempfile::tempdir().context("cannot create a directory for the database")?;
    let file = directory.path().join("webhooks.sqlite").display().to_string();
    let report = database::run(options.database_url.as_deref().unwrap_or(&file), &options)?;
    if options.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{report}");
    }
    Ok(report)
}
