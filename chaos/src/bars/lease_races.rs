//! Bar 22: leases end while their owners are on the way to write, and others take the rows over. No stale owner writes.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use queueable::Tally;
use rustix::process::Signal;

use crate::bank::NewPayment;
use crate::bar::{Bar, Needs};
use crate::calls::calls;
use crate::checker::{Expected, Invariant};
use crate::options::{Action, Backend, Break, Mode, Terms};
use crate::run::Run;
use crate::session::Dialect;
use crate::worker::Worker;

pub(super) const BAR: Bar = Bar {
    number: 22,
    title: "lease expiry, blocked hearts and takeovers",
    backends: Backend::EACH_CLIENT,
    modes: &[Mode::Lease],
    server: Needs::Shared,
    measures: false,
    smoke_seconds: 8,
    run,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// How many processes race for the rows.
const PROCESSES: usize = 3;
/// How many workers each process has.
const WORKERS: usize = 8;
/// The payments that were never tried.
const WAITING: &str =
    "SELECT COUNT(*) AS n FROM payments WHERE status = 'NOT_ATTEMPTED' AND next_attempt_time IS NOT NULL";

fn run(run: &mut Run) -> Result<()> {
    let races = run.times(150, 10_000);
    // Heartbeats are delayed for longer than a lease lasts, and owners are held up before they write: between call and
    // transaction, under the lock, and after the commit.
    let recipe = run.recipe().terms(Terms::Hasty).workers(WORKERS).breaks([
        Break::every("heartbeat", 1, Action::Moment),
        Break::every("heartbeat-sent", 7, Action::Moment),
        Break::every("lease-called", 2, Action::Moment),
        Break::every("lease-claimed", 31, Action::Moment),
        Break::every("lease-locked", 61, Action::Moment),
        Break::every("lease-applied", 61, Action::Moment),
    ]);
    let mut workers: Vec<Worker> = (0..PROCESSES).map(|_| recipe.start()).collect::<Result<_>>()?;
    let mut session = run.session()?;
    let mut freezes = 0;
    let mut seen = 0;
    let deadline = Instant::now() + PATIENCE + Duration::from_secs(races / 2);
    while seen < races {
        ensure!(Instant::now() < deadline, "only {seen} takeovers of {races}; {}", run.said());
        // Few, because a row whose lease is over comes after the rows that became due earlier.
        if session.count(WAITING)? < 8 {
            run.enqueue(&(0..24).map(NewPayment::plain).collect::<Vec<_>>())?;
        }
        // Freezes a whole process, wherever its workers are.
        let one = &workers[run.random.usize(..PROCESSES)];
        one.signal(Signal::STOP)?;
        thread::sleep(Duration::from_millis(run.random.u64(300..500)));
        one.signal(Signal::CONT)?;
        freezes += 1;
        seen = takeovers(run)?;
    }
    let mut tally = Tally::default();
    for worker in &mut workers {
        let one = worker.shut_down(PATIENCE)?;
        tally.lost += one.lost;
        tally.succeeded += one.succeeded;
    }
    run.drain(&run.recipe().terms(Terms::Hasty), PATIENCE)?;
    run.number("takeovers", takeovers(run)?);
    run.number("stale_owners_turned_away", tally.lost);
    run.number("freezes", freezes);
    run.expect(tally.lost >= races / 4, || format!("{} takeovers had an owner that still wanted to write", tally.lost));
    run.add(Invariant::of("whoever writes is the last owner", stale_writes(run)?));
    run.check(|expected| Expected { exact_tries: false, ..expected })
}

/// How many times a payment that never fails was called again. Each time its lease was over.
fn takeovers(run: &Run) -> Result<u64> {
    Ok(last_attempts(run)?.values().map(|&attempts| u64::from(attempts - 1)).sum())
}

/// The last attempt that made a call, for each payment.
fn last_attempts(run: &Run) -> Result<BTreeMap<i64, u32>> {
    let mut attempts: BTreeMap<i64, u32> = BTreeMap::new();
    for call in calls(&run.calls())? {
        let last = attempts.entry(call.payment).or_default();
        *last = call.attempt.max(*last);
    }
    Ok(attempts)
}

/// The ledger has the attempt that booked, and the calls have the last one that began: an earlier attempt had lost its lease
/// by then. The row's own number of tries shows nothing, because a stale owner would overwrite it.
fn stale_writes(run: &Run) -> Result<Vec<String>> {
    let last_attempts = last_attempts(run)?;
    let mut session = run.session()?;
    let (payment, attempt) = (session.dialect().text("payment_id"), session.dialect().text("attempt"));
    let line = match session.dialect() {
        Dialect::Mysql => format!("CONCAT_WS(' ', {payment}, {attempt})"),
        Dialect::Postgres | Dialect::Sqlite => format!("{payment} || ' ' || {attempt}"),
    };
    let booked = session.lines(&format!("SELECT {line} AS line FROM ledger"))?;
    let mut stale = Vec::new();
    for line in booked {
        let (payment, attempt) = line.split_once(' ').context("a payment and an attempt")?;
        let last = last_attempts.get(&payment.parse()?);
        if last.is_none_or(|last| last.to_string() != attempt) {
            stale.push(format!("payment {payment} was booked by attempt {attempt}, the last one was {last:?}"));
        }
    }
    Ok(stale)
}
