//! An old snapshot, as of a backup or a report, keeps the server from removing dead rows, while rows are enqueued and
//! handled. A queue that reads its dead rows again and again gets slower and slower.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use contestant::{Backend, Fill, Handler, Pace, Request, RowState, Skill, Work};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;

use crate::options::Options;
use crate::program::Entry;
use crate::sitting::{Site, Sitting, Value};

const WORKERS: usize = 4;
/// Into how many parts the time is divided.
const PARTS: u32 = 12;

pub(crate) fn run(sitting: &mut Sitting) -> Result<&'static str> {
    let chosen = |entry: &Entry| entry.can(Skill::Endures);
    let cases = [(String::new(), ())];
    // By default once, because each takes two minutes.
    let repeats = sitting.options.repeats.unwrap_or(1);
    sitting.measure("old-snapshot", repeats, chosen, &cases, |options, site, ()| measure(options, site))?;
    Ok("old-snapshot")
}

fn measure(options: &Options, site: &Site<'_>) -> Result<Vec<Value>> {
    let part = Duration::from_secs(if options.quick { 2 } else { 10 });
    // Always more rows than the workers can handle until the next filling.
    let batch = match site.entry.description.pace {
        Pace::Slow => 2_000,
        Pace::Single => 5_000,
        Pace::Group => 30_000,
    };
    let mut filled = 2 * batch;
    let mut program = site.filled(&Fill { first: 1, rows: filled, bytes: 0, state: RowState::Due })?;
    let mut filler = site.program()?;
    let holder = Holder::begin(site)?;
    site.start(&mut program, &Work { workers: WORKERS, handler: Handler::Ledger, entities: 1 })?;
    let patience = Instant::now() + Duration::from_secs(30);
    while program.count()? == 0 {
        ensure!(Instant::now() < patience, "nothing was handled");
        thread::sleep(Duration::from_millis(10));
    }
    let mut rates = Vec::new();
    let (mut since, mut before) = (Instant::now(), program.count()?);
    while rates.len() < PARTS as usize {
        let (now, count) = (Instant::now(), program.count()?);
        if now - since >= part {
            rates.push((count - before) as f64 / (now - since).as_secs_f64());
            (since, before) = (now, count);
        }
        if filled - i64::try_from(count)? < batch {
            filler.tell(&Request::Fill(Fill { first: filled + 1, rows: batch, bytes: 0, state: RowState::Due }))?;
            filled += batch;
        } else {
            thread::sleep(Duration::from_millis(20));
        }
    }
    program.tell(&Request::Stop)?;
    drop(holder);
    let (first, last) = (rates[0], rates[rates.len() - 1]);
    let seconds = (1..).map(|part_number| format!("until {} s", part.as_secs() * part_number));
    let parts =
        seconds.zip(rates).map(|(case, rate)| Value { case: Some(case), unit: "messages per second", value: rate });
    let end =
        Value { case: Some("all the time".to_owned()), unit: "share of the start at the end", value: last / first };
    Ok(parts.chain([end]).collect())
}

/// A session that holds the snapshot until this value is dropped.
enum Holder {
    Postgres(#[expect(dead_code, reason = "it is kept open")] PgConnection),
    Mariadb(#[expect(dead_code, reason = "it is kept open")] MysqlConnection),
    Sqlite(#[expect(dead_code, reason = "it is kept open")] SqliteConnection),
}

impl Holder {
    fn begin(site: &Site<'_>) -> Result<Self> {
        let url = site.place.url();
        Ok(match site.place.backend {
            Backend::Postgres => {
                let mut connection = PgConnection::establish(url)?;
                // The first statement takes the snapshot.
                connection.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM ledger")?;
                Holder::Postgres(connection)
            }
            Backend::Mariadb => {
                let mut connection = MysqlConnection::establish(url)?;
                connection.batch_execute(
                    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION WITH CONSISTENT SNAPSHOT",
                )?;
                Holder::Mariadb(connection)
            }
            Backend::SqliteFull | Backend::SqliteNormal => {
                let mut connection = SqliteConnection::establish(url)?;
                connection.batch_execute("BEGIN; SELECT count(*) FROM ledger")?;
                Holder::Sqlite(connection)
            }
        })
    }
}
