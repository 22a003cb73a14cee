//! Bar 35: rows are committed late, beside a backlog, an old snapshot, and locks of the whole table.

use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::bank::COMPANIES;
use crate::bar::{Bar, Needs};
use crate::latency::{Beat, Latencies, stamp, stamps};
use crate::options::{Backend, Mode};
use crate::run::Run;
use crate::session::{Dialect, Session};

pub(super) const BAR: Bar = Bar {
    number: 35,
    title: "rows are committed late, beside a backlog and table locks",
    backends: Backend::SERVERS,
    modes: Mode::ALL,
    server: Needs::Own,
    measures: true,
    smoke_seconds: 12,
    run,
};

const PATIENCE: Duration = Duration::from_secs(300);
/// How many rows are enqueued in a second.
const ROWS: f64 = 400.0;
/// When a late row is due, in seconds from its insert.
const LATE_BY: i64 = -60;
/// How long each lock of the table lasts, and how often it is taken.
const LOCKED: Duration = Duration::from_millis(900);
const LOCKED_EVERY: Duration = Duration::from_secs(4);
/// How long a late row may wait, besides a lock of the table: in a smoke run, on a busy machine, and for a release. Before a
/// fix it was up to 26 seconds.
const BOUNDS: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(2)];

fn run(run: &mut Run) -> Result<()> {
    let seconds = run.times(6, 120);
    stamp(&mut *run.session()?)?;
    let mut worker = run.recipe().start()?;
    worker.await_start(PATIENCE)?;
    let (began, made, late) = (Instant::now(), AtomicI64::new(0), AtomicI64::new(0));
    let insert = |session: &mut dyn Session, count: i64, note: &str, due: &str| {
        let row = |number| format!("({}, 5, 'plain', '{note}', {due})", number % COMPANIES + 1);
        let rows: Vec<_> = (0..count).map(row).collect();
        let into = "INSERT INTO payments (company_id, amount_cents, kind, note, next_attempt_time) VALUES";
        session.run(&format!("{into} {}", rows.join(", ")))
    };
    let enqueue = |session: &mut dyn Session, _: usize, _: u64| {
        let owed = (began.elapsed().as_secs_f64() * ROWS) as i64 - made.load(Ordering::Relaxed);
        if owed > 0 {
            let now = session.dialect().now_plus(0);
            insert(session, owed, "", &now)?;
            made.fetch_add(owed, Ordering::Relaxed);
        }
        Ok(())
    };
    let come_late = |session: &mut dyn Session, _: usize, _: u64| {
        let due = session.dialect().now_plus(LATE_BY);
        insert(session, 1, "late", &due)?;
        late.fetch_add(1, Ordering::Relaxed);
        Ok(())
    };
    let every = |millis| Beat { threads: 1, pause: Duration::from_millis(millis) };
    let (locks, _) = every(10)
        .during(run.url(), enqueue, || {
            every(300).during(run.url(), come_late, || shake(run, Duration::from_secs(seconds)))
        })?
        .0;
    run.count_enqueued(made.load(Ordering::Relaxed) + late.load(Ordering::Relaxed));
    run.await_pending(0, PATIENCE)?;
    worker.shut_down(PATIENCE)?;

    let mut session = run.session()?;
    let id = session.dialect().text("id");
    let late = session.lines(&format!("SELECT {id} AS line FROM payments WHERE note = 'late'"))?;
    let late = late.iter().map(|id| Ok(id.parse()?)).collect::<Result<std::collections::BTreeSet<i64>>>()?;
    let rows = stamps(&mut *session, 0)?;
    let late: Latencies = rows.iter().filter(|row| late.contains(&row.id)).map(|row| row.latency()).collect();
    run.number("table_locks", locks);
    run.number("late_rows_booked", late.summary());
    let bound = BOUNDS[usize::from(seconds >= 60)] + LOCKED;
    run.expect(late.max() <= bound, || format!("a late row waited {:?}, the bound is {bound:?}", late.max()));
    run.check(|expected| expected)
}

/// Holds an old snapshot, so that the entries of settled rows stay in the index, and locks the table now and then. Returns
/// the number of locks.
fn shake(run: &Run, time: Duration) -> Result<u64> {
    let (mut old, mut locker) = (run.session()?, run.session()?);
    let dialect = old.dialect();
    old.run(match dialect {
        Dialect::Mysql => "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION WITH CONSISTENT SNAPSHOT",
        Dialect::Postgres | Dialect::Sqlite => "BEGIN ISOLATION LEVEL REPEATABLE READ",
    })?;
    old.count("SELECT COUNT(*) AS n FROM companies")?;
    let (lock, unlock) = match dialect {
        Dialect::Mysql => ("LOCK TABLES payments WRITE", "UNLOCK TABLES"),
        Dialect::Postgres | Dialect::Sqlite => ("BEGIN; LOCK TABLE payments IN ACCESS EXCLUSIVE MODE", "COMMIT"),
    };
    let (began, mut locks) = (Instant::now(), 0);
    while began.elapsed() < time {
        thread::sleep(LOCKED_EVERY / 2);
        locker.run(lock)?;
        thread::sleep(LOCKED);
        locker.run(unlock)?;
        locks += 1;
        thread::sleep(LOCKED_EVERY / 2);
    }
    old.run("COMMIT")?;
    Ok(locks)
}
