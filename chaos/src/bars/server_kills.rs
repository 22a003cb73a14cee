//! Bar 5: the database server is killed under load and started again.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::bar::{Bar, Needs};
use crate::options::{Backend, Mode};
use crate::run::{Run, Scale, booked, pending};

pub(super) const BAR: Bar = Bar {
    number: 5,
    title: "kill -9 and restart of the database server",
    backends: Backend::EACH_NETWORK_CLIENT,
    modes: Mode::ALL,
    server: Needs::Own,
    measures: false,
    smoke_seconds: 10,
    run,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// How soon the first payment must be booked after the server answers again: in a smoke run, on a busy machine, and for a
/// release.
const BOUNDS: [Duration; 2] = [Duration::from_secs(15), Duration::from_secs(5)];

fn run(run: &mut Run) -> Result<()> {
    let kills = run.times(2, 30);
    let recipe = run.recipe();
    let mut pair = [recipe.start()?, recipe.start()?];
    for worker in &mut pair {
        worker.await_start(PATIENCE)?;
    }
    let mut slowest = Duration::ZERO;
    let mut down = Duration::ZERO;
    for _ in 0..kills {
        let mut session = run.session()?;
        let before = booked(&mut *session)?;
        run.enqueue_mixed((1500 - pending(&mut *session)?).max(0))?;
        run.until("the workers are at work", PATIENCE, || Ok(booked(&mut *session)? > before))?;
        thread::sleep(Duration::from_millis(run.random.u64(0..150)));
        let killed = Instant::now();
        run.place.server.kill();
        thread::sleep(Duration::from_millis(run.random.u64(0..500)));
        run.place.server.restart();
        let answers = Instant::now();
        down = down.max(answers - killed);
        let mut session = run.session()?;
        let before = booked(&mut *session)?;
        run.until("a payment is booked after a restart", PATIENCE, || Ok(booked(&mut *session)? > before))?;
        run.recovered_in(answers.elapsed());
        slowest = slowest.max(answers.elapsed());
    }
    run.number("kills", kills);
    run.number("longest_without_a_server_ms", u64::try_from(down.as_millis())?);
    run.number("slowest_first_success_ms", u64::try_from(slowest.as_millis())?);
    let bound = BOUNDS[usize::from(run.asked.scale != Scale::Smoke)];
    run.expect(slowest <= bound, || format!("the first success took {slowest:?} from when the server answered"));
    run.await_pending(0, PATIENCE)?;
    for worker in &mut pair {
        worker.shut_down(PATIENCE)?;
    }
    run.drain(&recipe, PATIENCE)?;
    run.check(|expected| expected)
}
