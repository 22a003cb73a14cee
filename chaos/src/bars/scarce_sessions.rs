//! Bar 28: the application leaves the poller hardly any sessions, and the server goes away for a while.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::bank::NewPayment;
use crate::bar::{Bar, Needs};
use crate::latency::{Latencies, stamp, stamps};
use crate::options::{Backend, Mode};
use crate::run::{Run, booked, pending};

pub(super) const BAR: Bar = Bar {
    number: 28,
    title: "hardly a session, and outages of the server",
    backends: Backend::SERVERS,
    modes: Mode::ALL,
    server: Needs::Own,
    measures: true,
    smoke_seconds: 14,
    run,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// How many workers a process has. Its pool has four more sessions.
const WORKERS: usize = 4;
/// How many payments come one by one while the sessions are scarce, and the time between them.
const PAYMENTS: i64 = 30;
const EVERY: Duration = Duration::from_millis(50);
/// How many seconds the server is away each time.
const OUTAGES: [u64; 4] = [7, 1, 14, 30];
/// How soon the first payment must be booked after the server answers again. A smoke run, on a busy machine, only tells it
/// from the pauses of a pool, which would be 5 seconds.
const BOUNDS: [Duration; 2] = [Duration::from_millis(4500), Duration::from_secs(1)];

fn run(run: &mut Run) -> Result<()> {
    stamp(&mut *run.session()?)?;
    scarce_sessions(run)?;
    outages(run)?;
    run.check(|expected| expected)
}

/// The application leaves the poller two sessions, and three under a lease, because the heartbeat needs its own.
fn scarce_sessions(run: &mut Run) -> Result<()> {
    let left = if run.asked.mode == Mode::Lease { 3 } else { 2 };
    let mut worker = run.recipe().workers(WORKERS).held_sessions(WORKERS + 4 - left).start()?;
    worker.await_start(PATIENCE)?;
    let mut session = run.session()?;
    let last = session.count("SELECT MAX(id) AS n FROM payments")?;
    for number in 0..PAYMENTS {
        run.enqueue(&[NewPayment::plain(number)])?;
        thread::sleep(EVERY);
    }
    run.await_pending(0, PATIENCE)?;
    worker.shut_down(PATIENCE)?;
    let booked: Latencies = stamps(&mut *session, last)?.iter().map(|row| row.latency()).collect();
    run.number("booked_with_scarce_sessions", booked.summary());
    // Before a fix, rows waited here for 15 seconds or for ever, because workers without a session kept them.
    run.expect(booked.max() < Duration::from_secs(5), || {
        format!("with {left} sessions a payment took {:?} until it was booked", booked.max())
    });
    Ok(())
}

fn outages(run: &mut Run) -> Result<()> {
    let outages = usize::try_from(run.times(1, 4))?.min(OUTAGES.len());
    let recipe = run.recipe().workers(WORKERS).own_connections();
    let mut worker = recipe.start()?;
    worker.await_start(PATIENCE)?;
    let mut slowest = Duration::ZERO;
    for seconds in &OUTAGES[..outages] {
        let mut session = run.session()?;
        let before = booked(&mut *session)?;
        run.enqueue_mixed((1500 - pending(&mut *session)?).max(0))?;
        run.until("the worker is at work", PATIENCE, || Ok(booked(&mut *session)? > before))?;
        drop(session);
        run.place.server.kill();
        thread::sleep(Duration::from_secs(*seconds));
        run.place.server.restart();
        let answers = Instant::now();
        let mut session = run.session()?;
        let before = booked(&mut *session)?;
        run.until("a payment is booked after an outage", PATIENCE, || Ok(booked(&mut *session)? > before))?;
        run.recovered_in(answers.elapsed());
        slowest = slowest.max(answers.elapsed());
    }
    let bound = BOUNDS[usize::from(outages == OUTAGES.len())];
    run.number("outages", outages);
    run.number("slowest_first_success_ms", u64::try_from(slowest.as_millis())?);
    run.expect(slowest <= bound, || {
        format!("the first success took {slowest:?} from when the server answered, the bound is {bound:?}")
    });
    run.await_pending(0, PATIENCE)?;
    worker.shut_down(PATIENCE)?;
    Ok(())
}
