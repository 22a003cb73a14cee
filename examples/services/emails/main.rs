//! Mails in groups: the queue `unsent_emails` of a well-known article on queues in MySQL, sent through SMTP.
//!
//! ```sh
//! cargo run --example emails                                   # SQLite, nothing to install
//! cargo run --example emails --features mysql -- --database-url mysql://me@127.0.0.1/empty
//! ```
//!
//! The article, <http://outofmemory.cn/zaji/8602287.html> ("how to simulate a queue with a MySQL table"), claims ten
//! rows by an `UPDATE` that writes `CONNECTION_ID()` into a column `owner`, reads them back, and needs a timer that
//! looks through the process list for owners that are gone. The example uses the table as it is, but does not need
//! `owner`: a worker locks ten rows, passes over rows that others have locked, and loses the locks when its session
//! ends.
//!
//! Group mode is for many small messages: ten mails share one commit. Effects in the database happen once. Effects
//! outside happen *at least* once: if the process dies within the group, or its commit fails, all mails of that group
//! are sent again. So a mail's Message-ID is made from its idempotency key: a reader with both copies can recognize the
//! repeat. If repeats are costly, use lease mode, which commits each call on its own: see the example `webhooks`.
//!
//! `mails.rs` has the tables and the entity, `send.rs` the handler, and `job.rs` the operations on the queue. `sink.rs` is a
//! mail server that knows which recipients to refuse, `report.rs` prints, and `database.rs` chooses the kind of database.
//! `tests.rs` tests the handler.
//!
//! Exit codes: 0, 1 when table and mail server do not agree at the end, 2 when the database cannot be used.

mod database;
mod mails;
mod report;
mod sink;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use crate::report::Report;

/// Sends mails in groups of ten, through a queue on the table of unsent mails
#[derive(Debug, Parser)]
#[command(name = "emails")]
struct Options {
    /// The database: a SQLite file, or the URL of an empty database, postgres://.. or mysql://.. [default: a new file that
    /// is removed at the end]
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,

    /// How many mails are enqueued
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    mails: u16,

    /// How many groups are sent at the same time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    workers: u8,

    /// Prints one JSON object instead of text
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr).init();
    match run(&options) {
        Ok(report) if report.check.holds => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<Report> {
    let directory = tempfile::tempdir().context("cannot create a directory for the database")?;
    let file = directory.path().join("emails.sqlite").display().to_string();
    let report = database::run(options.database_url.as_deref().unwrap_or(&file), options)?;
    if options.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{report}");
    }
    Ok(report)
}
