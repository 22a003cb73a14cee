//! Bar 17: a process is frozen in the middle of a handler. Its row runs elsewhere within a bound; thawed, it commits nothing.
//!
//! The server ends the session of a frozen transaction, and so sets the bound: the timeout on PostgreSQL, a second more on
//! MariaDB. Under a lease the call is outside of any transaction, and the bound is the lease. On SQLite no process can end
//! another one's transaction: while the writer is frozen no other process writes, and there is no bound. But the thawed
//! process does not commit an attempt that has exceeded its timeout.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use crate::bank::NewPayment;
use crate::bar::{Bar, Needs};
use crate::calls::calls;
use crate::checker::Expected;
use crate::options::{Action, Backend, Break, Mode, Terms};
use crate::run::{Run, Scale};
use crate::session::Dialect;
use crate::worker::{Recipe, Said, Worker};

pub(super) const BAR: Bar = Bar {
    number: 17,
    title: "frozen in mid handler",
    backends: Backend::EACH_CLIENT,
    modes: Mode::ALL,
    server: Needs::Shared,
    measures: false,
    smoke_seconds: 8,
    run,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// The timeout of a hasty payment.
const TIMEOUT: Duration = Duration::from_secs(2);
const LEASE: Duration = Duration::from_millis(300);
/// Allows for a poll of the queue, an attempt, and a busy machine.
const ALLOWANCE: Duration = Duration::from_secs(2);

fn run(run: &mut Run) -> Result<()> {
    let recipe = run.recipe().terms(Terms::Hasty);
    let bound = match (run.asked.mode, run.dialect()) {
        (Mode::Lease, _) => Some(LEASE),
        (_, Dialect::Postgres) => Some(TIMEOUT),
        (_, Dialect::Mysql) => Some(TIMEOUT + Duration::from_secs(1)),
        (_, Dialect::Sqlite) => None,
    };
    // A smoke run shares the machine with others, so it only checks that the row runs elsewhere, and not how soon.
    let is_smoke = run.asked.scale == Scale::Smoke;
    let mut slowest = Duration::ZERO;
    let mut elsewhere = 0;
    let freezes = run.times(2, 50);
    for _ in 0..freezes {
        let (mut frozen, row) = freeze(run, &recipe)?;
        let since = Instant::now();
        let mut other = recipe.start()?;
        if let Some(bound) = bound {
            // The other process gets more work than the frozen row.
            run.enqueue(&(0..20).map(NewPayment::plain).collect::<Vec<_>>())?;
            await_success(run, row)?;
            let time = since.elapsed();
            slowest = slowest.max(time);
            elsewhere += 1;
            run.expect(is_smoke || time < bound + ALLOWANCE, || format!("payment {row} ran elsewhere after {time:?}"));
            run.check(|expected| Expected { drained: false, exact_tries: false, payments: None, ..expected })?;
        } else {
            thread::sleep(TIMEOUT + Duration::from_millis(500));
        }
        let before = ledger_rows(run, row)?;
        frozen.signal(Signal::CONT)?;
        if bound.is_none() {
            await_success(run, row)?;
        }
        other.await_start(PATIENCE)?;
        run.await_pending(0, PATIENCE)?;
        // The thawed process goes on working.
        other.shut_down(PATIENCE)?;
        run.enqueue(&(0..20).map(NewPayment::plain).collect::<Vec<_>>())?;
        run.await_pending(0, PATIENCE)?;
        frozen.shut_down(PATIENCE)?;
        let after = ledger_rows(run, row)?;
        if bound.is_some() {
            run.expect(before == 1 && after == 1, || format!("payment {row} is booked {before} times, then {after}"));
        } else {
            // The first attempt had exceeded its timeout, and only recorded that. The second attempt booked.
            let attempts = calls(&run.calls())?.iter().filter(|call| call.payment == row).count();
            run.expect(attempts > 1 && before == 0 && after == 1, || {
                format!("payment {row} was attempted {attempts} times and booked {before}, then {after} times")
            });
        }
    }
    run.number("freezes", freezes);
    run.number("ran_elsewhere_while_frozen", elsewhere);
    if let Some(bound) = bound {
        run.number("bound_ms", u64::try_from(bound.as_millis())?);
        run.number("slowest_elsewhere_ms", u64::try_from(slowest.as_millis())?);
    }
    run.check(|expected| Expected { exact_tries: false, ..expected })
}

/// Starts a process that freezes in the middle of an attempt. Returns it with the attempt's row.
fn freeze(run: &mut Run, recipe: &Recipe) -> Result<(Worker, i64)> {
    run.enqueue(&(0..8).map(NewPayment::plain).collect::<Vec<_>>())?;
    let point = match run.asked.mode {
        // After the call and before the transaction.
        Mode::Lease => "lease-called",
        _ => *run.random.choice(&["mid-handler", "effects", "sentinel", "released"]).context("there are some")?,
    };
    let at = Break::once(point, run.random.u64(1..5), Action::Stop);
    let worker = recipe.clone().workers(1).breaks([at]).start()?;
    let deadline = Instant::now() + PATIENCE;
    while !worker.said()?.iter().any(|said| matches!(said, Said::Reached { .. })) {
        ensure!(Instant::now() < deadline, "{point} was not reached: {}", worker.log());
        thread::sleep(Duration::from_millis(2));
    }
    // At `sentinel` the handler has not begun, so the last call may be another row's.
    let row = if point == "sentinel" { next_open(run)? } else { last_called(run, &worker)? };
    Ok((worker, row))
}

fn last_called(run: &Run, worker: &Worker) -> Result<i64> {
    let calls = calls(&run.calls())?;
    let last = calls.iter().rev().find(|call| call.process == worker.id()).context("it has called nobody")?;
    Ok(last.payment)
}

/// The row that is marked for crash accounting, or else the one that has been due longest.
fn next_open(run: &Run) -> Result<i64> {
    let next = "SELECT id AS n FROM payments WHERE next_attempt_time IS NOT NULL \
                ORDER BY last_attempt_error_message IS NULL, next_attempt_time, id LIMIT 1";
    Ok(run.session()?.count(next)?)
}

fn ledger_rows(run: &Run, row: i64) -> Result<i64> {
    Ok(run.session()?.count(&format!("SELECT COUNT(*) AS n FROM ledger WHERE payment_id = {row}"))?)
}

fn await_success(run: &Run, row: i64) -> Result<()> {
    let mut session = run.session()?;
    let done = format!("SELECT COUNT(*) AS n FROM payments WHERE id = {row} AND status = 'SUCCESS'");
    run.until("the frozen row runs elsewhere", PATIENCE, || Ok(session.count(&done)? == 1))
}
