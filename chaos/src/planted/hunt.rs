//! Lets each bug live in its runs, which have to find it.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::NamedTempFile;

use super::bugs::{BUGS, Bug};
use super::copy::build;
use crate::options::{Backend, Mode, Options};
use crate::run::NOT_MADE;
use crate::worker::name_of;

/// How long a bug may stay hidden.
const AT_MOST: Duration = Duration::from_secs(60);

/// Builds the library with the bugs, lets each of them live, and prints a table. Says whether all were found, and nothing
/// without them.
pub(crate) fn find_all(options: &Options, seed: u64) -> Result<bool> {
    let unknown: Vec<_> = options.bug.iter().filter(|name| BUGS.iter().all(|bug| bug.name != **name)).collect();
    if !unknown.is_empty() {
        let names: Vec<_> = BUGS.iter().map(|bug| bug.name).collect();
        bail!("no bug of this name is planted: {unknown:?}; there are: {}", names.join(", "));
    }
    let bugs: Vec<_> =
        BUGS.iter().filter(|bug| options.bug.is_empty() || options.bug.iter().any(|name| name == bug.name)).collect();
    eprintln!("seed {seed}");
    let program = build()?;
    println!("| planted bug | run | database, mode | found by | after |\n|---|---|---|---|---|");
    let mut all_found = true;
    let mut sound: Vec<(u8, u64, Backend, Mode)> = Vec::new();
    for bug in bugs {
        for &(backend, mode) in bug.on {
            if !sound.contains(&(bug.bar, bug.count, backend, mode)) {
                // What the run finds without a bug would be no finding.
                let found = run(&program, "", bug, backend, mode, seed)?;
                ensure!(found == Found::Nothing, "bar {} without a bug: {found:?}", bug.bar);
                sound.push((bug.bar, bug.count, backend, mode));
            }
            let began = Instant::now();
            let found = run(&program, bug.name, bug, backend, mode, seed)?;
            let seconds = began.elapsed().as_secs_f64();
            let found = match found {
                Found::Bug(finding) => finding,
                other => {
                    all_found = false;
                    format!("**{other:?}**")
                }
            };
            let (backend, mode) = (name_of(&backend), name_of(&mode));
            println!("| {} | bar {} | {backend}, {mode} | {found} | {seconds:.1} s |", bug.name, bug.bar);
        }
    }
    Ok(all_found)
}

/// What a run came to.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// It passed.
    Nothing,
    /// It did not end in time.
    TooLate,
    /// It did not pass, for this reason.
    Bug(String),
}

/// Makes one run with a bug alive.
fn run(program: &Path, name: &str, bug: &Bug, backend: Backend, mode: Mode, seed: u64) -> Result<Found> {
    let output = NamedTempFile::new()?;
    let mut child = Command::new(program)
        .args(["--bar", &bug.bar.to_string(), "--count", &bug.count.to_string(), "--patience", "10"])
        .args(["--backend", &name_of(&backend), "--mode", &name_of(&mode), "--seed", &seed.to_string()])
        .env("QUEUEABLE_PLANTED", name)
        .stdout(output.reopen()?)
        .spawn()?;
    let began = Instant::now();
    while child.try_wait()?.is_none() {
        if began.elapsed() > AT_MOST {
            child.kill()?;
            child.wait()?;
            return Ok(Found::TooLate);
        }
        thread::sleep(Duration::from_millis(20));
    }
    let line = std::fs::read_to_string(output.path())?;
    let report: Value = serde_json::from_str(line.trim()).with_context(|| format!("no report: {line}"))?;
    if report["passed"] == true {
        return Ok(Found::Nothing);
    }
    let finding = finding(&report);
    ensure!(!finding.starts_with(NOT_MADE), "{finding}");
    Ok(Found::Bug(finding))
}

/// The broken invariants of a report, or else its first fault.
fn finding(report: &Value) -> String {
    let empty = Vec::new();
    let invariants = report["invariants"].as_array().unwrap_or(&empty).iter();
    let broken = invariants.filter(|invariant| invariant["broken"].as_u64() > Some(0));
    let broken: Vec<_> = broken.filter_map(|invariant| invariant["name"].as_str()).collect();
    match &broken[..] {
        [] => {}
        [one] => return (*one).to_owned(),
        [one, another] => return format!("{one}; {another}"),
        [one, another, more @ ..] => return format!("{one}; {another}; {} more", more.len()),
    }
    let fault = report["faults"][0].as_str().unwrap_or("no reason was told");
    // What follows a semicolon is what the workers have said.
    fault.split([';', '\n']).next().unwrap_or_default().chars().take(120).collect()
}
