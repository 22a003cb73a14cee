//! Bar 21: SQLite, four processes that are killed again and again, and an application that enqueues meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::kills::{few_of, kill_and_replace};
use crate::bank::NewPayment;
use crate::bar::{Bar, Needs};
use crate::checker::Invariant;
use crate::on::sqlite::typed::application;
use crate::options::{Backend, Mode};
use crate::run::{Run, pending};
use crate::session::connect;

pub(super) const BAR: Bar = Bar {
    number: 21,
    title: "SQLite, four processes in a kill loop",
    backends: &[Backend::Sqlite],
    modes: Mode::ALL,
    server: Needs::Shared,
    measures: false,
    smoke_seconds: 6,
    run,
};

const PATIENCE: Duration = Duration::from_secs(60);
const LOCKED: &str = "database is locked";

fn run(run: &mut Run) -> Result<()> {
    let kills = run.times(12, 1000);
    let url = run.url().to_owned();
    let stop = AtomicBool::new(false);
    let enqueued = thread::scope(|scope| -> Result<Enqueued> {
        let application = scope.spawn(|| enqueue(&url, &stop));
        let killed = kill(run, kills);
        stop.store(true, Ordering::Relaxed);
        let enqueued = application.join().ok().context("the application panicked")??;
        killed.map(|()| enqueued)
    })?;
    run.count_enqueued(enqueued.payments);
    run.number("kills", kills);
    run.number("slowest_enqueue_ms", u64::try_from(enqueued.slowest.as_millis())?);
    run.drain(&run.recipe(), PATIENCE * 2)?;
    run.add(Invariant::of("the database is whole", integrity(run)?));
    run.add(Invariant::of("no `database is locked` reaches the user", locked(run)?));
    run.check_after_kills(few_of(kills))
}

/// Kills four processes in turn, and replaces each.
fn kill(run: &mut Run, kills: u64) -> Result<()> {
    let recipe = run.recipe();
    let mut session = run.session()?;
    let mut four = [recipe.start()?, recipe.start()?, recipe.start()?, recipe.start()?];
    for kill in 0..kills {
        let one = &mut four[usize::try_from(kill % 4)?];
        kill_and_replace(run, &recipe, one, &mut *session)?;
        if kill % 10 == 9 {
            run.add(Invariant::of("the database is whole", integrity(run)?));
        }
    }
    Ok(())
}

/// How many payments the application enqueued, and how long its slowest insert took.
#[derive(Debug, Default)]
struct Enqueued {
    payments: i64,
    slowest: Duration,
}

/// Enqueues until told to stop. An error here is one that a user would see.
fn enqueue(url: &str, stop: &AtomicBool) -> Result<Enqueued> {
    let mut enqueued = Enqueued::default();
    let mut session = connect(url)?;
    while !stop.load(Ordering::Relaxed) {
        // Enough for a load, and no more than the run can drain.
        if pending(&mut *session)? < 400 {
            let new: Vec<_> = (enqueued.payments..enqueued.payments + 20).map(NewPayment::mixed).collect();
            let began = Instant::now();
            application::enqueue(url, &new).context("the application cannot enqueue")?;
            enqueued.slowest = enqueued.slowest.max(began.elapsed());
            enqueued.payments += 20;
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(enqueued)
}

fn integrity(run: &Run) -> Result<Vec<String>> {
    let found = run.session()?.lines("SELECT integrity_check AS line FROM pragma_integrity_check")?;
    Ok(found.into_iter().filter(|line| line != "ok").collect())
}

/// The error texts and lines of the workers' logs that say that the database is locked.
fn locked(run: &Run) -> Result<Vec<String>> {
    let mut found = run.session()?.lines(&format!(
        "SELECT id || ' ' || last_attempt_error_message AS line FROM payments
         WHERE last_attempt_error_message LIKE '%{LOCKED}%'"
    ))?;
    for (_, log) in run.logs()? {
        found.extend(log.lines().filter(|line| line.contains(LOCKED)).map(str::to_owned));
    }
    Ok(found)
}
