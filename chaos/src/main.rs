//! Kills, cuts and freezes the queue under load, and checks a money ledger afterwards. `docs/reliability.md` tells what is
//! promised and what was measured.

mod bank;
mod bars;
mod calls;
mod checker;
mod db;
mod odd;
mod on;
mod options;
mod run;
mod session;
mod worker;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;

use crate::bars::{BARS, Bar, Needs};
use crate::db::Servers;
use crate::options::{Backend, Command, Mode, Options, WorkerOptions};
use crate::run::{Asked, Report, Run, Scale};
use crate::session::Dialect;

fn main() -> ExitCode {
    let options = Options::parse();
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr).init();
    let result = match &options.command {
        Some(Command::Worker(worker)) => serve(worker).map(|()| true),
        None => harness(&options),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn serve(options: &WorkerOptions) -> Result<()> {
    match Dialect::of(&options.url) {
        Dialect::Postgres => on::postgres::typed::serve::serve(options),
        Dialect::Mysql => on::mysql::typed::serve::serve(options),
        Dialect::Sqlite => on::sqlite::typed::serve::serve(options),
    }
}

/// Makes the runs that are asked for, and says whether all passed.
fn harness(options: &Options) -> Result<bool> {
    let servers = Servers::default();
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000_000));
    let mut passed = true;
    if options.bar.is_empty() {
        bail!("name a bar: --bar 1");
    }
    for number in &options.bar {
        let bar = BARS.iter().find(|bar| bar.number == *number).with_context(|| {
            let known: Vec<_> = BARS.iter().map(|bar| format!("{} ({})", bar.number, bar.title)).collect();
            format!("there is no bar {number}; there are {}", known.join(", "))
        })?;
        let backends: Vec<_> =
            bar.backends.iter().filter(|&&it| options.backend.is_none_or(|only| only == it)).collect();
        let modes: Vec<_> = bar.modes.iter().filter(|&&it| options.mode.is_none_or(|only| only == it)).collect();
        if backends.is_empty() || modes.is_empty() {
            bail!("bar {number} is for {:?} in the modes {:?}", bar.backends, bar.modes);
        }
        for &&backend in &backends {
            for &&mode in &modes {
                let scale = options.count.map_or(Scale::Release, Scale::Count);
                passed &= make(&servers, bar, ask(options, bar, backend, mode, seed, scale));
            }
        }
    }
    Ok(passed)
}

fn ask(options: &Options, bar: &Bar, backend: Backend, mode: Mode, seed: u64, scale: Scale) -> Asked {
    let Options { seconds, plots, .. } = options;
    let name = format!("bar {}: {}", bar.number, bar.title);
    Asked { name, backend, mode, seed, seconds: *seconds, scale, plots: plots.clone() }
}

/// Makes one run of a bar and prints its line.
fn make(servers: &Servers, bar: &Bar, asked: Asked) -> bool {
    let made = || {
        let mut run = match bar.server {
            Needs::Shared => Run::on(servers.shared(asked.backend), asked.clone())?,
            Needs::Own => Run::on_a_server_of_its_own(asked.clone())?,
        };
        if let Err(error) = (bar.run)(&mut run) {
            run.fault(format!("{error:#}"));
        }
        Ok(run.report())
    };
    let report = made().unwrap_or_else(|error| Report::of_error(asked.clone(), &error));
    println!("{}", serde_json::to_string(&report).expect("a report has no map with odd keys"));
    report.passed
}
