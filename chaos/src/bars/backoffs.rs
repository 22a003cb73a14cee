//! Bar 14: how long a failed row waits, whatever its number of tries.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use crate::bank::OLD_PAYMENTS;
use crate::bar::{Bar, Needs};
use crate::on;
use crate::options::{Backend, Mode};
use crate::run::Run;
use crate::session::Dialect;

pub(super) const BAR: Bar = Bar {
    number: 14,
    title: "the backoff for any number of tries",
    backends: Backend::SINGLE,
    modes: Mode::ALL,
    server: Needs::Shared,
    measures: false,
    smoke_seconds: 3,
    run,
};

/// How the delay grows with the tries, as the entities of `typed/backoffs.rs` say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Growth {
    /// From ten seconds, twice as long each time, up to the longest delay that the databases can add.
    Doubling,
    /// From ten seconds, twice as long each time, up to an hour.
    Capped,
    /// Five minutes more each time.
    Linear,
}

const PATIENCE: Duration = Duration::from_secs(60);
/// The longest delay that the library writes: a hundred years.
const LONGEST: f64 = 36_500.0 * 86_400.0;
/// The share by which jitter may lengthen an exponential delay.
const JITTER: f64 = 0.1;
/// The greatest number of tries. A row that reaches it fails for good, whatever its entity says.
const MOST: i64 = i32::MAX as i64;

impl Growth {
    /// The seconds to wait after this many tries, without jitter. The library computes them in another way.
    fn delay(self, tries: i64) -> f64 {
        let doubled = 10.0 * 2f64.powf((tries - 1) as f64);
        match self {
            Growth::Doubling => doubled.min(LONGEST),
            Growth::Capped => doubled.min(3600.0),
            Growth::Linear => (300.0 * tries as f64).min(LONGEST),
        }
    }

    /// The shortest and the longest delay that a row may have, in seconds.
    fn bounds(self, tries: i64) -> (f64, f64) {
        // One statement writes both times of the row, but SQLite keeps milliseconds and computes in fractions of days.
        const GRAIN: f64 = 0.05;
        let delay = self.delay(tries);
        let jitter = if self == Growth::Linear { 0.0 } else { JITTER };
        (delay - GRAIN, (delay * (1.0 + jitter)).min(LONGEST) + GRAIN)
    }
}

fn run(run: &mut Run) -> Result<()> {
    let growths: &[_] = match run.asked.mode {
        Mode::Transaction => &[Growth::Doubling, Growth::Capped, Growth::Linear],
        // All modes compute the delay in one place. They differ in how they write it.
        Mode::Group | Mode::Lease => &[Growth::Doubling],
    };
    let counts = try_counts();
    let lines: Vec<_> = counts.iter().map(|tries| format!("(1, 5, 'plain', {tries}, 'ERROR')")).collect();
    let mut session = run.session()?;
    session.run(&format!(
        "INSERT INTO payments (company_id, amount_cents, kind, try_count, status) VALUES {}",
        lines.join(", ")
    ))?;
    run.count_enqueued(counts.len() as i64);
    run.number("try_counts", counts.len());
    for &growth in growths {
        // The rows get their counts again, in the order of their keys.
        for (place, tries) in counts.iter().enumerate() {
            session.run(&format!(
                "UPDATE payments SET status = 'ERROR', try_count = {tries}, next_attempt_time = {} WHERE id = {}",
                run.dialect().now_plus(-1),
                OLD_PAYMENTS + 1 + place as i64
            ))?;
        }
        fail_all(run, growth)?;
        look(run, growth, &counts)?;
    }
    // The rows now wait for years, and were never meant to succeed.
    session
        .run(&format!("UPDATE payments SET status = 'SKIPPED', next_attempt_time = NULL WHERE id > {OLD_PAYMENTS}"))?;
    run.check(|expected| expected)
}

/// The counts of tries: 0, the powers of two and their neighbours, and the end of the column's range.
fn try_counts() -> Vec<i64> {
    let powers = (0..=31).map(|power| 1i64 << power);
    let around = powers.flat_map(|power| [power - 1, power, power + 1]).chain([0, MOST - 2, MOST - 1, MOST]);
    around.filter(|tries| (0..=MOST).contains(tries)).collect::<BTreeSet<_>>().into_iter().collect()
}

