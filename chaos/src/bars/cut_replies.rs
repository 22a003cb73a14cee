//! Bar 3: the answer to COMMIT is lost on its way, so nobody knows whether it was committed.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Bar, Needs};
use crate::options::{Backend, Mode};
use crate::proxy::{Cut, Proxy};
use crate::run::{Run, pending};

pub(super) const BAR: Bar = Bar {
    number: 3,
    title: "COMMIT's reply is cut by a proxy",
    backends: Backend::SERVERS,
    modes: Mode::ALL,
    server: Needs::Shared,
    run,
};

const PATIENCE: Duration = Duration::from_secs(60);

fn run(run: &mut Run) -> Result<()> {
    let cuts = run.times(24, 500);
    let proxy = Proxy::start(run.url())?;
    let recipe = run.recipe();
    let through = recipe.clone().url(proxy.url_for(run.url()));
    let mut session = run.session()?;
    let mut pair = [through.start()?, through.start()?];
    for worker in &mut pair {
        worker.await_start(PATIENCE)?;
    }
    for cut in 0..cuts {
        if pending(&mut *session)? < 300 {
            run.enqueue_mixed(500)?;
        }
        proxy.cut_commits([match run.random.u8(0..4) {
            0 => Cut::Before,
            // While the worker finds out what became of it, it is still on its way.
            1 => Cut::Late(Duration::from_millis(run.random.u64(1..40))),
            _ => Cut::After,
        }]);
        run.until("a commit is cut", PATIENCE, || Ok(proxy.counts().cuts() > cut))?;
    }
    run.await_pending(0, PATIENCE)?;
    let mut told = 0;
    for worker in &mut pair {
        told += worker.shut_down(PATIENCE)?.succeeded;
    }
    let counts = proxy.counts();
    run.number("cut_after_the_commit", counts.cut_after);
    run.number("of_them_while_on_its_way", counts.cut_late);
    run.number("cut_before_the_commit", counts.cut_before);
    run.number("cut_and_refused", counts.cut_refused);
    run.number("commits", counts.commits);
    ensure!(counts.cut_after * 3 > cuts, "hardly a commit was cut after it: {counts:?}");
    // A worker counts a success whose answer it has had, or that it has found out.
    let succeeded = session.count("SELECT COUNT(*) AS n FROM payments WHERE status = 'SUCCESS'")?;
    run.number("successes_never_found_out", succeeded - i64::try_from(told)?);
    let to_error = "SELECT COUNT(*) AS n FROM payments WHERE kind = 'plain' AND fails = 0
        AND (status <> 'SUCCESS' OR last_attempt_error_message IS NOT NULL)";
    if run.asked.mode != Mode::Lease {
        let to_error = session.count(to_error)?;
        run.expect(to_error == 0, || format!("{to_error} rows carry an error because of a cut"));
    }
    run.drain(&recipe, PATIENCE)?;
    run.check(|expected| expected)
}
