//! Bar 11: the application inserts children of rows that are being handled.

use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::bank::{NewPayment, OLD_PAYMENTS};
use crate::bar::{Bar, Needs};
use crate::calls::calls;
use crate::latency::{Beat, millis};
use crate::options::{Backend, Mode};
use crate::run::{Run, booked};
use crate::session::Session;

pub(super) const BAR: Bar = Bar {
    number: 11,
    title: "child inserts during a long handler",
    backends: &[Backend::Postgres],
    modes: &[Mode::Transaction],
    server: Needs::Shared,
    measures: true,
    smoke_seconds: 6,
    run,
};

const PATIENCE: Duration = Duration::from_secs(30);
const BOUND: Duration = Duration::from_millis(20);
/// As many payments as a process has workers, so that all are handled at the same time.
const PAYMENTS: i64 = 4;

fn run(run: &mut Run) -> Result<()> {
    // The bank's timeout is ten seconds. A handler that exceeds it loses its locks.
    let handler = Duration::from_secs(run.times(2, 9).min(9));
    let slow = |number| NewPayment::plain(number).kind(format!("slow {}", handler.as_millis()));
    run.enqueue(&(0..PAYMENTS).map(slow).collect::<Vec<_>>())?;
    let insert = |session: &mut dyn Session, thread: usize, pass: u64| {
        let payment = OLD_PAYMENTS + 1 + (thread as i64 + pass as i64) % PAYMENTS;
        Ok(session.run(&format!("INSERT INTO remarks (payment_id, text) VALUES ({payment}, 'seen')"))?)
    };
    let beat = Beat { threads: 2, pause: Duration::from_millis(1) };
    let ((), before) = beat.during(run.url(), insert, || {
        thread::sleep(handler / 2);
        Ok(())
    })?;

    let mut worker = run.recipe().start()?;
    worker.await_start(PATIENCE)?;
    let file = run.calls();
    run.until("all payments are being handled", PATIENCE, || Ok(calls(&file)?.len() as i64 == PAYMENTS))?;
    let mut session = run.session()?;
    let ((), during) = beat
        .during(run.url(), insert, || run.until("a payment is booked", PATIENCE, || Ok(booked(&mut *session)? > 0)))?;

    run.await_pending(0, PATIENCE)?;
    worker.shut_down(PATIENCE)?;
    run.number("handler_ms", handler.as_millis() as u64);
    run.number("before", before.summary());
    run.number("during", during.summary());
    // On a busy machine inserts are slow without locks too.
    let bound = BOUND.max(3 * before.p99());
    run.expect(during.p99() < bound, || {
        format!("the p99 of a child's insert is {} ms, the bound {} ms", millis(during.p99()), millis(bound))
    });
    let remarks = session.count("SELECT COUNT(*) AS n FROM remarks")?;
    let inserted = (before.count() + during.count()) as i64;
    run.expect(remarks == inserted, || format!("{remarks} remarks are there, {inserted} were inserted"));
    run.check(|expected| expected)
}
