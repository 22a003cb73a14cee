//! Bar 12: the application holds locks on a tenth of the due rows.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::bank::NewPayment;
use crate::bar::{Bar, Needs};
use crate::latency::{MANY_ROUNDS, judged_rate, median, now, stamp, stamps};
use crate::options::{Backend, Mode};
use crate::run::{Run, booked};

pub(super) const BAR: Bar = Bar {
    number: 12,
    title: "a tenth of the rows is locked by the application",
    backends: Backend::SERVERS,
    modes: Mode::ALL,
    server: Needs::Shared,
    measures: true,
    smoke_seconds: 10,
    run,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// How long a worker may take to start: less than a lock is held.
const START: Duration = Duration::from_secs(20);
/// How many payments of a round are not locked.
const FREE: i64 = 540;
/// How many more are locked: one in ten.
const LOCKED: i64 = FREE / 9;

fn run(run: &mut Run) -> Result<()> {
    stamp(&mut *run.session()?)?;
    let rounds = run.times(2, 31);
    let (mut free, mut beside_locks, mut releases) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        free.push(round(run, false)?.rate);
        let round = round(run, true)?;
        beside_locks.push(round.rate);
        releases.extend(round.released_in);
    }
    let (free, beside_locks) = (median(&free), judged_rate(&beside_locks));
    let share = beside_locks / free;
    run.number("rows_per_second", free.round());
    run.number("rows_per_second_beside_locks", beside_locks.round());
    run.number("share", (share * 1000.0).round() / 1000.0);
    let bound = if rounds < MANY_ROUNDS { 0.5 } else { 0.9 };
    run.expect(share >= bound, || format!("the rest keeps {share:.3} of the throughput, the bound is {bound}"));

    let slowest = releases.iter().copied().fold(0.0, f64::max);
    run.number("released_to_last_booked_ms", (slowest * 1000.0).round());
    // A poll comes after the interval and up to a tenth more, and then the rows are worked. They get three times their usual
    // time, because the processor may be busy elsewhere.
    let poll = run.recipe().options.poll_interval_ms as f64 / 1000.0;
    // A smoke run shares the machine with others.
    let shared = if rounds < MANY_ROUNDS { 1.0 } else { 0.0 };
    let bound = 2.0 * poll * 1.1 + 3.0 * LOCKED as f64 / free + shared;
    run.number("released_bound_ms", (bound * 1000.0).round());
    // With few rounds a pause of the machine weighs too much, and the best of them shows a constant fault too.
    let judged = if rounds < MANY_ROUNDS { releases.iter().copied().fold(slowest, f64::min) } else { slowest };
    run.expect(judged <= bound, || format!("released rows ran within {judged:.3} s, the bound is {bound:.3} s"));
    run.check(|expected| expected)
}

struct Round {
    /// How many of the free rows were booked per second.
    rate: f64,
    /// How many seconds after the release the last locked row was booked.
    released_in: Option<f64>,
}

/// Lets a worker work the free payments, with or without locked ones among them.
fn round(run: &mut Run, with_locks: bool) -> Result<Round> {
    let mut session = run.session()?;
    let last = session.count("SELECT MAX(id) AS n FROM payments")?;
    let before = booked(&mut *session)?;
    let payments = if with_locks { FREE + LOCKED } else { FREE };
    run.enqueue(&(0..payments).map(NewPayment::plain).collect::<Vec<_>>())?;
    let mut application = run.session()?;
    let mut locked = Vec::new();
    if with_locks {
        let id = session.dialect().text("id");
        let new = session.lines(&format!("SELECT {id} AS line FROM payments WHERE id > {last} ORDER BY id"))?;
        locked = new.iter().step_by(10).map(|id| Ok(id.parse()?)).collect::<Result<Vec<i64>>>()?;
        application.run("BEGIN")?;
        for id in &locked {
            // One by one, so that the plan locks no other rows on its way.
            application.lines(&format!("SELECT note AS line FROM payments WHERE id = {id} FOR UPDATE"))?;
        }
    }
    let mut worker = run.recipe().start()?;
    worker.await_start(START)?;
    run.until("the rows that nobody locks are booked", PATIENCE, || Ok(booked(&mut *session)? >= before + FREE))?;
    let mut released_in = None;
    if with_locks {
        // By now the poller has found that it cannot claim the due rows, and polls as rarely as it ever does.
        thread::sleep(Duration::from_millis(3 * run.recipe().options.poll_interval_ms));
        let so_far = booked(&mut *session)? - before;
        run.expect(so_far == FREE, || format!("{so_far} rows were booked, but only {FREE} were free"));
        let released = now(&mut *session)?;
        application.run("COMMIT")?;
        run.await_pending(0, PATIENCE)?;
        let last_booked = stamps(&mut *session, last)?.last().context("nothing is booked")?.booked;
        released_in = Some(last_booked - released);
    }
    worker.shut_down(PATIENCE)?;
    let free: Vec<_> = stamps(&mut *session, last)?.into_iter().filter(|row| !locked.contains(&row.id)).collect();
    let (first, last) = free.first().zip(free.last()).context("nothing is booked")?;
    Ok(Round { rate: (free.len() - 1) as f64 / (last.booked - first.booked), released_in })
}
