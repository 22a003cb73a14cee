//! Bar 13: workers whose clocks are wrong.
//!
//! Not on SQLite, where the process's clock is the database's clock by design.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use procfs::process::MMapPath;

use crate::bank::{NewPayment, OLD_PAYMENTS};
use crate::bar::{Bar, Needs};
use crate::latency::{stamp, stamps};
use crate::options::{Backend, Mode};
use crate::run::{Run, booked};
use crate::session::Session;
use crate::worker::{Recipe, Worker};

#[path = "../../../tests/program/faketime.rs"]
mod faketime;

pub(super) const BAR: Bar = Bar {
    number: 13,
    title: "a worker's clock is wrong",
    backends: Backend::SERVERS,
    modes: Mode::ALL,
    server: Needs::Shared,
    measures: false,
    smoke_seconds: 10,
    run,
};

const PATIENCE: Duration = Duration::from_secs(20);
/// The time between two jumps of a clock.
const BETWEEN_JUMPS: Duration = Duration::from_millis(100);
/// The bank's lease, in seconds.
const LEASE: i64 = 2;
/// How many times a planned failure is repeated, and the sum of the bank's backoffs until then, in seconds.
const FAILS: (i32, f64) = (3, 0.05 + 0.1 + 0.2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clock {
    Behind,
    Ahead,
    Jumping,
}

fn run(run: &mut Run) -> Result<()> {
    let mut session = run.session()?;
    stamp(&mut *session)?;
    let times = run.times(1, 20);
    let mut latest = 0.0f64;
    for _ in 0..times {
        for clock in [Clock::Behind, Clock::Ahead, Clock::Jumping] {
            latest = latest.max(works(run, &mut *session, clock)?);
        }
    }
    run.number("times", times);
    run.number("latest_ms_after_due", (latest * 1000.0).round());
    let in_an_hour = "UPDATE payments SET next_attempt_time = NULL, status = 'SKIPPED' WHERE note = 'in an hour'";
    session.run(in_an_hour)?;
    run.check(|expected| expected)
}

/// Lets a worker with such a clock work payments of every kind. Returns how late it was at most, in seconds.
fn works(run: &mut Run, session: &mut dyn Session, clock: Clock) -> Result<f64> {
    let last = session.count("SELECT MAX(id) AS n FROM payments")?;
    let file = run.directory.path().join("clock");
    let mut worker = start(&run.recipe(), clock, &file)?;
    let mut payments: Vec<_> = (0..30).map(NewPayment::plain).collect();
    payments.extend((30..40).map(|number| NewPayment::plain(number).fails(FAILS.0)));
    if run.asked.mode == Mode::Lease {
        // Longer than the lease, so that the worker must extend it.
        payments.push(NewPayment::plain(40).kind(format!("slow {}", LEASE * 1000 + 500)));
    }
    let due = payments.len() as i64 + 5;
    let before = booked(session)?;
    run.enqueue(&payments)?;
    schedule(run, session, "in a second", 1)?;
    schedule(run, session, "in an hour", 3600)?;

    // Makes the clock jump, and checks the leases meanwhile.
    let began = Instant::now();
    let (mut jumps, mut badly_leased) = (0, 0);
    while booked(session)? < before + due {
        ensure!(began.elapsed() < PATIENCE, "{clock:?}: not all due rows run; {}", run.said());
        if clock == Clock::Jumping {
            jumps += 1;
            jump(&file, ["-1d", "+0", "+1d", "+366d"][jumps % 4])?;
        }
        let too_far = format!(
            "SELECT COUNT(*) AS n FROM payments WHERE status = 'IN_PROGRESS' AND (next_attempt_time > {} OR
             next_attempt_time < {})",
            run.dialect().now_plus(LEASE + 1),
            // A lease may have ended before another worker takes the row. One that ended long ago came from a wrong clock.
            run.dialect().now_plus(-3)
        );
        badly_leased = badly_leased.max(session.count(&too_far)?);
        thread::sleep(BETWEEN_JUMPS);
    }
    run.expect(badly_leased == 0, || format!("{clock:?}: {badly_leased} rows were leased until a wrong time"));
    worker.shut_down(PATIENCE)?;
    look(run, session, clock, last)
}

