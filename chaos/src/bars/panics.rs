//! Bar 8: handlers that panic. Their process lives on, and leaks nothing.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use crate::bank::NewPayment;
use crate::bar::{Bar, Needs};
use crate::checker::Expected;
use crate::options::{Backend, Mode};
use crate::run::{Run, booked, pending};
use crate::session::Session;
use crate::worker::Worker;

pub(super) const BAR: Bar = Bar {
    number: 8,
    title: "panics in a tenth of the rows",
    backends: Backend::EACH_CLIENT,
    modes: Mode::ALL,
    server: Needs::Shared,
    measures: false,
    smoke_seconds: 4,
    run,
};

const PATIENCE: Duration = Duration::from_secs(60);

fn run(run: &mut Run) -> Result<()> {
    let rows = i64::try_from(run.times(600, 20_000))?;
    let mut session = run.session()?;
    let mut worker = run.recipe().start()?;
    worker.await_start(PATIENCE)?;
    // By now every worker has opened its session, and no handler has panicked.
    run.enqueue(&(0..8).map(|number| NewPayment::plain(number).kind("slow 150")).collect::<Vec<_>>())?;
    run.enqueue(&(0..100).map(NewPayment::plain).collect::<Vec<_>>())?;
    run.await_pending(0, PATIENCE)?;
    let before = Holdings::of(&worker, &mut *session)?;
    let panicking = |number: i64| {
        let payment = NewPayment::plain(number);
        if number % 10 == 3 { payment.kind("panics").fails(1) } else { payment }
    };
    run.enqueue(&(0..rows).map(panicking).collect::<Vec<_>>())?;
    let mut most = before;
    let mut last = 0;
    let mut patience = Instant::now() + PATIENCE;
    while pending(&mut *session)? > 0 {
        most = most.most(Holdings::of(&worker, &mut *session)?);
        let now = booked(&mut *session)?;
        if now > last {
            (last, patience) = (now, Instant::now() + PATIENCE);
        }
        ensure!(Instant::now() < patience, "nothing is booked any more; {}", run.said());
        thread::sleep(Duration::from_millis(20));
    }
    let lives = worker.ended()?.is_none();
    run.expect(lives, || "the process ended".to_owned());
    // A closed session disappears from the server's list after a while.
    let mut after = Holdings::of(&worker, &mut *session)?;
    let deadline = Instant::now() + Duration::from_secs(5);
    while !after.is_within(before) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
        after = Holdings::of(&worker, &mut *session)?;
    }
    run.number("panics", rows / 10);
    run.number("sessions", json!([before.sessions, most.sessions, after.sessions]));
    run.number("threads", json!([before.threads, most.threads, after.threads]));
    run.number("handles", json!([before.handles, most.handles, after.handles]));
    run.expect(after.is_within(before), || format!("it had {before:?} and has {after:?}"));
    let tally = worker.shut_down(PATIENCE)?;
    run.expect(tally.retried == (rows / 10).unsigned_abs(), || {
        format!("{} panics were counted as {tally:?}", rows / 10)
    });
    run.check(|expected| Expected { exact_tries: true, ..expected })
}

/// The resources of a process.
#[derive(Debug, Clone, Copy)]
struct Holdings {
    /// The sessions of its database. SQLite has no sessions but handles.
    sessions: i64,
    threads: u64,
    handles: usize,
}

impl Holdings {
    fn of(worker: &Worker, session: &mut dyn Session) -> Result<Self> {
        let process = worker.process()?;
        let sessions = session.dialect().sessions().map_or(Ok(0), |sql| session.count(sql))?;
        Ok(Holdings { sessions, threads: process.status()?.threads, handles: process.fd_count()? })
    }

    fn most(self, other: Self) -> Self {
        Holdings {
            sessions: self.sessions.max(other.sessions),
            threads: self.threads.max(other.threads),
            handles: self.handles.max(other.handles),
        }
    }

    /// Whether it has no more than before, apart from a session that is just being opened.
    fn is_within(self, before: Self) -> bool {
        self.sessions <= before.sessions + 1 && self.threads <= before.threads + 1 && self.handles <= before.handles + 3
    }
}
