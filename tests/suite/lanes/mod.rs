//! Rows that are scheduled by a column of the domain: one at a time for each value, a few at a time, in turns.
//!
//! The handlers count, in this process, what runs at the same time. Two pollers stand for two processes: they share
//! nothing but the database.

mod backlog;
mod explain;
mod fairness;
mod interleavings;
mod kinds;
mod limits;
mod paused;
mod places;
mod refused;
mod schema;
mod snapshots;
mod strict;

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::Migrations;
use queueable::bounds::StoredIn;

use crate::db::{AUTO_KEY, BIGINT, Conn, Database};

type Backend = <Conn as diesel::Connection>::Backend;

diesel::table! {
    jobs (id) {
        id -> BigInt,
        company_id -> Nullable<BigInt>,
        rank -> BigInt,
    }
}

/// An entity on the jobs. On SQLite, which has one writer, the default timeout is one second.
macro_rules! job {
    ($name:ident, $module:ident, $($settings:tt)*) => {
        #[derive(Debug, Clone, diesel::Queryable, diesel::Selectable, queueable::Queueable)]
        #[diesel(table_name = jobs)]
        #[queue(module = $module, retry = fixed("1h"), max_tries = 3, timeout = "30s", $($settings)*)]
        #[allow(dead_code, reason = "not every test looks at every column")]
        pub(crate) struct $name {
            pub(crate) id: i64,
            pub(crate) company_id: Option<i64>,
            pub(crate) rank: i64,
        }
    };
}
use job;

/// A database with the jobs, which are this entity's queue.
fn jobs_of<Q>() -> Database
where
    Q: StoredIn<Backend> + 'static,
{
    let database = Database::new();
    let mut connection = database.connect();
    let table =
        format!("CREATE TABLE jobs (id {AUTO_KEY} NOT NULL, company_id {BIGINT}, `rank` {BIGINT} NOT NULL DEFAULT 0)");
    let table = if crate::db::NAME == "mysql" { table } else { table.replace('`', "\"") };
    connection.batch_execute(&table).unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Q>()).unwrap();
    database
}

/// Enqueues jobs of these companies, one after the other, each due a little later than the one before.
fn enqueue(database: &Database, companies: impl IntoIterator<Item = Option<i64>>) {
    let values: Vec<_> = companies
        .into_iter()
        .enumerate()
        .map(|(i, company)| {
            let company = company.map_or("NULL".to_owned(), |company| company.to_string());
            format!("({company}, '2026-01-01 {:02}:{:02}:{:02}.000')", i / 3600, i / 60 % 60, i % 60)
        })
        .collect();
    let insert = format!("INSERT INTO jobs (company_id, next_attempt_time) VALUES {}", values.join(", "));
    database.connect().batch_execute(&insert).unwrap();
}

/// What the handlers see of one another.
#[derive(Clone, Default)]
struct Watch(Arc<(Mutex<Seen>, Condvar)>);

#[derive(Default)]
struct Seen {
    running: HashMap<Option<i64>, u32>,
    /// The largest number that ran at the same time, for each company and of all.
    most: HashMap<Option<i64>, u32>,
    most_of_all: u32,
    /// The jobs in the order in which they began.
    begun: Vec<(i64, Option<i64>)>,
}

impl Watch {
    fn begin(&self, id: i64, company: Option<i64>) {
        let mut seen = self.0.0.lock().unwrap();
        seen.begun.push((id, company));
        *seen.running.entry(company).or_default() += 1;
        let (running, all) = (seen.running[&company], seen.running.values().sum());
        let most = seen.most.entry(company).or_default();
        *most = running.max(*most);
        seen.most_of_all = seen.most_of_all.max(all);
        self.0.1.notify_all();
    }

    fn end(&self, company: Option<i64>) {
        *self.0.0.lock().unwrap().running.get_mut(&company).unwrap() -= 1;
        self.0.1.notify_all();
    }

    /// Waits until so many jobs run, but not as long as a handler may take: a limit that is wrong shows by that.
    fn meet(&self, number: u32, of: impl Fn(&Seen) -> u32) -> bool {
        let wait = Duration::from_secs(25);
        let seen = self.0.0.lock().unwrap();
        let (_seen, timeout) = self.0.1.wait_timeout_while(seen, wait, |seen| of(seen) < number).unwrap();
        !timeout.timed_out()
    }

    fn most(&self, company: Option<i64>) -> u32 {
        self.0.0.lock().unwrap().most.get(&company).copied().unwrap_or(0)
    }

    fn most_of_all(&self) -> u32 {
        self.0.0.lock().unwrap().most_of_all
    }

    /// Returns the companies in the order in which their jobs began.
    fn companies(&self) -> Vec<Option<i64>> {
        self.0.0.lock().unwrap().begun.iter().map(|(_, company)| *company).collect()
    }

    /// Returns the jobs of a company in the order in which they began.
    fn ids(&self, company: Option<i64>) -> Vec<i64> {
        let seen = self.0.0.lock().unwrap();
        seen.begun.iter().filter(|(_, of)| *of == company).map(|(id, _)| *id).collect()
    }
}

/// Gives other workers the opportunity to begin: some round trips of a session of its own.
fn dawdle(database: &Database) {
    let mut connection = database.connect();
    for _ in 0..5 {
        let _: i64 = jobs::table.count().get_result(&mut connection).unwrap();
    }
}
