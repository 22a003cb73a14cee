//! Many bars in one run, on the databases and in the modes that they are for: with few repetitions, or with those of a release.

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

/// The bars of the printed promise, which a brief run makes: kill -9, fail points, lost answers, ended sessions, rows that end the
/// process, misconduct of a handler, frozen workers, stale leases.
const PROMISE: [u8; 8] = [1, 2, 3, 4, 7, 9, 17, 22];

/// Which of the runs are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whole {
    /// The bars of the printed promise with few repetitions, in one mode on each database.
    Brief,
    /// Every bar with few repetitions.
    Smoke,
    /// Every bar in every mode, with the counts of a release.
    Release,
}

/// Makes the runs, and says whether all passed. Runs that measure times come last, one by one.
pub(crate) fn run(options: &Options, seed: u64, whole: Whole) -> bool {
    let began = Instant::now();
    let scale = if whole == Whole::Release { Scale::Release } else { Scale::Smoke };
    let servers = Servers::default();
    let is_asked = |&(_, backend, mode): &(&Bar, Backend, Mode)| {
        options.backend.is_none_or(|only| only == backend) && options.mode.is_none_or(|only| only == mode)
    };
    let runs = BARS.iter().flat_map(|bar| runs_of(bar, whole)).filter(is_asked);
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

/// The runs of a bar.
///
/// In a brief run, a bar of the promise runs in one mode on each database, a different one on each. So does a long bar in a smoke
/// run. On a second client of the same database every bar does in a smoke run, and none in a brief one.
fn runs_of(bar: &'static Bar, whole: Whole) -> Vec<(&'static Bar, Backend, Mode)> {
    let only = |number: usize| &bar.modes[number % bar.modes.len()..][..1];
    let modes_on = |number: usize, backend: Backend| match (whole, backend) {
        (Whole::Brief, Backend::AsyncPostgres) => &[],
        (Whole::Brief, _) if !PROMISE.contains(&bar.number) => &[],
        (Whole::Brief, _) => only(usize::from(bar.number) + number),
        (Whole::Smoke, Backend::AsyncPostgres) => only(bar.number.into()),
        (Whole::Smoke, _) if bar.smoke_seconds > LONG => only(number),
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
