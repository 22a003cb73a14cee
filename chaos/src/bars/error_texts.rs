//! Bar 15: failures whose texts are hard to print or hard to store. Each is recorded once.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use crate::bank::NewPayment;
use crate::bar::{Bar, Needs};
use crate::calls::calls;
use crate::checker::{Expected, Invariant};
use crate::odd::ODD;
use crate::options::{Backend, Mode};
use crate::run::Run;
use crate::session::Dialect;

pub(super) const BAR: Bar = Bar {
    number: 15,
    title: "error texts that are hard to store",
    backends: Backend::SINGLE,
    modes: Mode::ALL,
    server: Needs::Shared,
    measures: false,
    smoke_seconds: 4,
    run,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// How many tries a row has before it fails for good.
const FAILURES: u64 = 3;
/// A limit above the size of MariaDB's `TEXT`, and in the middle of a character.
const LIMIT: usize = 100_000;

fn run(run: &mut Run) -> Result<()> {
    let rows = run.times(150, 10_000).div_ceil(FAILURES);
    let odd = |number: i64| {
        let kind = ODD[usize::try_from(number).unwrap_or(0) % ODD.len()];
        NewPayment::plain(number).kind(format!("errs {kind}")).fails(2)
    };
    // Among them are payments that succeed: the failing ones hold none of them up.
    let rows = i64::try_from(rows)?;
    let mut new: Vec<_> = (0..rows).map(odd).chain((0..rows / 5).map(NewPayment::plain)).collect();
    run.random.shuffle(&mut new);
    run.enqueue(&new)?;
    let mut worker = run.recipe().error_text_limit(LIMIT).start()?;
    worker.await_start(PATIENCE)?;
    run.await_pending(0, PATIENCE * u32::try_from(1 + rows / 500)?)?;
    let tally = worker.shut_down(PATIENCE)?;
    let recorded = tally.retried + tally.failed;
    run.number("failures_recorded", recorded);
    run.expect(recorded == rows.unsigned_abs() * FAILURES, || {
        format!("{rows} rows that fail thrice came to {tally:?}")
    });
    run.add(Invariant::of("every row is attempted as often as it should be", unexpected_attempts(run)?));
    let mut session = run.session()?;
    let mysql = session.dialect() == Dialect::Mysql;
    let length = if mysql { "CHAR_LENGTH" } else { "LENGTH" };
    let line = session.dialect().text("id");
    let lost = session.lines(&format!(
        "SELECT {line} AS line FROM payments WHERE kind LIKE 'errs%' AND (status <> 'FAILED' OR try_count <> {FAILURES}
         OR COALESCE({length}(last_attempt_error_message), 0) = 0)"
    ))?;
    run.add(Invariant::of("every failure has a text and its tries", lost));
    let longest = session.dialect().text(&format!("MAX({length}(last_attempt_error_message))"));
    let longest = session.lines(&format!("SELECT {longest} AS line FROM payments"))?;
    run.number("longest_text", longest.concat());
    run.check(|expected| Expected { also_fail: "p.kind LIKE 'errs%'", exact_tries: true, ..expected })
}

/// The payments whose attempts are not one, two, three.
fn unexpected_attempts(run: &Run) -> Result<Vec<String>> {
    let mut attempts: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
    for call in calls(&run.calls())? {
        attempts.entry(call.payment).or_default().push(call.attempt);
    }
    // A group that is undone runs again message by message, once, and each message keeps its try number.
    let most = if run.asked.mode == Mode::Group { 2 } else { 1 };
    let unexpected = attempts.into_iter().filter_map(|(payment, mut attempts)| {
        let calls = attempts.clone();
        attempts.sort_unstable();
        let often = attempts.chunk_by(|one, other| one == other).any(|same| same.len() > most);
        attempts.dedup();
        (often || (attempts != [1] && attempts != [1, 2, 3])).then(|| format!("{payment}: {calls:?}"))
    });
    Ok(unexpected.collect())
}
