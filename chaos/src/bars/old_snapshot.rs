//! Bar 23: a transaction is held open for minutes, so that PostgreSQL may not remove the rows' old versions.
//!
//! Each attempt leaves an old version of its row in front of the index in which the claim looks for the next one.

use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use super::{Bar, Needs};
use crate::bank::COMPANIES;
use crate::latency::{Beat, Latencies, Stamped, millis, now, stamp, stamps};
use crate::options::{Backend, Mode};
use crate::plot::{Curve, Point};
use crate::run::Run;
use crate::session::Session;

pub(super) const BAR: Bar = Bar {
    number: 23,
    title: "a transaction is held open for minutes",
    backends: &[Backend::Postgres],
    modes: Mode::IN_TRANSACTION,
    server: Needs::Own,
    run,
};

const PATIENCE: Duration = Duration::from_secs(120);
/// How many rows are enqueued in a second.
const ROWS: f64 = 500.0;
/// How the p99 may grow.
const GROWTH: f64 = 10.0;
/// How long the p99 may take to recover.
const RECOVERY: Duration = Duration::from_secs(60);
/// What is too short to tell a slow claim from a machine that does other things too.
const GRAIN: Duration = Duration::from_millis(10);

fn run(run: &mut Run) -> Result<()> {
    let held = Duration::from_secs(run.times(8, 180));
    let beside = (held / 4).clamp(Duration::from_secs(3), Duration::from_secs(30));
    stamp(&mut *run.session()?)?;
    // What is measured is the claim and not the time until somebody looks.
    let mut recipe = run.recipe();
    recipe.options.poll_interval_ms = 5;
    let mut worker = recipe.start()?;
    worker.await_start(PATIENCE)?;

    let (began, made) = (Instant::now(), AtomicI64::new(0));
    let enqueue = |session: &mut dyn Session, _: usize, _: u64| {
        let owed = (began.elapsed().as_secs_f64() * ROWS) as i64 - made.load(Ordering::Relaxed);
        if owed > 0 {
            let row = |number| format!("({}, 5, 'plain', clock_timestamp())", number % COMPANIES + 1);
            let rows: Vec<_> = (0..owed).map(row).collect();
            let into = "INSERT INTO payments (company_id, amount_cents, kind, next_attempt_time) VALUES";
            session.run(&format!("{into} {}", rows.join(", ")))?;
            made.fetch_add(owed, Ordering::Relaxed);
        }
        Ok(())
    };
    let beat = Beat { threads: 1, pause: Duration::from_millis(10) };
    let (times, _) = beat.during(run.url(), enqueue, || hold(run, held, beside))?;
    run.count_enqueued(made.load(Ordering::Relaxed));
    run.await_pending(0, PATIENCE)?;
    worker.shut_down(PATIENCE)?;

    let rows = stamps(&mut *run.session()?, 0)?;
    judge(run, &times, &rows)?;
    run.check(|expected| expected)
}

/// By the database's clock, in seconds since 1970.
struct Times {
    /// When the machine had warmed up.
    began: f64,
    held: f64,
    released: f64,
}

/// Holds a snapshot for a time, with nothing else to do before, and time to recover after it.
fn hold(run: &Run, held: Duration, beside: Duration) -> Result<Times> {
    let mut session = run.session()?;
    let mut old = run.session()?;
    thread::sleep(Duration::from_secs(1));
    let began = now(&mut *session)?;
    thread::sleep(beside);
    // The transaction reads nothing of the queue: that it has a snapshot is enough.
    old.run("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
    old.count("SELECT COUNT(*) AS n FROM companies")?;
    let since = now(&mut *session)?;
    thread::sleep(held);
    let released = now(&mut *session)?;
    old.run("COMMIT")?;
    // The whole time that it may take for a release, so that the curve shows it.
    thread::sleep(if held > RECOVERY { RECOVERY + beside } else { beside });
    Ok(Times { began, held: since, released })
}

fn judge(run: &mut Run, times: &Times, rows: &[Stamped]) -> Result<()> {
    let p99_of = |from: f64, until: f64| {
        let between = rows.iter().filter(|row| (from..until).contains(&row.booked));
        between.map(Stamped::latency).collect::<Latencies>()
    };
    // The last quarter, when most old versions are there.
    let before = p99_of(times.began, times.held);
    let held = p99_of(times.released - (times.released - times.held) / 4.0, times.released);
    ensure!(before.count() > 100 && held.count() > 0, "too few rows were booked to tell anything");
    let usual = before.p99().max(GRAIN);
    let growth = held.p99().as_secs_f64() / usual.as_secs_f64();
    let last = rows.last().map_or(times.released, |row| row.booked);
    let is_usual = |second: &f64| {
        let latencies = p99_of(*second, second + 1.0);
        latencies.count() > 0 && latencies.p99() <= 2 * usual
    };
    let seconds = (0..).map(|second| times.released + f64::from(second)).take_while(|second| *second < last);
    let recovered = seconds.into_iter().find(is_usual).map(|second| second - times.released);

    run.number("before", before.summary());
    run.number("at_the_end_of_the_snapshot", held.summary());
    run.number("rows_per_second_at_the_end", (held.count() as f64 * 4.0 / (times.released - times.held)).round());
    run.number("p99_growth", (growth * 10.0).round() / 10.0);
    run.number("recovered_in_seconds", json!(recovered));
    let curve = curve(run, times, rows, p99_of);
    let name = format!("old-snapshot-{:?}", run.asked.mode).to_lowercase();
    let picture = curve.write(&run.asked.plots, &name)?;
    run.number("curve", picture.display().to_string());
    run.expect(growth < GROWTH, || {
        format!("the p99 grew {growth:.1} x, from {} to {} ms", millis(usual), millis(held.p99()))
    });
    let in_time = recovered.is_some_and(|seconds| seconds <= RECOVERY.as_secs_f64());
    run.expect(in_time, || format!("the p99 is not as before within {RECOVERY:?} after the transaction's end"));
    Ok(())
}

fn curve(run: &Run, times: &Times, rows: &[Stamped], between: impl Fn(f64, f64) -> Latencies) -> Curve {
    let start = times.began;
    let last = rows.last().map_or(start, |row| row.booked);
    let point = |second: u32| {
        let second = f64::from(second);
        let latencies = between(start + second, start + second + 1.0);
        let (p50, p99) = (latencies.percentile(0.5), latencies.p99());
        Point { second, rows: latencies.count() as f64, p50_ms: millis(p50), p99_ms: millis(p99) }
    };
    // The last second is not a whole one.
    let seconds = (last - start).max(0.0) as u32;
    Curve {
        title: format!("An old snapshot, {ROWS} rows per second enqueued, {:?} mode", run.asked.mode),
        points: (0..seconds).map(point).collect(),
        marked: (times.held - start..times.released - start, "a transaction holds an old snapshot"),
    }
}
