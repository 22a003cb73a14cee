//! Bar 18: processes are told to stop under load, while some handlers outlast the grace period.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::process::Signal;

use crate::bank::NewPayment;
use crate::bar::{Bar, Needs};
use crate::checker::Expected;
use crate::options::{Backend, Mode};
use crate::run::{Run, Scale, pending};
use crate::worker::Said;

pub(super) const BAR: Bar = Bar {
    number: 18,
    title: "SIGTERM under load",
    backends: Backend::EACH_CLIENT,
    modes: Mode::ALL,
    server: Needs::Shared,
    measures: false,
    smoke_seconds: 8,
    run,
};

const PATIENCE: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_millis(300);
/// How long an exit may take beyond its grace period.
const ALLOWANCE: Duration = Duration::from_secs(2);
/// How long a shutdown waits after the grace period for handlers to return and for leases to be given back.
const GIVING_BACK: Duration = Duration::from_secs(1);
/// How many seconds a lease lasts.
const LEASE: i64 = 2;

fn run(run: &mut Run) -> Result<()> {
    let terminations = run.times(4, 200);
    let recipe = run.recipe().grace(GRACE);
    let mut session = run.session()?;
    // A smoke run shares the machine with others, so it only checks that the process ends.
    let allowed = if run.asked.scale == Scale::Smoke { PATIENCE } else { GRACE + ALLOWANCE };
    let mut slowest = Duration::ZERO;
    let mut rolled_back = 0;
    let leased = format!("SELECT {} AS line FROM payments WHERE status = 'IN_PROGRESS'", session.dialect().text("id"));
    let due_soon = format!("{leased} AND next_attempt_time <= {}", session.dialect().now_plus(LEASE));
    // The rows that were not given back in time, as long as they are under their leases, and how many there were.
    let (mut kept, mut were_kept): (BTreeSet<String>, usize) = (BTreeSet::new(), 0);
    for _ in 0..terminations {
        if pending(&mut *session)? < 300 {
            let mut new: Vec<_> = (0..500).map(NewPayment::mixed).collect();
            // Some handlers take longer than the grace period, and one of them starts soon.
            new.extend((0..4).map(|n| NewPayment::plain(n).kind("slow 600")));
            run.random.shuffle(&mut new);
            new.insert(4, NewPayment::plain(4).kind("slow 600"));
            run.enqueue(&new)?;
        }
        let mut worker = recipe.start()?;
        worker.await_start(PATIENCE)?;
        thread::sleep(Duration::from_millis(run.random.u64(0..200)));
        worker.signal(Signal::TERM)?;
        let told = Instant::now();
        let status = worker.await_end(PATIENCE)?;
        let time = told.elapsed();
        slowest = slowest.max(time);
        run.expect(status.success(), || format!("it ended with {status}: {}", worker.log()));
        run.expect(time < allowed, || format!("it ended after {time:?}"));
        let mut undone = 0;
        if let Some(Said::Ended { rolled_back: rows, .. }) = worker.said()?.pop() {
            undone = rows;
        }
        rolled_back += undone;
        // No process works now, so a leased row would wait for the end of its lease.
        let rows: BTreeSet<String> = session.lines(&leased)?.into_iter().collect();
        kept.retain(|row| rows.contains(row));
        // On a busy machine the time for giving the leases back may run out. Usually little of it is used.
        if undone > 0 && time >= GRACE + GIVING_BACK {
            for row in session.lines(&due_soon)? {
                were_kept += usize::from(kept.insert(row));
            }
        }
        let stranded = rows.difference(&kept).count();
        run.expect(stranded == 0, || format!("{stranded} rows are under a lease of nobody's"));
        let suspects = "SELECT COUNT(*) AS n FROM payments WHERE last_attempt_error_message LIKE '%the process ended%'";
        let suspects = session.count(suspects)?;
        run.expect(suspects == 0, || format!("{suspects} rows are suspected of ending the process"));
    }
    run.number("terminations", terminations);
    run.number("slowest_exit_ms", u64::try_from(slowest.as_millis())?);
    run.number("allowed_ms", u64::try_from(allowed.as_millis())?);
    run.number("rolled_back", rolled_back);
    run.number("not_given_back_in_time", were_kept);
    // In every mode, a row that was given back has not used a try. A lease that runs out uses one.
    let exact_tries = were_kept == 0;
    run.check(|expected| Expected { drained: false, exact_tries, ..expected })?;
    run.drain(&run.recipe(), PATIENCE)?;
    run.check(|expected| Expected { exact_tries, ..expected })
}
