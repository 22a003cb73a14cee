//! Bar 1: workers are killed under load, again and again.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::bar::{Bar, Needs};
use crate::checker::Expected;
use crate::options::{Backend, Mode};
use crate::run::{Run, booked, pending};

pub(super) const BAR: Bar = Bar {
    number: 1,
    title: "kill -9 of a worker under load",
    backends: Backend::SINGLE,
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
        one.await_start(PATIENCE)?;
        thread::sleep(Duration::from_millis(run.random.u64(0..150)));
        one.kill()?;
        let (killed, before) = (Instant::now(), booked(&mut *session)?);
        *one = recipe.start()?;
        run.until("another payment is booked after a kill", PATIENCE, || Ok(booked(&mut *session)? > before))?;
        run.recovered_in(killed.elapsed());
    }
    drop(pair);
    run.number("kills", kills);
    run.drain(&recipe, PATIENCE)?;
    expect_few_set_aside(run, kills)
}

/// Checks everything. A row that runs alone after a kill is killed again, and once more: nobody can tell it from one that ends
/// its process.
pub(super) fn expect_few_set_aside(run: &mut Run, kills: u64) -> Result<()> {
    let set_aside = "SELECT COUNT(*) AS n FROM payments WHERE status = 'FAILED' AND kind <> 'fatal'";
    let set_aside = run.session()?.count(set_aside)?;
    run.number("set_aside", set_aside);
    let bound = 2 + i64::try_from(kills / 50)?;
    run.expect(set_aside <= bound, || format!("{set_aside} rows were set aside in {kills} kills"));
    run.check(|expected| Expected { may_be_set_aside: true, ..expected })
}
