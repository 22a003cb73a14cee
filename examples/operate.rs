//! A hand on a running queue: who serves it, a pause of one company, limits at run time, a process that is killed, one that is
//! frozen, one that has no business on this database, rows that have been kept for long enough, and who has changed what. Everything is read and done by the library's calls; the two
//! processes that work learn of it through the database.
//!
//! `cargo run --example operate`

use std::env;
use std::io::{Read, stdin};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_migrations::MigrationHarness;
use queueable::control::{self, Audit, Limits};
use queueable::report::{Interval, PollerProcess};
use queueable::{Error, Failure, HandlerResult, Lease, Message, Migrations, Outcome, Pause, Poller, Queueable, Status};

use self::schema::payments;

mod schema {
    diesel::table! {
        payments (id) {
            id -> BigInt,
            company_id -> BigInt,
            amount_cents -> BigInt,
        }
    }
}

/// A payment: the bank is called outside a transaction, and companies take turns.
#[derive(Queryable, Selectable, Queueable)]
#[queue(lease = "10s", fair_by = company_id, retry = fixed("1h"), report_index, keep(success = "30d"))]
struct Payment {
    id: i64,
    amount_cents: i64,
}

/// A payment that the bank takes long to answer: as long as the process lives.
const ENDLESS: i64 = 4711;

/// How long this program waits for what is bound to come.
const PATIENCE: Duration = Duration::from_secs(120);

fn call(payment: &Payment, lease: &Lease) -> Result<(), Failure> {
    match payment.amount_cents {
        ENDLESS => {
            let (_never, nothing) = mpsc::channel::<()>();
            while !lease.lease_lost() {
                let _ = nothing.recv_timeout(Duration::from_millis(100));
            }
            Err(Failure::retry("the bank has not answered"))
        }
        amount if amount <= 0 => Err(Failure::fatal(format!("payment {}: {amount} cents are no amount", payment.id))),
        _ => Ok(()),
    }
}

fn apply(_: &Payment, (): &(), _: &mut Message<'_, SqliteConnection>) -> HandlerResult {
    Ok(Outcome::Done)
}

fn poller(url: &str, application: &str, environment: &str) -> Result<Poller<SqliteConnection>> {
    let pool = Pool::builder().max_size(6).build(ConnectionManager::new(url))?;
    let poller = Payment::poller(pool, (call, apply)).workers(2).shutdown_grace(Duration::from_secs(1));
    Ok(poller.control().register().minutes().application(application).environment(environment))
}

/// What each of the other processes does: it works until its input ends.
fn work(url: &str, application: &str) -> Result<()> {
    let handle = poller(url, application, "production")?.start()?;
    stdin().read_to_end(&mut Vec::new())?;
    drop(handle);
    Ok(())
}

/// A process that works.
struct Worker(Child);

impl Worker {
    fn start(url: &str, application: &str) -> Result<Self> {
        let this = env::current_exe()?;
        Ok(Worker(Command::new(this).args(["work", url, application]).stdin(Stdio::piped()).spawn()?))
    }

    /// Stops the process where it stands, or lets it go on.
    fn signal(&self, signal: &str) -> Result<()> {
        let sent = Command::new("kill").args([signal, &self.0.id().to_string()]).status()?;
        ensure!(sent.success(), "the signal {signal} cannot be sent");
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let _ = self.signal("-CONT");
            drop(self.0.stdin.take());
            let _ = self.0.wait();
        }
    }
}

/// Asks until the answer is there.
fn until<T>(what: &str, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let (begun, (_never, pace)) = (Instant::now(), mpsc::channel::<()>());
    while begun.elapsed() < PATIENCE {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        let _ = pace.recv_timeout(Duration::from_millis(100));
    }
    bail!("{what}: that did not come")
}

fn enqueue(connection: &mut SqliteConnection, rows: impl IntoIterator<Item = (i64, i64)>) -> Result<()> {
    for (company, amount) in rows {
        let row = (payments::company_id.eq(company), payments::amount_cents.eq(amount), Payment::due_now());
        diesel::insert_into(payments::table).values(row).execute(connection)?;
    }
    Ok(())
}

fn due(connection: &mut SqliteConnection) -> Result<i64> {
    Ok(Payment::queue().backlog(connection)?.due)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [what, url, application] = arguments.as_slice()
        && what == "work"
    {
        return work(url, application);
    }
    let directory = tempfile::tempdir()?;
    operate(&directory.path().join("payments.sqlite").display().to_string())
}

