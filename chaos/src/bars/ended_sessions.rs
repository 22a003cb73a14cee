//! Bar 4: the server ends all sessions of the workers, again and again.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::bank::{NewPayment, OLD_PAYMENTS};
use crate::bar::{Bar, Needs};
use crate::calls;
use crate::options::{Backend, Mode};
use crate::run::{Run, booked, pending};
use crate::session::{Dialect, Session};
use crate::worker::Worker;

pub(super) const BAR: Bar = Bar {
    number: 4,
    title: "the workers' sessions are terminated every 100 ms",
    backends: Backend::EACH_NETWORK_CLIENT,
    modes: Mode::ALL,
    server: Needs::Shared,
    measures: false,
    smoke_seconds: 9,
    run,
};

const PATIENCE: Duration = Duration::from_secs(60);
const EVERY: Duration = Duration::from_millis(100);
/// How many workers each process has.
const WORKERS: usize = 4;

fn run(run: &mut Run) -> Result<()> {
    let seconds = Duration::from_secs(run.times(3, 60));
    let recipe = run.recipe().workers(WORKERS);
    let mut pair = [recipe.start()?, recipe.start()?];
    for worker in &mut pair {
        worker.await_start(PATIENCE)?;
    }
    // The harness has no other session while it ends sessions: all others are the workers'.
    let mut session = run.session()?;
    let begun = Instant::now();
    let (mut rounds, mut ended) = (0_u64, 0);
    while begun.elapsed() < seconds {
        let round = Instant::now();
        ended += end_all_others(&mut *session)?;
        rounds += 1;
        if pending(&mut *session)? < 200 {
            run.enqueue_mixed(500)?;
        }
        thread::sleep(EVERY.saturating_sub(round.elapsed()));
    }
    let (before, last) = (booked(&mut *session)?, Instant::now());
    run.number("rounds", rounds);
    run.number("sessions_ended", ended);
    run.number("booked_meanwhile", before);
    ensure!(ended >= rounds, "only {ended} sessions were ended in {rounds} rounds");
    if pending(&mut *session)? == 0 {
        run.enqueue_mixed(100)?;
    }
    run.until("a payment is booked afterwards", PATIENCE, || Ok(booked(&mut *session)? > before))?;
    run.recovered_in(last.elapsed());
    run.await_pending(0, PATIENCE)?;
    expect_all_at_work(run, &mut pair)?;
    for worker in &mut pair {
        worker.shut_down(PATIENCE)?;
    }
    let used = format!(
        "SELECT CAST(COALESCE(SUM(try_count - fails - 1), 0) AS {}) AS n FROM payments
         WHERE id > {OLD_PAYMENTS} AND status = 'SUCCESS'",
        if run.dialect() == Dialect::Mysql { "SIGNED" } else { "BIGINT" }
    );
    // In transaction and group mode, the checker expects no additional tries. In lease mode, a lost lease uses one.
    run.number("tries_used", session.count(&used)?);
    run.drain(&recipe, PATIENCE)?;
    run.check(|expected| expected)
}

/// Ends all other sessions in this database, and returns how many there were.
fn end_all_others(session: &mut dyn Session) -> Result<u64> {
    if session.dialect() == Dialect::Postgres {
        let sql = "SELECT COUNT(pg_terminate_backend(pid)) AS n FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
        return Ok(u64::try_from(session.count(sql)?)?);
    }
    let others = "SELECT CAST(id AS CHAR) AS line FROM information_schema.processlist
        WHERE db = DATABASE() AND id <> CONNECTION_ID()";
    let mut ended = 0;
    for id in session.lines(others)? {
        // A session that has ended by itself cannot be killed.
        ended += u64::from(session.run(&format!("KILL {id}")).is_ok());
    }
    Ok(ended)
}

/// Checks that every worker still works: they handle as many slow payments at the same time as there are workers.
fn expect_all_at_work(run: &mut Run, pair: &mut [Worker; 2]) -> Result<()> {
    let workers = WORKERS * pair.len();
    let mut most = 0;
    // On a busy machine, the last worker may begin after the first has ended. A dead worker misses every time. A handler may
    // take ten seconds.
    for slow in ["slow 2500", "slow 5000", "slow 7000", "slow 7000", "slow 7000", "slow 7000"] {
        for worker in &mut *pair {
            ensure!(worker.ended()?.is_none(), "a process has ended: {}", worker.log());
        }
        let mut session = run.session()?;
        let (booked_before, called_before) = (booked(&mut *session)?, called(run)?);
        let mut at_once = 0;
        // One process at a time: a process takes several leases at once, and could keep rows from the other's idle workers.
        while at_once < workers && booked(&mut *session)? == booked_before {
            run.enqueue(&[NewPayment::plain(i64::try_from(at_once)?).kind(slow)])?;
            let deadline = Instant::now() + PATIENCE;
            while called(run)? == called_before + at_once && booked(&mut *session)? == booked_before {
                ensure!(Instant::now() < deadline, "no worker takes the payment; {}", run.said());
                thread::sleep(Duration::from_millis(5));
            }
            at_once = called(run)? - called_before;
            if booked(&mut *session)? == booked_before {
                most = most.max(at_once);
            }
        }
        run.await_pending(0, PATIENCE)?;
        if most >= workers {
            break;
        }
    }
    run.number("workers", workers);
    run.number("workers_alive", most);
    let said = run.said();
    run.expect(most >= workers, || format!("only {most} of {workers} workers are at work afterwards; {said}"));
    Ok(())
}

/// For how many payments the handlers made calls of the outside world. Whoever takes a lease over makes one more for the
/// same payment, which shows no further worker.
fn called(run: &Run) -> Result<usize> {
    let payments: BTreeSet<_> = calls::calls(&run.calls())?.into_iter().map(|call| call.payment).collect();
    Ok(payments.len())
}
