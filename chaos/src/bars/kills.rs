//! Bar 1: workers are killed under load, again and again.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::bar::{Bar, Needs};
use crate::options::{Backend, Mode};
use crate::run::{Run, booked, pending};
use crate::session::Session;
use crate::worker::{Recipe, Worker};

pub(super) const BAR: Bar = Bar {
    number: 1,
    title: "kill -9 of a worker under load",
    backends: Backend::EACH_CLIENT,
    modes: Mode::ALL,
    server: Needs::Shared,
    measures: false,
    smoke_seconds: 3,
    run,
};

const PATIENCE: Duration = Duration::from_secs(60);

fn run(run: &mut Run) -> Result<()> {
    let kills = match run.asked.backend {
        Backend::Mariadb => run.times(8, 300),
        _ => run.times(8, 1000),
    };
    let recipe = run.recipe();
    let mut session = run.session()?;
    let mut pair = [recipe.start()?, recipe.start()?];
    for kill in 0..kills {
        if pending(&mut *session)? < 300 {
            run.enqueue_mixed(1000)?;
        }
        let one = &mut pair[usize::try_from(kill % 2)?];
        kill_and_replace(run, &recipe, one, &mut *session)?;
    }
    drop(pair);
    run.number("kills", kills);
    run.drain(&recipe, PATIENCE)?;
    run.check_after_kills(few_of(kills))
}

/// Kills a worker at a random moment, starts another in its place, and waits until another payment is booked.
pub(super) fn kill_and_replace(
    run: &mut Run,
    recipe: &Recipe,
    worker: &mut Worker,
    session: &mut dyn Session,
) -> Result<()> {
    worker.await_start(PATIENCE)?;
    thread::sleep(Duration::from_millis(run.random.u64(0..150)));
    worker.kill()?;
    // A quick machine may have processed everything by now, and the other worker goes on.
    if pending(session)? < 300 {
        run.enqueue_mixed(1000)?;
    }
    let (killed, before) = (Instant::now(), booked(session)?);
    *worker = recipe.start()?;
    run.until("another payment is booked after a kill", PATIENCE, || Ok(booked(session)? > before))?;
    run.recovered_in(killed.elapsed());
    Ok(())
}

/// How many rows may be set aside after this many kills.
pub(super) fn few_of(kills: u64) -> u64 {
    2 + kills / 50
}