/// Checks when the rows ran, by the database's clock. Returns how late a row was at most, in seconds.
fn look(run: &mut Run, session: &mut dyn Session, clock: Clock, last: i64) -> Result<f64> {
    let early = session.count(&format!(
        "SELECT COUNT(*) AS n FROM payments WHERE id > {OLD_PAYMENTS} AND note = 'in an hour' AND (status <> 'NOT_ATTEMPTED'
         OR try_count <> 0 OR next_attempt_time < {})",
        run.dialect().now_plus(3000)
    ))?;
    run.expect(early == 0, || format!("{clock:?}: {early} rows of the next hour were touched"));
    let id = run.dialect().text("id");
    let mut of = |condition: &str| -> Result<Vec<i64>> {
        let ids = session.lines(&format!("SELECT {id} AS line FROM payments WHERE id > {last} AND {condition}"))?;
        ids.iter().map(|id| Ok(id.parse()?)).collect()
    };
    let (failing, later, slow) = (of("fails > 0")?, of("note = 'in a second'")?, of("kind LIKE 'slow%'")?);
    let (mut latest, mut too_early) = (0.0f64, Vec::new());
    for row in stamps(session, last)? {
        let wait = row.booked - row.made;
        let least = match row.id {
            id if failing.contains(&id) => FAILS.1,
            id if later.contains(&id) => 1.0,
            id if slow.contains(&id) => continue,
            _ => 0.0,
        };
        latest = latest.max(wait - least);
        if wait < least - 0.01 {
            too_early.push(format!("payment {} after {wait:.3} s instead of {least:.3} s", row.id));
        }
    }
    run.expect(too_early.is_empty(), || format!("{clock:?}: {} ran too early: {}", too_early.len(), too_early[0]));
    let tries = session.count(&format!(
        "SELECT COUNT(*) AS n FROM payments WHERE id > {last} AND kind LIKE 'slow%' AND try_count <> 1"
    ))?;
    run.expect(tries == 0, || format!("{clock:?}: a lease was lost that had only to be extended"));
    Ok(latest)
}

/// Makes five payments that are due in so many seconds, by the database's clock.
fn schedule(run: &mut Run, session: &mut dyn Session, note: &str, seconds: i64) -> Result<()> {
    let due = run.dialect().now_plus(seconds);
    let rows = vec![format!("(1, 5, 'plain', '{note}', {due})"); 5].join(", ");
    session.run(&format!(
        "INSERT INTO payments (company_id, amount_cents, kind, note, next_attempt_time) VALUES {rows}"
    ))?;
    run.count_enqueued(5);
    Ok(())
}

/// Starts a worker with such a clock. Its monotonic clock stays right, because no system ever sets that one.
fn start(recipe: &Recipe, clock: Clock, file: &Path) -> Result<Worker> {
    let library = faketime::library().context(faketime::MISSING)?;
    let recipe = recipe.clone().variable("LD_PRELOAD", library.to_string_lossy()).variable("DONT_FAKE_MONOTONIC", "1");
    let recipe = match clock {
        Clock::Behind => recipe.variable("FAKETIME", "-1d"),
        Clock::Ahead => recipe.variable("FAKETIME", "+1d"),
        Clock::Jumping => {
            jump(file, "+0")?;
            recipe.variable("FAKETIME_TIMESTAMP_FILE", file.to_string_lossy()).variable("FAKETIME_NO_CACHE", "1")
        }
    };
    let mut worker = recipe.start()?;
    worker.await_start(PATIENCE)?;
    // Without the preloaded library, this bar would always pass.
    let loaded = MMapPath::Path(library.canonicalize()?);
    let is_loaded = worker.process()?.maps()?.iter().any(|map| map.pathname == loaded);
    ensure!(is_loaded, "the worker's clock is right: {} was not loaded", library.display());
    Ok(worker)
}

/// Sets the jumping clock. A rename replaces its file, so that no reader finds half of it.
fn jump(file: &Path, offset: &str) -> Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, format!("{offset}\n"))?;
    Ok(fs::rename(new, file)?)
}
