//! Bar 2: a process is killed at every fail point; in a release's run, processes are frozen and delayed there too.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::process::Signal;

use crate::bank::NewPayment;
use crate::bar::{Bar, Needs};
use crate::checker::Expected;
use crate::options::{Action, Backend, Break, Mode, Terms};
use crate::proxy::Proxy;
use crate::run::{Run, Scale, pending};
use crate::session::Dialect;
use crate::worker::{self, Recipe, Said, Worker};

pub(super) const BAR: Bar = Bar {
    number: 2,
    title: "every fail point",
    backends: Backend::EACH_CLIENT,
    modes: Mode::ALL,
    server: Needs::Shared,
    measures: false,
    smoke_seconds: 8,
    run,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// How many processes run to their fail points at the same time.
const AT_ONCE: usize = 3;

/// The fail points that every mode passes, from the handler to the commit or to a failure.
const POINTS: &[&str] = &[
    "sentinel",
    "mid-handler",
    "effects",
    "releasing",
    "released",
    "settled",
    "committing",
    "committed",
    "recording",
    "recorded",
];
/// Not a fail point of the library, but of the proxy. SQLite has no proxy.
const COMMIT_SENT: &str = "commit sent";
const IN_TRANSACTION: &[&str] = &["claimed"];
/// The fail points where the statements that end a message also lock the next row.
const AHEAD: &[&str] = &["claimed", "next-locked"];
const UNDER_A_LEASE: &[&str] =
    &["lease-claimed", "lease-called", "lease-locked", "lease-applied", "lease-expired", "heartbeat", "heartbeat-sent"];

fn run(run: &mut Run) -> Result<()> {
    let special = match (run.asked.mode, run.dialect()) {
        (Mode::Lease, _) => UNDER_A_LEASE,
        (Mode::Transaction, Dialect::Postgres) => AHEAD,
        _ => IN_TRANSACTION,
    };
    let mut points: Vec<_> = POINTS.iter().chain(special).copied().collect();
    let recipe = match run.asked.mode {
        Mode::Lease => run.recipe().terms(Terms::Hasty),
        _ => run.recipe(),
    };
    let mut hits = BTreeMap::new();
    for _ in 0..run.times(1, 20) {
        run.random.shuffle(&mut points);
        for some in points.chunks(AT_ONCE) {
            for point in kill_at(run, &recipe, some)? {
                *hits.entry(point).or_insert(0) += 1;
            }
        }
        if run.dialect() != Dialect::Sqlite {
            kill_at_commit(run, &recipe)?;
            *hits.entry(COMMIT_SENT).or_insert(0) += 1;
        }
        // No process works now. Rows of killed processes may still wait; everything else must hold.
        run.check(|expected| Expected { drained: false, may_be_set_aside: true, ..expected })?;
    }
    if run.asked.scale != Scale::Smoke {
        for point in &points {
            for action in [Action::Stop, Action::Wait] {
                hold_at(run, &recipe, point, action)?;
                *hits.entry(*point).or_insert(0) += 1;
            }
        }
    }
    run.number("hits", hits.values().sum::<u64>());
    run.number("hits_by_point", serde_json::to_value(&hits)?);
    run.drain(&recipe, PATIENCE)?;
    run.check_after_kills(2 + hits.values().sum::<u64>() / 10)
}

/// Kills a process at each of these points, and returns the points that were reached.
fn kill_at<'p>(run: &mut Run, recipe: &Recipe, points: &[&'p str]) -> Result<Vec<&'p str>> {
    let mut workers = Vec::new();
    for point in points {
        if *point == "lease-expired" {
            // A dead process has to leave a lease behind.
            let mut dead = start(run, recipe, "lease-called", Action::Kill)?;
            await_ends(run, std::slice::from_mut(&mut dead))?;
        }
        workers.push(start(run, recipe, point, Action::Kill)?);
    }
    await_ends(run, &mut workers)?;
    let mut reached = Vec::new();
    for (point, mut worker) in points.iter().zip(workers) {
        let status = worker.await_end(PATIENCE)?;
        let killed = status.signal() == Some(Signal::KILL.as_raw());
        if killed && has_reached(&worker, point)? {
            reached.push(*point);
        } else {
            run.fault(format!("{point} was not reached: the process ended with {status}; {}", worker.log()));
        }
    }
    Ok(reached)
}