fn operate(url: &str) -> Result<()> {
    let connection = &mut SqliteConnection::establish(url)?;
    connection.batch_execute(
        "PRAGMA busy_timeout = 5000;
         CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, company_id BIGINT NOT NULL, amount_cents BIGINT NOT NULL)",
    )?;
    let migrations = Migrations::new().entity::<Payment>().control().pollers().minutes().audit();
    connection.run_pending_migrations(migrations).map_err(anyhow::Error::from_boxed)?;

    println!("# Nobody serves the queue yet");
    enqueue(connection, [(1, 100), (1, 0), (3345, 250), (2, 700)])?;
    print!("{}", Payment::queue().explain(connection)?);

    println!("\n# Two processes, of two releases");
    let first = Worker::start(url, "shop 1.4.2")?;
    let second = Worker::start(url, "shop 1.5.0")?;
    until("two pollers", || Ok((queueable::pollers(connection)?.len() == 2).then_some(())))?;
    until("the first payments", || Ok((due(connection)? == 0).then_some(())))?;
    print!("{}", Payment::queue().errors(connection)?);

    println!("\n# A process of another environment");
    let environment = control::environment(connection)?.context("the first poller has named it")?;
    let Err(Error::Unsafe(findings)) = poller(url, "shop 1.5.0", "staging")?.start() else {
        bail!("a poller of staging works on the database of {environment}");
    };
    findings.iter().for_each(|finding| println!("{finding}"));

    println!("\n# One company is paused, and the others go on");
    let pause = Pause::new("their bank is down", "ops@example.org").lasting(Duration::from_secs(3600));
    Payment::pause_where(connection, payments::company_id, 3345, pause)?;
    // A pause is known everywhere after two seconds, on a busy machine a little later.
    let (_never, pace) = mpsc::channel::<()>();
    for _ in 0..2 {
        // The pollers look between the two, also after the machine has stood still.
        let _ = pace.recv_timeout(Duration::from_secs(3));
    }
    enqueue(connection, (0..10).map(|i| (if i % 2 == 0 { 3345 } else { 2 }, 100 + i)))?;
    until("those of the other company", || Ok((due(connection)? == 5).then_some(())))?;
    print!("{}", Payment::queue().backlog(connection)?);
    print!("{}", Payment::queue().explain(connection)?);
    Payment::unpause_where_by(connection, payments::company_id, 3345, "ops@example.org", "their bank is up")?;
    until("those of the company", || Ok((due(connection)? == 0).then_some(())))?;

    println!("\n# A limit at run time");
    let limits = Limits::new("the bank is slow", "ops@example.org").workers(1).retry_delay(Duration::from_secs(60));
    Payment::set_limits(connection, limits)?;
    for limited in control::limits(connection)? {
        println!("{}: {limited}", limited.queue);
    }
    Payment::end_limits_by(connection, "ops@example.org", "the bank is fast again")?;

    println!("\n# What runs now, and where");
    enqueue(connection, [(1, ENDLESS)])?;
    let endless: i64 =
        payments::table.filter(payments::amount_cents.eq(ENDLESS)).select(payments::id).first(connection)?;
    let runs = |poller: &PollerProcess| poller.running.iter().any(|message| message.key == endless.to_string());
    let runner = until("its process", || Ok(queueable::pollers(connection)?.into_iter().find(&runs)))?;
    println!("payment {endless}: {}", Payment::explain(connection, &endless)?);

    println!("\n# That process is killed, and the other one is frozen for a while");
    let (mut killed, frozen) = if runner.pid == i64::from(first.0.id()) { (first, second) } else { (second, first) };
    killed.0.kill()?;
    killed.0.wait()?;
    frozen.signal("-STOP")?;
    let now = || chrono::Utc::now();
    until("that nobody says anything", || {
        let latest = queueable::pollers(connection)?.into_iter().map(|poller| poller.seen).max();
        Ok(latest.is_some_and(|seen| now() - seen > chrono::TimeDelta::seconds(6)).then_some(()))
    })?;
    for poller in queueable::pollers(connection)? {
        println!("{poller}");
    }
    println!("(who says nothing for a minute is gone from the list)");
    frozen.signal("-CONT")?;
    let taken_over = until("its takeover", || {
        Ok(queueable::pollers(connection)?.into_iter().find(|poller| poller.pid != runner.pid && runs(poller)))
    })?;
    println!(
        "payment {endless}: {} after the lease of the killed process has ended",
        Payment::explain(connection, &endless)?
    );
    ensure!(taken_over.pid == i64::from(frozen.0.id()));
    let of_it = Payment::queue().filter(payments::id.eq(endless)).by("ops@example.org", "ticket 812");
    ensure!(of_it.skip(connection)? == 1);

    println!("\n# Payments that have been kept for long enough");
    drop(frozen);
    let done = payments::table.filter(payment_queue::status.eq(Status::Success));
    let first: Vec<i64> = done.select(payments::id).order(payments::id).limit(3).load(connection)?;
    let long_ago = chrono::Utc::now() - chrono::TimeDelta::days(31);
    diesel::update(payments::table.filter(payments::id.eq_any(&first)))
        .set(payment_queue::last_attempt_time.eq(long_ago))
        .execute(connection)?;
    println!("{} payments leave", Payment::queue().expired().counts_by_status(connection)?.of(Status::Success));
    let third = Worker::start(url, "shop 1.5.1")?;
    until("their end", || {
        Ok((Payment::queue().expired().counts_by_status(connection)?.of(Status::Success) == 0).then_some(()))
    })?;
    drop(third);

    println!("\n# The end");
    print!("{}", Payment::queue().statistics(connection, Interval::Hour)?);
    print!("{}", Payment::queue().explain(connection)?);

    println!("\n# Who has changed what");
    for audited in control::audit(connection, &Audit::new())?.rows {
        println!("{audited}");
    }
    let succeeded =
        payments::table.filter(payment_queue::status.eq(Status::Success)).count().get_result::<i64>(connection)?;
    ensure!(succeeded == 10, "{succeeded} payments of 10");
    println!("check: 10 payments, 3 that have left, 1 failed, 1 skipped");
    Ok(())
}
