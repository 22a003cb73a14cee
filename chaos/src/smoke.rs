//! Every bar on every database and in every mode that it is for: with few repetitions for CI, or with those of a release.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use crate::bar::Bar;
use crate::bars::BARS;
use crate::options::{Backend, Mode, Options};
use crate::place::Servers;
use crate::run::{Report, Scale};
use crate::{ask, make};

/// How many runs go on at once. They mostly wait, but some have bounds that a busy machine would break.
const AT_ONCE: usize = 2;

/// A bar whose smoke run takes longer than this many seconds is not run in every mode.
const LONG: u8 = 9;

/// Makes all runs, and says whether all passed. Runs that measure times come last, one by one.
pub(crate) fn everything(options: &Options, seed: u64, scale: Scale) -> bool {
    let began = Instant::now();
    let servers = Servers::default();
    let is_asked = |&(_, backend, mode): &(&Bar, Backend, Mode)| {
        options.backend.is_none_or(|only| only == backend) && options.mode.is_none_or(|only| only == mode)
    };
    let runs = BARS.iter().flat_map(|bar| runs_of(bar, scale)).filter(is_asked);
    let (mut quiet, mut all): (Vec<_>, Vec<_>) = runs.partition(|(bar, ..)| bar.measures);
    // The longest first, so that none of them runs alone at the end.
    all.sort_by_key(|(bar, ..)| std::cmp::Reverse(bar.smoke_seconds));
    let work = |runs: Vec<(&'static Bar, _, _)>, at_once| {
        let runs = Mutex::new(VecDeque::from(runs));
        let reports = Mutex::new(Vec::new());
        let next = || runs.lock().expect("no run panics while it holds the list").pop_front();
        thread::scope(|scope| {
            for _ in 0..at_once {
                scope.spawn(|| {
                    while let Some((bar, backend, mode)) = next() {
                        let report = make(&servers, bar, ask(options, bar, backend, mode, seed, scale));
                        reports.lock().expect("no run panics while it holds the list").push(report);
                    }
                });
            }
        });
        reports.into_inner().expect("no run panics while it holds the list")
    };
    let mut reports = work(all, AT_ONCE);
    quiet.sort_by_key(|(bar, ..)| bar.number);
    reports.extend(work(quiet, 1));
    conclude(&reports, began)
}

/// The runs of a bar. In a smoke run, a long bar runs in only one mode on each database, a different one on each. On a
/// second client of the same database every bar does, a different one for each bar.
fn runs_of(bar: &'static Bar, scale: Scale) -> Vec<(&'static Bar, Backend, Mode)> {
    let only = |number: usize| &bar.modes[number % bar.modes.len()..][..1];
    let modes_on = |number: usize, backend: Backend| match (scale, backend) {
        (Scale::Smoke, Backend::AsyncPostgres) => only(bar.number.into()),
        (Scale::Smoke, _) if bar.smoke_seconds > LONG => only(number),
        _ => bar.modes,
    };
    let on = |(number, &backend)| modes_on(number, backend).iter().map(move |&mode| (bar, backend, mode));
    bar.backends.iter().enumerate().flat_map(on).collect()
}

fn conclude(reports: &[Report], began: Instant) -> bool {
    let failed: Vec<_> = reports.iter().filter(|report| !report.passed).collect();
    eprintln!("{} runs in {} s, {} did not pass", reports.len(), began.elapsed().as_secs(), failed.len());
    for report in &failed {
        eprintln!("  {} on {:?} in {:?} mode", report.run, report.backend, report.mode);
    }
    failed.is_empty()
}
