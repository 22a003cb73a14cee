//! The cost of an idle process: 16 workers that serve 5 kinds of jobs, with empty queues.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use contestant::{Handler, Request, Skill, Work};
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};

use crate::db::Server;
use crate::process;
use crate::program::Entry;
use crate::sitting::{Site, Sitting, Value};

const ENTITIES: usize = 5;
const WORKERS: usize = 16;

pub(crate) fn run(sitting: &mut Sitting) -> Result<&'static str> {
    let chosen = |entry: &Entry| entry.can(Skill::Entities);
    let time = Duration::from_secs(if sitting.options.quick { 10 } else { 30 });
    let cases = [(format!("{WORKERS} workers, {ENTITIES} entities"), ())];
    sitting.measure("idle", sitting.options.repeats(), chosen, &cases, |_, site, ()| measure(site, time))?;
    Ok("idle")
}

fn measure(site: &Site<'_>, time: Duration) -> Result<Vec<Value>> {
    let mut program = site.prepared(ENTITIES)?;
    site.start(&mut program, &Work { workers: WORKERS, handler: Handler::Ledger, entities: ENTITIES })?;
    // By then the workers have connected and fallen asleep, and the server has counted that.
    thread::sleep(Duration::from_secs(4));
    let (begin, processor, queries) = (Instant::now(), process::processor_time(program.id())?, queries(site)?);
    thread::sleep(time);
    let seconds = begin.elapsed().as_secs_f64();
    let used = process::processor_time(program.id())? - processor;
    let mut values = vec![Value::new("% of a core", used.as_secs_f64() / seconds * 100.0)];
    if let (Some(before), Some(after)) = (queries, self::queries(site)?) {
        values.push(Value::new("queries per second", (after - before) as f64 / seconds));
    }
    program.tell(&Request::Stop)?;
    Ok(values)
}

/// How many statements have run so far. PostgreSQL counts transactions; those of an idle program have one statement each.
fn queries(site: &Site<'_>) -> Result<Option<i64>> {
    match site.server {
        Server::Postgres(server, _) => {
            let name = site.place.url().rsplit('/').next().context("an address ends with a database's name")?;
            let count = sql::<BigInt>("(SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = ")
                .bind::<Text, _>(name)
                .sql(")");
            // From another database, so that the query does not count itself.
            Ok(Some(diesel::select(count).get_result(&mut PgConnection::establish(server.url())?)?))
        }
        Server::Mariadb(server, _) => {
            let count = "(SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status \
                         WHERE variable_name = 'Questions')";
            Ok(Some(diesel::select(sql::<BigInt>(count)).get_result(&mut MysqlConnection::establish(server.url())?)?))
        }
        Server::Sqlite(_) => Ok(None),
    }
}
