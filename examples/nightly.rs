//! Jobs that run every night, each by the clock of its own place: a cron expression and a time zone in the job's row.
//! The program shows the runs of some days, with a night in which the clocks change, and then runs the jobs that are
//! due.
//!
//! ```sh
//! cargo run --example nightly
//! cargo run --example nightly -- --now 2026-10-24T12:00:00Z --days 2
//! ```

use anyhow::{Context, Result, ensure};
use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;
use clap::Parser;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_migrations::MigrationHarness;
use queueable::{Failure, HandlerResult, Message, Migrations, Outcome, Poller, Queueable, Schedule, Status, Window};

use self::schema::{jobs, runs};

mod schema {
    diesel::table! { jobs (id) { id -> BigInt, name -> Text, } }
    diesel::table! { runs (id) { id -> BigInt, job_id -> BigInt, night -> Text, } }
}

/// Shows when nightly jobs run, and runs those that are due
#[derive(Debug, Parser)]
#[command(name = "nightly")]
struct Options {
    /// The time at which the jobs are set up
    #[arg(long, default_value = "2025-03-29T12:00:00Z")]
    now: DateTime<Utc>,

    /// How many days are shown
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(i64).range(1..=366))]
    days: i64,
}

/// A job's schedule: a cron expression, and the place whose clocks it follows.
const JOBS: [(&str, &str, &str); 3] = [
    ("closing of the books", "30 2 * * *", "Europe/Berlin"),
    ("report for New York", "0 6 * * Mon-Fri", "America/New_York"),
    ("tides of Lord Howe", "15 2 * * *", "Australia/Lord_Howe"),
];

/// The hours in which the database has little other work.
const QUIET: &str = "22:00-06:00 Europe/Berlin";

#[derive(Queryable, Selectable, Queueable)]
// One run makes up for missed nights, which is the default.
#[queue(periodic(missed = once))]
struct Job {
    id: i64,
    name: String,
}

fn work(job: &Job, message: &mut Message<'_, SqliteConnection>) -> HandlerResult {
    // The time on the schedule names the night, however late the run is, and on every try.
    let night = message.scheduled_for().ok_or_else(|| Failure::retry("it has no schedule"))?;
    println!("{} runs for {night}", job.name);
    diesel::insert_into(runs::table)
        .values((runs::job_id.eq(job.id), runs::night.eq(night.to_rfc3339())))
        .execute(message.connection())?;
    Ok(Outcome::Done)
}

fn main() -> Result<()> {
    let Options { now, days } = Options::parse();
    let window: Window = QUIET.parse()?;
    forecast(now, days, &window)?;

    let directory = tempfile::tempdir()?;
    let url = directory.path().join("nightly.sqlite").display().to_string();
    let mut connection = SqliteConnection::establish(&url)?;
    connection.batch_execute(
        "CREATE TABLE jobs (id INTEGER PRIMARY KEY NOT NULL, name TEXT NOT NULL);
         CREATE TABLE runs (id INTEGER PRIMARY KEY NOT NULL, job_id BIGINT NOT NULL, night TEXT NOT NULL)",
    )?;
    connection.run_pending_migrations(Migrations::new().entity::<Job>()).map_err(anyhow::Error::from_boxed)?;
    for (name, expression, zone) in JOBS {
        let first = Schedule::cron(expression, zone)?.next(now).context("it runs for ever")?;
        let schedule = (job_queue::cron.eq(expression), job_queue::time_zone.eq(zone));
        diesel::insert_into(jobs::table)
            .values((jobs::name.eq(name), schedule, Job::due_at(first)))
            .execute(&mut connection)?;
    }
    // A job with an unknown time zone. It fails alone.
    let wrong = (job_queue::cron.eq("@daily"), job_queue::time_zone.eq("Europe/Berlni"));
    diesel::insert_into(jobs::table)
        .values((jobs::name.eq("the wrong one"), wrong, Job::due_at(now)))
        .execute(&mut connection)?;

    println!("\nreally, by the database's clock:");
    let poller = || -> Result<Poller<SqliteConnection>> {
        let pool = Pool::builder().max_size(2).build(ConnectionManager::<SqliteConnection>::new(&url))?;
        Ok(Job::poller(pool, work).workers(1))
    };
    let closed = other_hours(Utc::now());
    println!("with the window {closed} nothing runs");
    ensure!(poller()?.window(closed.parse()?).run_until_idle()?.succeeded == 0, "outside the window nothing runs");
    let before = Utc::now();
    let tally = poller()?.run_until_idle()?;
    check(&mut connection, now, before, tally.succeeded)
}