fn fail_all(run: &mut Run, growth: Growth) -> Result<()> {
    let mode = run.asked.mode;
    let poller = match run.dialect() {
        Dialect::Postgres => on::postgres::typed::backoffs::fail_all(run.url(), mode, growth)?,
        Dialect::Mysql => on::mysql::typed::backoffs::fail_all(run.url(), mode, growth)?,
        Dialect::Sqlite => on::sqlite::typed::backoffs::fail_all(run.url(), mode, growth)?,
    };
    let due = format!(
        "SELECT COUNT(*) AS n FROM payments WHERE status IN ('ERROR', 'IN_PROGRESS')
         AND (next_attempt_time <= {} OR status = 'IN_PROGRESS')",
        run.dialect().now_plus(0)
    );
    let mut session = run.session()?;
    // A row that cannot be written stays due. The comparison below reports it.
    let failed = run.until("no row is due", PATIENCE, || Ok(session.count(&due)? == 0));
    let tally = poller.shutdown(PATIENCE).tally;
    run.expect(failed.is_ok(), || format!("{growth:?}: rows are still due: {tally:?}"));
    Ok(())
}

/// Compares each row with the delay for its number of tries.
fn look(run: &mut Run, growth: Growth, counts: &[i64]) -> Result<()> {
    let dialect = run.dialect();
    let delay = dialect.text(match dialect {
        Dialect::Postgres => "EXTRACT(EPOCH FROM next_attempt_time) - EXTRACT(EPOCH FROM last_attempt_time)",
        Dialect::Mysql => "TIMESTAMPDIFF(MICROSECOND, last_attempt_time, next_attempt_time) / 1000000",
        Dialect::Sqlite => "(julianday(next_attempt_time) - julianday(last_attempt_time)) * 86400.0",
    });
    let (tries, delay) = (dialect.text("try_count"), format!("COALESCE({delay}, 'null')"));
    let line = match dialect {
        Dialect::Mysql => format!("CONCAT_WS(' ', status, {tries}, {delay})"),
        Dialect::Postgres | Dialect::Sqlite => format!("status || ' ' || {tries} || ' ' || {delay}"),
    };
    let rows =
        run.session()?.lines(&format!("SELECT {line} AS line FROM payments WHERE id > {OLD_PAYMENTS} ORDER BY id"))?;
    let mut before: Option<(i64, f64)> = None;
    let mut longest = 0.0f64;
    for (&count, row) in counts.iter().zip(&rows) {
        let mut wrong = |what: &str| run.fault(format!("{growth:?}, try_count {count}: {what}: {row}"));
        let mut words = row.split(' ');
        let (status, tries) = words.next().zip(words.next()).context("a row has a status and a number of tries")?;
        let delay: Option<f64> = words.next().and_then(|word| word.parse().ok());
        let now = (count + 1).min(MOST);
        if tries != now.to_string() {
            wrong("the number of tries");
        }
        if now == MOST {
            // No row may be tried more often than the column can count.
            if (status, delay) != ("FAILED", None) {
                wrong("a row without a try left");
            }
            continue;
        }
        let Some(delay) = delay.filter(|delay| delay.is_finite() && status == "ERROR") else {
            wrong("not waiting for a finite time");
            continue;
        };
        let (least, most) = growth.bounds(now);
        if delay < least || delay > most {
            wrong(&format!("the delay is not from {least} to {most} seconds"));
        }
        // A delay may be shorter than the one before by jitter alone.
        if let Some((other, shorter)) = before.filter(|(_, shorter)| delay < shorter / (1.0 + JITTER)) {
            wrong(&format!("a shorter delay than the {shorter} seconds of try_count {other}"));
        }
        before = Some((count, delay));
        longest = longest.max(delay);
    }
    run.expect(rows.len() == counts.len(), || format!("{} rows of {}", rows.len(), counts.len()));
    let name = match growth {
        Growth::Doubling => "longest_doubling_days",
        Growth::Capped => "longest_capped_days",
        Growth::Linear => "longest_linear_days",
    };
    run.number(name, json!((longest / 864.0).round() / 100.0));
    Ok(())
}
