//! Periodic rows: each row has its own schedule, which goes on whatever the result of a run.

mod schedule;
mod trouble;

use std::sync::{Arc, Mutex};

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::columns::Instant;
use queueable::{ClaimStyle, HandlerResult, Lease, Message, Migrations, Outcome, Poller, QueueState, Queueable, Tally};

use crate::db::{BIGINT, Conn, Database};

diesel::table! {
    reports (id) { id -> BigInt, }
}

/// Entities on one table and the same queue columns: each policy in each mode.
macro_rules! entities {
    ($($name:ident: $($key:ident$(($($value:tt)*))?$(= $other:literal)?),*;)*) => {$(
        #[derive(Debug, Clone, Queryable, Selectable, Queueable)]
        #[diesel(table_name = reports)]
        #[queue(retry = fixed("1h"), max_tries = 3, timeout = "30s", $($key$(($($value)*))?$(= $other)?),*)]
        pub(crate) struct $name {
            id: i64,
        }
    )*};
}

entities! {
    Once: periodic;
    OnceInGroup: periodic, group(10);
    OnceLeased: periodic, lease = "60s";
    Skip: periodic(missed = skip("1m"));
    SkipInGroup: periodic(missed = skip("1m")), group(10);
    SkipLeased: periodic(missed = skip("1m")), lease = "60s";
    All: periodic(missed = all(3));
    AllInGroup: periodic(missed = all(3)), group(10);
    AllLeased: periodic(missed = all(3)), lease = "60s";
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Transaction,
    Group,
    Lease,
    /// As on a database without SKIP LOCKED.
    LeaseByUpdate,
}

const MODES: [Mode; 4] = [Mode::Transaction, Mode::Group, Mode::Lease, Mode::LeaseByUpdate];

#[derive(Debug, Clone, Copy)]
enum Missed {
    Once,
    Skip,
    All,
}

/// A run in its handler's view: the row, the number of the try, and the time on the schedule.
type Run = (i64, u32, Option<DateTime<Utc>>);

/// A database with reports that are made again and again.
struct Desk {
    database: Database,
    runs: Arc<Mutex<Vec<Run>>>,
}

impl Desk {
    fn new() -> Self {
        let database = Database::new();
        let mut connection = database.connect();
        connection.batch_execute(&format!("CREATE TABLE reports (id {BIGINT} PRIMARY KEY NOT NULL)")).unwrap();
        connection.run_pending_migrations(Migrations::new().entity::<Once>()).unwrap();
        Desk { database, runs: Arc::default() }
    }

    fn connect(&self) -> Conn {
        self.database.connect()
    }

    /// Inserts a row that is due at this time.
    fn insert(&self, id: i64, due: DateTime<Utc>, schedule: Row<'_>) {
        diesel::insert_into(reports::table)
            .values((
                reports::id.eq(id),
                Once::due_at(due),
                once_queue::period.eq(schedule.period),
                once_queue::cron.eq(schedule.cron),
                once_queue::time_zone.eq(schedule.time_zone),
            ))
            .execute(&mut self.connect())
            .unwrap();
    }

    /// Makes all rows due now, by an operator's own SQL.
    fn make_due(&self) {
        diesel::update(reports::table)
            .set(once_queue::next_attempt_time.eq(queueable::columns::Now))
            .execute(&mut self.connect())
            .unwrap();
    }

    fn state(&self, id: i64) -> QueueState {
        reports::table.find(id).select(Once::queue_state()).get_result(&mut self.connect()).unwrap()
    }

    fn scheduled_time(&self, id: i64) -> Option<DateTime<Utc>> {
        let time: Option<Instant> =
            reports::table.find(id).select(once_queue::scheduled_time).get_result(&mut self.connect()).unwrap();
        time.map(Into::into)
    }

    /// Returns when a row is due next, and checks that the time on its schedule is the same.
    fn next(&self, id: i64) -> Option<DateTime<Utc>> {
        let next = self.state(id).next_attempt_time;
        assert_eq!(self.scheduled_time(id), next);
        next
    }