/// Prints the schedule, beginning at the requested time.
fn forecast(now: DateTime<Utc>, days: i64, window: &Window) -> Result<()> {
    let mut runs = Vec::new();
    for (name, expression, zone) in JOBS {
        let schedule = Schedule::cron(expression, zone)?;
        let zone: Tz = zone.parse()?;
        let until = now + TimeDelta::days(days);
        runs.extend(schedule.runs_after(now).take_while(|run| *run < until).map(|run| (run, name, zone)));
    }
    runs.sort_by_key(|(run, ..)| *run);
    println!("from {} on, for {days} days (the window {window} is marked by *):", now.to_rfc3339());
    for (run, name, zone) in &runs {
        let local = run.with_timezone(zone);
        let mark = if window.is_open(*run) { "*" } else { " " };
        println!("  {} {mark} {:<20} {}", run.format("%a %F %T"), name, local.format("%a %T %Z %:z"));
    }
    let berlin: Tz = JOBS[0].2.parse()?;
    let books = runs.iter().filter(|(_, name, _)| *name == JOBS[0].0);
    let nights: Vec<_> = books.map(|(run, ..)| run.with_timezone(&berlin).date_naive()).collect();
    ensure!(
        nights.windows(2).all(|two| two[0].succ_opt() == Some(two[1])),
        "once every night, also when clocks are set"
    );
    Ok(())
}

/// All hours of the day except those around this one.
fn other_hours(now: DateTime<Utc>) -> String {
    let (from, to) = (now + TimeDelta::hours(2), now - TimeDelta::hours(2));
    format!("{}-{} UTC", from.format("%H:%M"), to.format("%H:%M"))
}

fn check(connection: &mut SqliteConnection, now: DateTime<Utc>, before: DateTime<Utc>, succeeded: u64) -> Result<()> {
    let rows = Job::queue().all_rows().load(connection)?;
    let mut ran = 0;
    for ((job, state), (name, expression, zone)) in rows.iter().zip(JOBS) {
        let schedule = Schedule::cron(expression, zone)?;
        let first = schedule.next(now).context("it runs for ever")?;
        let nights: Vec<String> = runs::table.filter(runs::job_id.eq(job.id)).select(runs::night).load(connection)?;
        let next = state.next_attempt_time.context("it is due again")?;
        println!("{name}: {}, next {}", state.status, next.to_rfc3339());
        if first > before {
            ensure!(nights.is_empty() && next == first, "{name} is not due yet");
            continue;
        }
        ran += 1;
        ensure!(nights == [first.to_rfc3339()], "{name} has run once, for its first night: {nights:?}");
        ensure!(state.status == Status::Success, "{name} has succeeded");
        let expected = [before, Utc::now()].map(|now| schedule.next_after(first, now));
        ensure!(expected.contains(&Some(next)), "{name} runs next at the next time on its schedule");
        let scheduled = jobs::table.find(job.id).select(job_queue::scheduled_time);
        let scheduled = scheduled.get_result::<Option<DateTime<Utc>>>(connection)?;
        ensure!(scheduled == Some(next), "the schedule says so too");
    }
    ensure!(succeeded == ran, "what was due has run once");
    let (_, wrong) = rows.last().context("there are four")?;
    let text = wrong.last_attempt_error_message.as_deref().unwrap_or("no text");
    println!("the wrong one: {}, {text}", wrong.status);
    ensure!(now > before || wrong.status == Status::Failed, "a time zone that nobody knows fails alone");
    println!("check: {ran} jobs have run once each");
    Ok(())
}
