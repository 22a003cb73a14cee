//! Bar 23: a transaction is held open for minutes, so that PostgreSQL may not remove the rows' old versions.
//!
//! Each attempt leaves an old version of its row in front of the index in which the claim looks for the next one.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use crate::bank::COMPANIES;
use crate::bar::{Bar, Needs};
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
    measures: true,
    smoke_seconds: 15,
    run,
};

/// Long enough to work the rows that pile up while the snapshot is held.
const PATIENCE: Duration = Duration::from_secs(900);
/// How many rows are enqueued in a second.
const ROWS: f64 = 500.0;
/// How long the run warms up before it is measured.
const WARMING: Duration = Duration::from_secs(1);
/// The factor by which the p99 of a claim may grow.
const GROWTH: f64 = 10.0;
/// How long the claims may take to recover.
const RECOVERY: Duration = Duration::from_secs(60);
/// Shorter times do not tell a slow claim from a busy machine: in a short run, in which a single stall is the p99, and in a
/// long one.
const GRAINS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(1)];
const LONG: Duration = Duration::from_secs(60);
/// One in this many claims begins at the earliest due time, as without the low-water mark, for comparison.
const ONE_IN: u64 = 20;

/// A claim that begins at the low-water mark, as in `tests/suite/snapshots/postgres_attempt.snap`. It returns when its row
/// was due, which is the next mark. The row is given back at once, and workers pass over it meanwhile.
fn claim_from(mark: i64) -> String {
    format!(
        "SELECT COALESCE(MAX(due), 0) AS n FROM (
            SELECT CAST(EXTRACT(EPOCH FROM next_attempt_time) * 1000000 AS bigint) AS due FROM payments
            WHERE next_attempt_time <= statement_timestamp() AND status IN
                ('NOT_ATTEMPTED', 'IN_PROGRESS', 'SUCCESS', 'ERROR', 'FAILED', 'SKIPPED')
                AND next_attempt_time >= TIMESTAMPTZ 'epoch' + {mark} * INTERVAL '1 microsecond'
            ORDER BY next_attempt_time LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) AS claimed"
    )
}

fn run(run: &mut Run) -> Result<()> {
    let held = Duration::from_secs(run.times(8, 180));
    let beside = (held / 4).clamp(Duration::from_secs(2), Duration::from_secs(30));
    stamp(&mut *run.session()?)?;
    // A short interval, because the claim is measured and not the time until the next poll.
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
    let (claims, full_claims) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let mark = AtomicI64::new(0);
    let claim = |session: &mut dyn Session, _: usize, turn: u64| {
        let is_full = turn.is_multiple_of(ONE_IN);
        let claimed = Instant::now();
        session.run("BEGIN")?;
        let due = session.count(&claim_from(if is_full { 0 } else { mark.load(Ordering::Relaxed) }))?;
        session.run("ROLLBACK")?;
        let claim = (claimed.duration_since(began).as_secs_f64(), claimed.elapsed());
        if !is_full {
            mark.fetch_max(due, Ordering::Relaxed);
        }
        let claims = if is_full { &full_claims } else { &claims };
        claims.lock().expect("no thread panics with it").push(claim);
        Ok(())
    };
    let (enqueuer, claimer) = (every(10), every(50));
    let ((times, _), _) =
        enqueuer.during(run.url(), enqueue, || claimer.during(run.url(), claim, || hold(run, began, held, beside)))?;
    run.count_enqueued(made.load(Ordering::Relaxed));
    let backlog = Instant::now();
    run.await_pending(0, PATIENCE)?;
    run.number("backlog_worked_in_seconds", backlog.elapsed().as_secs());
    worker.shut_down(PATIENCE)?;

    let [claims, full_claims] =
        [claims, full_claims].map(|claims| claims.into_inner().expect("no thread panics with it"));
    let rows = stamps(&mut *run.session()?, 0)?;
    judge(run, &times, &Seen { claims, full_claims, rows })?;
    run.check(|expected| expected)
}

fn every(millis: u64) -> Beat {
    Beat { threads: 1, pause: Duration::from_millis(millis) }
}

/// Times in seconds since the run's beginning.
struct Times {
    held: f64,
    released: f64,
    ended: f64,
    /// The database's time at the beginning.
    origin: f64,
}

