//! How many bytes of the server's log a message costs, with and without a payload of 4 KB.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use contestant::{Backend, Fill, Handler, Request, RowState, Skill, Work};

use crate::program::Entry;
use crate::sitting::{Site, Sitting, Value};

const PAYLOAD: usize = 4096;

pub(crate) fn run(sitting: &mut Sitting) -> Result<&'static str> {
    let cases = [("no payload".to_owned(), 0), ("4 KB".to_owned(), PAYLOAD)];
    let chosen =
        |entry: &Entry| entry.can(Skill::Wide) && matches!(entry.backend, Backend::Postgres | Backend::Mariadb);
    let rows = if sitting.options.quick { 2_000 } else { 10_000 };
    sitting.measure("wide", sitting.options.repeats(), chosen, &cases, |_, site, &bytes| measure(site, rows, bytes))?;
    Ok("wide")
}

fn measure(site: &Site<'_>, rows: i64, bytes: usize) -> Result<Vec<Value>> {
    let mut program = site.filled(&Fill { first: 1, rows, bytes, state: RowState::Due })?;
    let before = written(site)?;
    site.start(&mut program, &Work { workers: 4, handler: Handler::Ledger, entities: 1 })?;
    let deadline = Instant::now() + Duration::from_secs(120);
    while program.count()? < u64::try_from(rows)? {
        ensure!(Instant::now() < deadline, "of {rows} rows only {} were handled", program.count()?);
        thread::sleep(Duration::from_millis(20));
    }
    program.tell(&Request::Stop)?;
    Ok(vec![Value::new("bytes of log per message", (written(site)? - before) as f64 / rows as f64)])
}

/// How many bytes the server has written to its log so far.
fn written(site: &Site<'_>) -> Result<i64> {
    site.place.number(match site.place.backend {
        Backend::Postgres => "pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint",
        _ => {
            "(SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status \
             WHERE variable_name = 'Innodb_os_log_written')"
        }
    })
}