/// Kills a process after the server got its COMMIT and before the answer arrives: only a proxy knows that moment.
fn kill_at_commit(run: &mut Run, recipe: &Recipe) -> Result<()> {
    replenish(run)?;
    let proxy = Proxy::start(run.url())?;
    let mut worker = recipe.clone().url(proxy.url_for(run.url())).start()?;
    let fatal = run.random.u64(2..50);
    let id = worker.id();
    let was_killed = Arc::new(AtomicBool::new(false));
    let killed = was_killed.clone();
    proxy.on_commit(move |commit| {
        if commit == fatal {
            killed.store(worker::kill(id).is_ok(), Ordering::Relaxed);
        }
    });
    await_ends(run, std::slice::from_mut(&mut worker))?;
    let status = worker.await_end(PATIENCE)?;
    ensure!(
        was_killed.load(Ordering::Relaxed) && status.signal() == Some(Signal::KILL.as_raw()),
        "{COMMIT_SENT} was not reached: the process ended with {status}"
    );
    Ok(())
}

/// Holds a process up at a point, and shuts it down in good order afterwards.
fn hold_at(run: &mut Run, recipe: &Recipe, point: &str, action: Action) -> Result<()> {
    if point == "lease-expired" {
        let mut dead = start(run, recipe, "lease-called", Action::Kill)?;
        await_ends(run, std::slice::from_mut(&mut dead))?;
    }
    // All payments beforehand: on SQLite, nothing can be enqueued while a process is frozen in a transaction.
    enqueue(run)?;
    let mut worker = start(run, recipe, point, action)?;
    let deadline = Instant::now() + PATIENCE;
    while !has_reached(&worker, point)? {
        ensure!(worker.ended()?.is_none() && Instant::now() < deadline, "{point} was not reached: {}", worker.log());
        thread::sleep(Duration::from_millis(5));
    }
    thread::sleep(Duration::from_millis(run.random.u64(50..500)));
    worker.signal(Signal::CONT)?;
    worker.shut_down(PATIENCE)?;
    Ok(())
}

fn start(run: &mut Run, recipe: &Recipe, point: &str, action: Action) -> Result<Worker> {
    replenish(run)?;
    // The suspects of the last kill run first, each alone: kills at early passes would hit them again and again.
    let pass = match (point, run.asked.mode) {
        ("lease-expired", _) => 1,
        ("recording" | "recorded" | "heartbeat" | "heartbeat-sent", _) => run.random.u64(1..6),
        ("claimed" | "settled" | "committing" | "committed", Mode::Group) => run.random.u64(2..20),
        _ => run.random.u64(2..50),
    };
    recipe.clone().breaks([Break::once(point, pass, action)]).start()
}

/// Waits until all have ended. Kills a process that lives too long, which then has not reached its point.
fn await_ends(run: &mut Run, workers: &mut [Worker]) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    for worker in workers {
        while worker.ended()?.is_none() {
            if Instant::now() > deadline {
                worker.kill()?;
            }
            replenish(run)?;
            thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}

/// Keeps enough payments pending. Some calls last nearly as long as a hasty lease, so that the heartbeat has work too.
fn replenish(run: &mut Run) -> Result<()> {
    if pending(&mut *run.session()?)? < 200 {
        enqueue(run)?;
    }
    Ok(())
}

fn enqueue(run: &mut Run) -> Result<()> {
    if run.asked.mode == Mode::Lease {
        let slow: Vec<_> = (0..30).map(|number| NewPayment::plain(number).kind("slow 200")).collect();
        run.enqueue(&slow)?;
    }
    run.enqueue_mixed(300)
}

fn has_reached(worker: &Worker, point: &str) -> Result<bool> {
    Ok(worker.said()?.iter().any(|said| matches!(said, Said::Reached { point: reached } if reached == point)))
}
