//! The main job: a table of payments, with a thousand old rows in it, becomes a queue, and a poller processes it.
//!
//! ```sh
//! cargo run --example payments                                 # SQLite, nothing to install
//! cargo run --example payments -- --resume                     # goes on after a kill -9
//! cargo run --example payments --features postgres -- --database-url postgres://me@localhost/empty
//! ```
//!
//! `bank.rs` has the tables and the entity, `job.rs` the handler and the operations on the queue. Read these two; the
//! others read the file (`input.rs`), print (`report.rs`), and choose the kind of database (`database.rs`).
//!
//! At a terminal the log goes to the file `target/payments.log`, so that the progress bar stays in its place. Elsewhere
//! it goes to standard error.
//!
//! SIGTERM and Ctrl-C end it in good order: the workers claim no more payments, finish those in progress, and the
//! report says what is left for `--resume`. A second signal ends it at once; the books stay right then too.
//!
//! Exit codes: 0, 1 when the books do not agree at the end, 2 for bad input or a database that cannot be used, 130 and
//! 143 after a second Ctrl-C or SIGTERM.

mod bank;
mod database;
mod input;
mod report;

use std::env;
use std::fs::{self, File};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::report::Report;

/// Books the payments of a CSV file, through a queue on the table of payments
#[derive(Debug, Parser)]
#[command(name = "payments")]
struct Options {
    /// The database: a SQLite file, or the URL of an empty database, postgres://.. or mysql://.. [default:
    /// target/payments.sqlite]
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,

    /// The payments to enqueue: a CSV file with the columns company_id,amount_cents [default: examples/data/payments.csv]
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,

    /// Continues the run that is in the database; several processes may do so at the same time
    #[arg(long)]
    resume: bool,

    /// How many payments are booked at the same time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    workers: u8,

    /// The company whose pending and failed payments are listed at the end
    #[arg(long, default_value_t = 3345)]
    company: i64,

    /// Sends the company's failed payments back to the queue, before the others are booked
    #[arg(long, requires = "resume")]
    retry_failed: bool,

    /// Prints one JSON object instead of text
    #[arg(long)]
    json: bool,

    /// Whether a signal has asked the program to end
    #[arg(skip)]
    stopping: Arc<AtomicBool>,
}

impl Options {
    fn database_url(&self) -> String {
        let default = || in_workspace("target/payments.sqlite").display().to_string();
        self.database_url.clone().unwrap_or_else(default)
    }

    fn input(&self) -> PathBuf {
        self.input.clone().unwrap_or_else(|| in_workspace("examples/data/payments.csv"))
    }
}

/// A file of the workspace, wherever cargo is called, or of the present directory when the program runs without cargo.
fn in_workspace(file: &str) -> PathBuf {
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let (Some(package), Ok(present)) = (package, env::current_dir()) else { return file.into() };
    match package.parent() {
        Some(workspace) if package != present && workspace != present => workspace.join(file),
        _ => file.into(),
    }
}

/// Sends the log to a file if there is a progress bar, which lines of the log would break, and returns that file.
fn start_log() -> Result<Option<PathBuf>> {
    let log = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN);
    if !std::io::stderr().is_terminal() {
        log.with_writer(std::io::stderr).init();
        return Ok(None);
    }
    let path = in_workspace("target/payments.log");
    fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).context("cannot create the directory target")?;
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    log.with_ansi(false).with_writer(Mutex::new(file)).init();
    Ok(Some(path))
}

fn main() -> ExitCode {
    let options = Options::parse();
    match start_log().and_then(|log| run(&options, log.as_deref())) {
        Ok(report) if report.check.holds => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options, log: Option<&Path>) -> Result<Report> {
    let [terminated, interrupted] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    for (signal, own, other) in [(SIGTERM, &terminated, &interrupted), (SIGINT, &interrupted, &terminated)] {
        // The order matters: a signal finds the flag that an earlier signal has raised. If two signals come at the same
        // moment, in two threads, the later one finds the flag of the other.
        flag::register_conditional_shutdown(signal, 128 + signal, own.clone())?;
        flag::register(signal, own.clone())?;
        flag::register_conditional_shutdown(signal, 128 + signal, other.clone())?;
        flag::register(signal, options.stopping.clone())?;
    }
    let url = options.database_url();
    if options.database_url.is_none() {
        fs::create_dir_all(in_workspace("target")).context("cannot create the directory target")?;
    }
    let report = database::run(&url, options)?;
    if options.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{report}\n\n{}", report.next_steps(options, log));
    }
    Ok(report)
}
