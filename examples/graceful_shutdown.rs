//! Shuts down on SIGTERM and Ctrl-C. The workers claim no more rows, and running handlers may finish within a grace
//! period. A handler that does not finish is rolled back, and its row is due again. Nobody has to repair anything
//! afterwards, and the exit code is 0. A second signal ends the process at once; the exit code is 128 plus the signal's
//! number, as in a shell. That needs no repair either.
//!
//! `cargo run --example graceful_shutdown` sends itself the signal; with `-- wait` it waits for yours.

use std::env;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_migrations::MigrationHarness;
use queueable::{Handler, HandlerResult, Message, Migrations, Outcome, PollerHandle, Queueable, Status};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use self::schema::reports;

mod schema {
    diesel::table! {
        reports (id) {
            id -> BigInt,
            pages -> BigInt,
        }
    }
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = reports)]
// SQLite allows a handler one second by default, because it has one writer.
#[queue(timeout = "30s")]
struct Report {
    id: i64,
    pages: i64,
}

/// Writes a report, which takes a while, and says when it has begun.
struct Write {
    takes: Duration,
    begun: SyncSender<i64>,
}

impl Handler<Report, SqliteConnection> for Write {
    fn handle(&self, report: &Report, message: &mut Message<'_, SqliteConnection>) -> HandlerResult {
        diesel::update(reports::table.find(report.id))
            .set(reports::pages.eq(report.pages + 1))
            .execute(message.connection())?;
        println!("report {} begun", report.id);
        let _ = self.begun.send(report.id);
        thread::sleep(self.takes);
        Ok(Outcome::Done)
    }
}

fn main() -> Result<()> {
    // Before the first thread, so that no signal is missed.
    end_at_the_second_signal()?;
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let directory = tempfile::tempdir()?;
    let url = directory.path().join("reports.sqlite").display().to_string();
    let connection = &mut SqliteConnection::establish(&url)?;
    connection.batch_execute(
        "CREATE TABLE reports (id INTEGER PRIMARY KEY NOT NULL, pages BIGINT NOT NULL DEFAULT 0);
         PRAGMA busy_timeout = 5000",
    )?;
    connection.run_pending_migrations(Migrations::new().entity::<Report>()).map_err(anyhow::Error::from_boxed)?;
    let due: Vec<_> = (1..=5).map(|id| (reports::id.eq(id), Report::due_now())).collect();
    diesel::insert_into(reports::table).values(&due).execute(connection)?;

    // A grace period that is long enough: the running handler finishes.
    let (poller, begun) = start(&url, Duration::from_secs(1))?;
    let first = begun.recv()?;
    wait_for_signal(&mut signals)?;
    let shutdown = poller.shutdown(Duration::from_secs(10));
    println!("finished {}, rolled back {}", shutdown.tally.succeeded, shutdown.rolled_back);
    ensure!(shutdown.rolled_back == 0);
    let written = reports::table.filter(reports::pages.gt(0)).count().get_result::<i64>(connection)?;
    ensure!(pages_and_status(connection, first)? == (1, Status::Success));
    ensure!(Report::queue().due().count(connection)? == 5 - written, "the others wait for the next process");

    if written == 5 {
        println!("all reports were written before the signal came");
        return Ok(());
    }

    // A grace period that is too short: the handler loses its transaction, and its report is due as if it had not
    // begun.
    let (poller, begun) = start(&url, Duration::from_secs(5))?;
    let cut_short = begun.recv_timeout(Duration::from_secs(60)).context("a report is due, and nobody has begun it")?;
    let shutdown = poller.shutdown(Duration::from_millis(100));
    println!("finished {}, rolled back {}", shutdown.tally.succeeded, shutdown.rolled_back);
    ensure!(shutdown.rolled_back == 1);
    ensure!(pages_and_status(connection, cut_short)? == (0, Status::NotAttempted));
    ensure!(Report::queue().due().count(connection)? == 5 - written);
    Ok(())
}

/// The order matters: a signal finds the flag that an earlier signal has raised. If two signals come at the same
/// moment, in two threads, the later one finds the flag of the other.
fn end_at_the_second_signal() -> Result<()> {
    let [terminated, interrupted] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    for (signal, own, other) in [(SIGTERM, &terminated, &interrupted), (SIGINT, &interrupted, &terminated)] {
        flag::register_conditional_shutdown(signal, 128 + signal, own.clone())?;
        flag::register(signal, own.clone())?;
        flag::register_conditional_shutdown(signal, 128 + signal, other.clone())?;
    }
    Ok(())
}

fn start(url: &str, takes: Duration) -> Result<(PollerHandle, Receiver<i64>)> {
    let (begun, receiver) = sync_channel(100);
    let pool = Pool::builder().max_size(3).build(ConnectionManager::<SqliteConnection>::new(url))?;
    Ok((Report::poller(pool, Write { takes, begun }).workers(2).start()?, receiver))
}

fn wait_for_signal(signals: &mut Signals) -> Result<()> {
    if env::args().nth(1).as_deref() == Some("wait") {
        println!("waiting for SIGTERM or Ctrl-C");
    } else {
        signal_hook::low_level::raise(SIGTERM)?;
    }
    if let Some(signal) = signals.forever().next() {
        println!("signal {signal}: shutting down");
    }
    Ok(())
}

fn pages_and_status(connection: &mut SqliteConnection, id: i64) -> QueryResult<(i64, Status)> {
    reports::table.find(id).select((reports::pages, report_queue::status)).get_result(connection)
}
