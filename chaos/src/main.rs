//! Kills, cuts and freezes the queue under load, and checks a money ledger afterwards. `docs/reliability.md` tells what is
//! promised and what was measured.

#![allow(clippy::duplicate_mod, reason = "what is typed by its connection is mounted once for each")]

mod application;
mod attempts;
mod bank;
mod bar;
mod bars;
mod calls;
mod checker;
mod db;
mod galera;
mod injector;
mod kinds;
mod lanes;
mod latency;
mod odd;
mod on;
mod options;
mod place;
mod planted;
mod plot;
mod proxy;
mod run;
mod schedule;
mod session;
mod smoke;
mod storm;
mod tables;
mod worker;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;

use crate::bar::{Bar, Needs};
use crate::bars::BARS;
use crate::options::{Backend, Command, Mode, Options, WorkerOptions};
use crate::place::Servers;
use crate::run::{Asked, Report, Run, Scale};
use crate::session::Dialect;
use crate::smoke::Whole;
use crate::storm::{STORM, STORM_NUMBER};

fn main() -> ExitCode {
    let options = Options::parse();
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr).with_ansi(false).init();
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
        Dialect::Postgres if options.is_async => on::async_postgres::typed::serve::serve(options),
        Dialect::Postgres => on::postgres::typed::serve::serve(options),
        Dialect::Mysql => on::mysql::typed::serve::serve(options),
        Dialect::Sqlite => on::sqlite::typed::serve::serve(options),
    }
}

/// Makes the runs that are asked for, and says whether all passed.
fn harness(options: &Options) -> Result<bool> {
    let servers = Servers::default();
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000_000));
    if options.check {
        return planted::check().map(|()| true);
    }
    if options.planted {
        return planted::find_all(options, seed);
    }
    let wholes = [(options.brief, Whole::Brief), (options.smoke, Whole::Smoke), (options.full, Whole::Release)];
    if let Some((_, whole)) = wholes.into_iter().find(|(is_asked, _)| *is_asked) {
        return Ok(smoke::run(options, seed, whole));
    }
    let mut passed = true;
    if options.bar.is_empty() && options.backend == Some(Backend::Galera) {
        bail!("the random schedule is for one server; a cluster's nodes are killed by --bar 20");
    }
    let find = |number: &u8| {
        BARS.iter().find(|bar| bar.number == *number).with_context(|| {
            let known: Vec<_> = BARS.iter().map(|bar| format!("{} ({})", bar.number, bar.title)).collect();
            format!("there is no bar {number}; there are {}", known.join(", "))
        })
    };
    let mut bars = options.bar.iter().map(find).collect::<Result<Vec<_>>>()?;
    if bars.is_empty() {
        bars.push(&STORM);
    }
    for bar in bars {
        let backends: Vec<_> =
            bar.backends.iter().filter(|&&it| options.backend.is_none_or(|only| only == it)).collect();
        let modes: Vec<_> = bar.modes.iter().filter(|&&it| options.mode.is_none_or(|only| only == it)).collect();
        if backends.is_empty() || modes.is_empty() {
            bail!("{} is for {:?} in the modes {:?}", name_of(bar), bar.backends, bar.modes);
        }
        for &&backend in &backends {
            for &&mode in &modes {
                let scale = options.count.map_or(Scale::Release, Scale::Count);
                passed &= make(&servers, bar, ask(options, bar, backend, mode, seed, scale)).passed;
            }
        }
    }
    Ok(passed)
}

fn ask(options: &Options, bar: &Bar, backend: Backend, mode: Mode, seed: u64, scale: Scale) -> Asked {
    let Options { seconds, plots, patience, spoil, .. } = options;
    Asked {
        name: name_of(bar),
        backend,
        mode,
        seed,
        seconds: seconds.unwrap_or(60),
        given_seconds: *seconds,
        scale,
        patience: patience.map(Duration::from_secs),
        spoil: spoil.clone(),
        plots: plots.clone(),
    }
}

fn name_of(bar: &Bar) -> String {
    match bar.number {
        STORM_NUMBER => bar.title.to_owned(),
        number => format!("bar {number}: {}", bar.title),
    }
}

/// Makes one run of a bar and prints its line.
fn make(servers: &Servers, bar: &Bar, asked: Asked) -> Report {
    let made = AssertUnwindSafe(|| {
        let mut run = match bar.server {
            Needs::Shared => Run::on(servers.shared(asked.backend), asked.clone())?,
            Needs::Own => Run::on_a_server_of_its_own(asked.clone())?,
            Needs::Empty => Run::in_an_empty_place(servers.shared(asked.backend), asked.clone())?,
        };
        if let Err(error) = (bar.run)(&mut run) {
            run.fault(format!("{error:#}"));
            if let Err(error) = run.check_what_always_holds() {
                run.fault(format!("nothing can be checked: {error:#}"));
            }
        }
        Ok(run.report())
    });
    // A server that does not start panics, as it does in the tests.
    let report = catch_unwind(made)
        .unwrap_or_else(|_| Err(anyhow!("it panicked, as its standard error tells")))
        .unwrap_or_else(|error| Report::of_error(asked.clone(), &error));
    println!("{}", serde_json::to_string(&report).expect("a report has no map with odd keys"));
    report
}