    /// Runs the due rows with one worker.
    fn run(&self, mode: Mode, missed: Missed, work: fn(i64) -> HandlerResult) -> Tally {
        self.poller(mode, missed, work).workers(1).run_until_idle().unwrap()
    }

    fn poller(&self, mode: Mode, missed: Missed, work: fn(i64) -> HandlerResult) -> Poller<Conn> {
        match missed {
            Missed::Once => self.poller_of::<Once, OnceInGroup, OnceLeased>(mode, work),
            Missed::Skip => self.poller_of::<Skip, SkipInGroup, SkipLeased>(mode, work),
            Missed::All => self.poller_of::<All, AllInGroup, AllLeased>(mode, work),
        }
    }

    fn poller_of<T, G, L>(&self, mode: Mode, work: fn(i64) -> HandlerResult) -> Poller<Conn>
    where
        T: queueable::bounds::QueueOn<Conn, Mode = queueable::bounds::TransactionMode> + Report + Send,
        G: queueable::bounds::QueueOn<Conn, Mode = queueable::bounds::GroupMode> + Report + Send,
        L: queueable::bounds::QueueOn<Conn, Mode = queueable::bounds::LeaseMode> + Report + Send,
    {
        let pool = self.database.pool(3);
        let runs = self.runs.clone();
        let seen = move |id: i64, try_number: u32, time: Option<DateTime<Utc>>| {
            runs.lock().unwrap().push((id, try_number, time));
        };
        match mode {
            Mode::Transaction => T::poller(pool, move |report: &T, message: &mut Message<'_, Conn>| {
                seen(report.id(), message.try_number(), message.scheduled_for());
                work(report.id())
            }),
            Mode::Group => G::poller(pool, move |report: &G, message: &mut Message<'_, Conn>| {
                seen(report.id(), message.try_number(), message.scheduled_for());
                work(report.id())
            }),
            Mode::Lease | Mode::LeaseByUpdate => {
                let call = move |report: &L, lease: &Lease| {
                    seen(report.id(), lease.try_number(), lease.scheduled_for());
                    Ok(lease.scheduled_for())
                };
                let apply = move |report: &L, time: &Option<DateTime<Utc>>, message: &mut Message<'_, Conn>| {
                    assert_eq!(message.scheduled_for(), *time);
                    work(report.id())
                };
                let style = if mode == Mode::Lease { ClaimStyle::Auto } else { ClaimStyle::UpdateThenSelect };
                L::poller(pool, (call, apply)).claim_style(style)
            }
        }
    }

    /// Returns the runs since the last call, in order.
    fn runs(&self) -> Vec<Run> {
        std::mem::take(&mut *self.runs.lock().unwrap())
    }
}

trait Report {
    fn id(&self) -> i64;
}

macro_rules! report {
    ($($name:ident)*) => {$(
        impl Report for $name {
            fn id(&self) -> i64 {
                self.id
            }
        }
    )*};
}
report!(Once OnceInGroup OnceLeased Skip SkipInGroup SkipLeased All AllInGroup AllLeased);

/// The columns of a row's schedule.
#[derive(Debug, Clone, Copy, Default)]
struct Row<'a> {
    period: Option<i64>,
    cron: Option<&'a str>,
    time_zone: Option<&'a str>,
}

fn every(seconds: i64) -> Row<'static> {
    Row { period: Some(seconds), ..Row::default() }
}

fn by<'a>(cron: &'a str, time_zone: &'a str) -> Row<'a> {
    Row { cron: Some(cron), time_zone: Some(time_zone), ..Row::default() }
}

/// Returns the present time minus this long, in a form that every database can store.
fn ago(time: TimeDelta) -> DateTime<Utc> {
    (Utc::now() - time).trunc_subsecs(3)
}

fn done(_: i64) -> HandlerResult {
    Ok(Outcome::Done)
}
