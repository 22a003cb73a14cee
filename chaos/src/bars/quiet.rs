//! Bar 0, the baseline for the others: without faults every attempt calls once, and the pollers' tallies agree with the
//! rows.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use crate::bank::NewPayment;
use crate::bar::{Bar, Needs};
use crate::calls::{Call, calls};
use crate::options::{Backend, Mode};
use crate::run::{Run, pending};

pub(super) const BAR: Bar = Bar {
    number: 0,
    title: "no faults",
    backends: Backend::SINGLE,
    modes: Mode::ALL,
    server: Needs::Shared,
    measures: false,
    smoke_seconds: 4,
    run,
};

const PATIENCE: Duration = Duration::from_secs(60);

fn run(run: &mut Run) -> Result<()> {
    let payments = run.times(500, 20_000);
    let patience = PATIENCE * u32::try_from(1 + payments / 5000)?;
    // Longer than the lease, and long enough to show a backoff that wrongly counts from the attempt's beginning.
    let slow = if run.asked.mode == Mode::Lease { "slow 2600" } else { "slow 300" };
    run.enqueue(&[1, 2].map(|number| NewPayment::plain(number).kind(slow)))?;
    run.enqueue(&[3, 4].map(|number| NewPayment::plain(number).kind("slow 300").fails(2)))?;
    run.enqueue_mixed(i64::try_from(payments)?)?;
    let recipe = run.recipe();
    let mut pair = [recipe.start()?, recipe.start()?];
    let mut session = run.session()?;
    let impatient =
        "SELECT COUNT(*) AS n FROM payments WHERE status = 'ERROR' AND next_attempt_time <= last_attempt_time";
    let mut retried_at_once = 0;
    run.until("everything is worked", patience, || {
        retried_at_once = retried_at_once.max(session.count(impatient)?);
        Ok(pending(&mut *session)? == 0)
    })?;
    run.expect(retried_at_once == 0, || format!("{retried_at_once} retries did not wait for their backoff"));
    let mut succeeded = 0;
    for one in &mut pair {
        // Before that, the signal would kill it.
        one.await_start(PATIENCE)?;
        succeeded += one.shut_down(PATIENCE)?.succeeded;
    }
    let on_rows = session.count("SELECT COUNT(*) AS n FROM payments WHERE status = 'SUCCESS'")?;
    run.expect(i64::try_from(succeeded) == Ok(on_rows), || {
        format!("the pollers say that {succeeded} payments succeeded, the rows say {on_rows}")
    });
    let repeated = repeated_calls(run)?;
    // A group that is undone repeats the calls of its messages, as the mode's documentation says.
    run.expect(repeated.is_empty() || run.asked.mode == Mode::Group, || {
        format!("{} attempts have called twice, the first of them: {}", repeated.len(), repeated[0])
    });
    run.number("repeated_calls", repeated.len());
    run.check(|expected| expected)
}

/// The attempts that have called the outside world more than once, as the payment and its try number.
fn repeated_calls(run: &Run) -> Result<Vec<String>> {
    let mut times: BTreeMap<(i64, u32), u32> = BTreeMap::new();
    for Call { payment, attempt, .. } in calls(&run.calls())? {
        *times.entry((payment, attempt)).or_default() += 1;
    }
    let repeated = times.into_iter().filter(|(_, times)| *times > 1);
    Ok(repeated
        .map(|((payment, attempt), times)| format!("payment {payment}, attempt {attempt}, {times} calls"))
        .collect())
}
