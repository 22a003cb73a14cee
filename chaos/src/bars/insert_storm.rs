//! Bar 19: the application inserts single rows in a storm while many workers claim, on MariaDB.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use diesel::result::Error;

use crate::bank::COMPANIES;
use crate::bar::{Bar, Needs};
use crate::latency::{Beat, Latencies, millis};
use crate::options::{Backend, Mode};
use crate::run::{Run, booked};
use crate::session::Session;

pub(super) const BAR: Bar = Bar {
    number: 19,
    title: "16 workers and an insert storm",
    backends: &[Backend::Mariadb],
    modes: Mode::ALL,
    server: Needs::Shared,
    measures: true,
    smoke_seconds: 10,
    run,
};

const PATIENCE: Duration = Duration::from_secs(300);
const BOUND: Duration = Duration::from_millis(50);
/// How long the bar holds a lock to check that it notices waiting inserts.
const HELD: Duration = Duration::from_millis(700);
/// The note of rows that no worker is to run.
const NOT_DUE: &str = "not due";
const STORM: Beat = Beat { threads: 4, pause: Duration::from_millis(4) };

fn run(run: &mut Run) -> Result<()> {
    let time = Duration::from_secs(run.times(3, 60));
    let nothing_else = || {
        thread::sleep(time / 3);
        Ok(())
    };
    let before = storm(run, nothing_else)?;
    run.count_enqueued(before.inserts.count() as i64);
    sees_locks(run)?;

    // Two processes, because the workers of one process might coordinate.
    let recipe = run.recipe().workers(8);
    let mut pair = [recipe.start()?, recipe.start()?];
    for worker in &mut pair {
        worker.await_start(PATIENCE)?;
    }
    let mut session = run.session()?;
    let beside_workers = storm_beside_workers(run, &mut *session, time)?;
    let beside_workers = again_if_blocked(run, &mut *session, beside_workers, time)?;
    let not_due = session.change(&format!("DELETE FROM payments WHERE note = '{NOT_DUE}'"))?;
    run.count_enqueued(-(not_due as i64));
    run.await_pending(0, PATIENCE)?;
    for worker in &mut pair {
        worker.shut_down(PATIENCE)?;
    }
    run.number("inserts_without_workers", before.inserts.summary());
    run.number("inserts", beside_workers.inserts.summary());
    run.number("booked_during_the_storm", beside_workers.came_of_it);
    run.number("lock_waits", beside_workers.lock_waits.summary());
    // The bound is not for the latency of all inserts: on a busy machine it only shows how busy the machine is.
    let longest = beside_workers.lock_waits.max();
    run.expect(longest <= BOUND, || format!("an insert waited {} ms for a lock", millis(longest)));
    run.expect(beside_workers.came_of_it > 0, || "nothing was booked during the storm".to_owned());
    run.check(|expected| expected)
}

fn storm_beside_workers(run: &mut Run, session: &mut dyn Session, time: Duration) -> Result<Storm<i64>> {
    let before = booked(session)?;
    let seen = storm(run, || {
        thread::sleep(time);
        Ok(booked(session)? - before)
    })?;
    run.count_enqueued(seen.inserts.count() as i64);
    Ok(seen)
}

/// Repeats the storm, at most twice, while an insert has waited for too long: a lock of the queue is there every time, a
/// stall of the machine is not. Returns the best storm.
fn again_if_blocked(run: &mut Run, session: &mut dyn Session, first: Storm<i64>, time: Duration) -> Result<Storm<i64>> {
    let mut best = first;
    for _ in 0..2 {
        if best.lock_waits.max() <= BOUND {
            break;
        }
        let seen = storm_beside_workers(run, session, time)?;
        if seen.lock_waits.max() < best.lock_waits.max() {
            best = seen;
        }
    }
    Ok(best)
}

/// Makes sure that the storm notices a lock in the inserts' way. Otherwise the later measurements would show nothing.
fn sees_locks(run: &mut Run) -> Result<()> {
    let mut session = run.session()?;
    let storm = storm(run, || {
        session.run("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; BEGIN")?;
        session.lines("SELECT note AS line FROM payments WHERE next_attempt_time > '2000-01-01' FOR UPDATE")?;
        // Long enough for an insert to meet the lock on a busy machine too.
        thread::sleep(HELD);
        Ok(session.run("ROLLBACK")?)
    })?;
    run.count_enqueued(storm.inserts.count() as i64);
    let longest = storm.lock_waits.max();
    ensure!(longest > BOUND, "a lock was held for {HELD:?}, and the longest wait was {longest:?}");
    Ok(())
}

struct Storm<T> {
    inserts: Latencies,
    /// The inserts that met a lock, with the time that each took from then on.
    lock_waits: Latencies,
    came_of_it: T,
}

/// Inserts payments, half of them due, until `meanwhile` is over.
///
/// The server does not report how long a session waits for locks, and its list of waiting sessions is a tenth of a second
/// old. So each insert first runs without waiting, and fails at once if it meets a lock. Then it runs again and waits, and
/// that time is for a lock and nothing else.
fn storm<T>(run: &Run, meanwhile: impl FnOnce() -> Result<T>) -> Result<Storm<T>> {
    let waits = Mutex::new(Vec::new());
    let insert = |session: &mut dyn Session, thread: usize, pass: u64| -> Result<()> {
        if pass == 0 {
            session.run("SET SESSION innodb_lock_wait_timeout = 0")?;
        }
        let company = (thread as i64 * 5 + pass as i64) % COMPANIES + 1;
        // Rows that are not due have other places in the queue's index. Some handlers take longer than the bound of a wait.
        let (kind, note, due) = match pass % 40 {
            place if place % 4 == 1 => ("plain", NOT_DUE, "NULL"),
            place if place % 4 == 3 => ("plain", NOT_DUE, "UTC_TIMESTAMP(6) + INTERVAL 1 HOUR"),
            0 => ("slow 100", "", "UTC_TIMESTAMP(6)"),
            _ => ("plain", "", "UTC_TIMESTAMP(6)"),
        };
        let sql = format!(
            "INSERT INTO payments (company_id, amount_cents, kind, note, next_attempt_time)
             VALUES ({company}, 5, '{kind}', '{note}', {due})"
        );
        let met = Instant::now();
        match session.run(&sql) {
            Err(Error::DatabaseError(_, information)) if information.message().contains("Lock wait timeout") => {
                session.run(&format!("SET STATEMENT innodb_lock_wait_timeout = 20 FOR {sql}"))?;
                waits.lock().expect("no thread panics with it").push(met.elapsed());
                Ok(())
            }
            inserted => Ok(inserted?),
        }
    };
    let (came_of_it, inserts) = STORM.during(run.url(), insert, meanwhile)?;
    let lock_waits = waits.into_inner().expect("no thread panics with it").into_iter().collect();
    Ok(Storm { inserts, lock_waits, came_of_it })
}
