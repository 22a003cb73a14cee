//! Bar 7: handlers that abort the process. Their rows are set aside, and no other.

use std::os::unix::process::ExitStatusExt;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::process::Signal;

use crate::bank::NewPayment;
use crate::bar::{Bar, Needs};
use crate::checker::{Expected, Invariant};
use crate::options::{Accounting, Backend, Mode};
use crate::run::{Run, pending};
use crate::worker::Recipe;

pub(super) const BAR: Bar = Bar {
    number: 7,
    title: "handlers that abort the process",
    backends: Backend::SINGLE,
    modes: Mode::IN_TRANSACTION,
    server: Needs::Shared,
    measures: false,
    smoke_seconds: 5,
    run,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// How many crashes a row may cause before it is set aside.
const CRASHES: u64 = 3;

fn run(run: &mut Run) -> Result<()> {
    let aborting = run.times(1, 20);
    let mut restarts = 0;
    for (accounting, name) in [(Accounting::On, "crashes"), (Accounting::Strict, "crashes_strict")] {
        enqueue(run, aborting)?;
        let crashes = work_on(run, &run.recipe().accounting(accounting), aborting)?;
        restarts += crashes;
        run.number(name, crashes);
        // The first crash is not counted if its process has run for a while.
        let most = CRASHES + u64::from(accounting == Accounting::On);
        run.expect(crashes >= aborting && crashes <= aborting * most, || {
            format!("{aborting} rows ended {crashes} processes with accounts {accounting:?}")
        });
        run.check(|expected| Expected { also_fail: "p.kind = 'aborts'", ..expected })?;
    }
    run.number("restarts", restarts);
    run.number("aborting_rows", 2 * aborting);
    let innocent = "SELECT COUNT(*) AS n FROM payments WHERE status = 'FAILED' AND kind NOT IN ('fatal', 'aborts')";
    let innocent = run.session()?.count(innocent)?;
    run.number("innocent_set_aside", innocent);
    let not_set_aside = format!(
        "SELECT {} AS line FROM payments WHERE kind = 'aborts' AND NOT (status = 'FAILED' AND try_count = 0
         AND last_attempt_error_message LIKE 'the process ended 3 times while this message was handled%')",
        run.dialect().text("id")
    );
    let not_set_aside = run.session()?.lines(&not_set_aside)?;
    run.add(Invariant::of("every row that ends its process is set aside", not_set_aside));
    Ok(())
}

/// Enqueues many good payments, with some among them that abort the process.
fn enqueue(run: &mut Run, aborting: u64) -> Result<()> {
    let good = 200 * i64::try_from(aborting)?;
    let mut new: Vec<_> = (0..good).map(NewPayment::mixed).collect();
    for number in 0..i64::try_from(aborting)? {
        let place = run.random.usize(..new.len());
        new.insert(place, NewPayment::plain(number).kind("aborts"));
    }
    run.enqueue(&new)
}

/// Replaces every process that ends, until all payments are worked. Returns how many crashed.
fn work_on(run: &mut Run, recipe: &Recipe, aborting: u64) -> Result<u64> {
    let mut crashes = 0;
    let mut session = run.session()?;
    loop {
        let mut worker = recipe.start()?;
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = worker.ended()? {
                break status;
            }
            if pending(&mut *session)? == 0 {
                worker.shut_down(PATIENCE)?;
                return Ok(crashes);
            }
            ensure!(Instant::now() < deadline, "it does not come to an end; {}", run.said());
            thread::sleep(Duration::from_millis(10));
        };
        ensure!(status.signal() == Some(Signal::ABORT.as_raw()), "a worker ended with {status}: {}", worker.log());
        crashes += 1;
        ensure!(crashes <= 2 * aborting * CRASHES, "the same rows end process after process");
    }
}