/// Holds a snapshot for a while, with quiet times before it and, to recover, after it.
fn hold(run: &Run, began: Instant, held: Duration, beside: Duration) -> Result<Times> {
    let mut old = run.session()?;
    let origin = now(&mut *old)? - began.elapsed().as_secs_f64();
    let so_far = || began.elapsed().as_secs_f64();
    thread::sleep(WARMING + beside);
    // The transaction does not read the queue. Its snapshot is enough.
    old.run("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
    old.count("SELECT COUNT(*) AS n FROM companies")?;
    let since = so_far();
    thread::sleep(held);
    let released = so_far();
    old.run("COMMIT")?;
    // In a release's run, all the time that the recovery may take, so that the curve shows it.
    thread::sleep(if held > LONG { RECOVERY } else { beside });
    Ok(Times { held: since, released, ended: so_far(), origin })
}

struct Seen {
    /// When a claim began, in seconds since the run's beginning, and how long it took.
    claims: Vec<(f64, Duration)>,
    /// The same for claims that begin at the earliest due time.
    full_claims: Vec<(f64, Duration)>,
    rows: Vec<Stamped>,
}

impl Seen {
    fn claims(&self, from: f64, until: f64) -> Latencies {
        between(&self.claims, from, until)
    }

    fn booked(&self, times: &Times, from: f64, until: f64) -> Latencies {
        let between = self.rows.iter().filter(|row| (from..until).contains(&(row.booked - times.origin)));
        between.map(Stamped::latency).collect()
    }
}

fn between(claims: &[(f64, Duration)], from: f64, until: f64) -> Latencies {
    let between = claims.iter().filter(|(began, _)| (from..until).contains(began));
    between.map(|(_, took)| *took).collect()
}

fn judge(run: &mut Run, times: &Times, seen: &Seen) -> Result<()> {
    let held = times.released - times.held;
    // The last quarter, when there are the most old versions.
    let late = times.released - held / 4.0;
    let (before, at_the_end) = (seen.claims(WARMING.as_secs_f64(), times.held), seen.claims(late, times.released));
    ensure!(before.count() > 10 && at_the_end.count() > 0, "too few claims to tell anything");
    let (short, long) = (GRAINS[1], GRAINS[usize::from(held > LONG.as_secs_f64())]);
    // On a busy machine, stalls hide the cost of a claim in the p99, and the median shows it. The larger growth counts.
    let usual = [before.percentile(0.5).max(short), before.p99().max(long)];
    let grown = [at_the_end.percentile(0.5), at_the_end.p99()];
    let [p50_growth, p99_growth] = [0, 1].map(|it| grown[it].as_secs_f64() / usual[it].as_secs_f64());
    // The p99 of a short run is its longest claim, which shows the machine and not the queue.
    let growth = if held > LONG.as_secs_f64() { p50_growth.max(p99_growth) } else { p50_growth };
    let seconds = (0..).map(f64::from).take_while(|second| times.released + second + 1.0 <= times.ended);
    let is_usual = |second: &f64| {
        let claims = seen.claims(times.released + second, times.released + second + 1.0);
        claims.count() > 0 && claims.percentile(0.5) <= 2 * usual[0] && claims.p99() <= 2 * usual[1]
    };
    let recovered = seconds.into_iter().find(is_usual);

    run.number("claims_before", before.summary());
    run.number("claims_at_the_end_of_the_snapshot", at_the_end.summary());
    run.number("full_claims_at_the_end_of_the_snapshot", between(&seen.full_claims, late, times.released).summary());
    run.number("claim_p50_growth", (p50_growth * 10.0).round() / 10.0);
    run.number("claim_p99_growth", (p99_growth * 10.0).round() / 10.0);
    run.number("recovered_in_seconds", json!(recovered));
    let (first, last) =
        (seen.booked(times, WARMING.as_secs_f64(), times.held), seen.booked(times, late, times.released));
    run.number("rows_per_second_before", (first.count() as f64 / (times.held - WARMING.as_secs_f64())).round());
    run.number("rows_per_second_at_the_end_of_the_snapshot", (last.count() as f64 * 4.0 / held).round());
    run.number("booked_before", first.summary());
    run.number("booked_at_the_end_of_the_snapshot", last.summary());
    let name = format!("old-snapshot-{:?}", run.asked.mode).to_lowercase();
    let picture = curve(run, times, seen).write(&run.asked.plots, &name)?;
    // The effect on the worker itself.
    let booked_growth = last.p99().as_secs_f64() / first.p99().max(long).as_secs_f64();
    run.number("booked_p99_growth", (booked_growth * 10.0).round() / 10.0);
    run.number("curve", picture.display().to_string());
    run.expect(growth < GROWTH, || {
        let [before, at_the_end] = [usual, grown].map(|pair| pair.map(millis));
        format!("a claim grew {growth:.1} x, p50 and p99 from {before:?} to {at_the_end:?} ms, the bound is {GROWTH} x")
    });
    run.expect(booked_growth < GROWTH || held < LONG.as_secs_f64(), || {
        format!("the p99 until a row is booked grew {booked_growth:.1} x, the bound is {GROWTH} x")
    });
    // A short run measures for only a few seconds, and cannot tell.
    run.expect(recovered.is_some() || held < LONG.as_secs_f64(), || {
        format!("a claim is not as before within {RECOVERY:?} after the transaction's end")
    });
    Ok(())
}

fn curve(run: &Run, times: &Times, seen: &Seen) -> Curve {
    let point = |second: u32| {
        let second = f64::from(second);
        let (claims, booked) = (seen.claims(second, second + 1.0), seen.booked(times, second, second + 1.0));
        let (claim_ms, booked_ms) = (millis(claims.p99()), millis(booked.p99()));
        Point { second, rows: booked.count() as f64, claim_ms, booked_ms }
    };
    Curve {
        title: format!("An old snapshot, {ROWS} rows per second enqueued, {:?} mode", run.asked.mode),
        points: (1..times.ended as u32).map(point).collect(),
        marked: (times.held..times.released, "a transaction holds an old snapshot"),
    }
}
