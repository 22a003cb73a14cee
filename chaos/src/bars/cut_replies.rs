//! Bar 3: the answer to COMMIT is lost on its way, so nobody knows whether it was committed.

use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;

use crate::bank::OLD_PAYMENTS;
use crate::bar::{Bar, Needs};
use crate::options::{Backend, Mode};
use crate::proxy::{Counts, Cut, Proxy};
use crate::run::{Run, pending};
use crate::worker::Recipe;

pub(super) const BAR: Bar = Bar {
    number: 3,
    title: "COMMIT's reply is cut by a proxy",
    backends: Backend::EACH_NETWORK_CLIENT,
    modes: Mode::ALL,
    server: Needs::Shared,
    measures: false,
    smoke_seconds: 6,
    run,
};

const PATIENCE: Duration = Duration::from_secs(60);

fn run(run: &mut Run) -> Result<()> {
    let cuts = run.times(24, 500);
    let proxy = Proxy::start(run.url())?;
    // At first the server gets every commit: the worker that lost the answer finds out.
    let two = run.recipe().url(proxy.url_for(run.url()));
    let told = cut(run, &proxy, &[two.clone(), two.clone()], cuts / 2, |random| match random.u8(0..2) {
        0 => Cut::After,
        // The commit is still on its way while the worker looks for its outcome.
        _ => Cut::Late(Duration::from_millis(random.u64(1..40))),
    })?;
    let unknown = succeeded(run)? - told;
    run.number("successes_never_found_out", unknown);
    // To find out takes a commit, which may be cut too. After three cuts, the worker leaves the row as it is.
    let bound = 1 + i64::try_from(cuts / 20)?;
    if run.asked.mode != Mode::Lease {
        let said = run.said();
        run.expect(unknown <= bound, || format!("workers do not know of {unknown} successes; {said}"));
    }
    // Then one worker alone. With two, a row whose commit never arrived could be the other worker's success by the time
    // the first one looks, and both would count it.
    let before = succeeded(run)?;
    let told = cut(run, &proxy, &[two.clone().workers(1)], cuts / 4, |_| Cut::Before)?;
    let booked = succeeded(run)? - before;
    run.expect(told <= booked, || format!("{booked} rows succeeded, and the worker says {told}"));
    cut(run, &proxy, &[two.clone(), two], cuts - cuts / 2 - cuts / 4, |random| match random.u8(0..4) {
        0 => Cut::After,
        1 => Cut::Late(Duration::from_millis(random.u64(1..40))),
        _ => Cut::Before,
    })?;
    let Counts { commits, cut_before, cut_after, cut_late, cut_refused, .. } = proxy.counts();
    run.number("commits", commits);
    run.number("cut_before_the_commit", cut_before);
    run.number("cut_after_the_commit", cut_after);
    run.number("cut_with_the_commit_on_its_way", cut_late);
    run.number("cut_and_refused", cut_refused);
    run.expect(cut_after * 3 > cuts, || format!("only {cut_after} commits were cut that took place"));
    if run.asked.mode != Mode::Lease {
        let marked = run.session()?.count(&format!(
            "SELECT COUNT(*) AS n FROM payments WHERE id > {OLD_PAYMENTS} AND kind = 'plain' AND fails = 0
             AND (status <> 'SUCCESS' OR try_count <> 1 OR last_attempt_error_message IS NOT NULL)"
        ))?;
        run.expect(marked == 0, || format!("{marked} rows failed because of a cut"));
    }
    run.drain(&run.recipe(), PATIENCE)?;
    run.check(|expected| expected)
}

fn succeeded(run: &Run) -> Result<i64> {
    Ok(run.session()?.count("SELECT COUNT(*) AS n FROM payments WHERE status = 'SUCCESS'")?)
}

/// Lets processes work through the proxy while it cuts, until nothing is pending. Returns how many successes they count.
fn cut(run: &mut Run, proxy: &Proxy, recipes: &[Recipe], cuts: u64, how: impl Fn(&mut Rng) -> Cut) -> Result<i64> {
    let mut session = run.session()?;
    let mut workers = recipes.iter().map(Recipe::start).collect::<Result<Vec<_>>>()?;
    for worker in &mut workers {
        worker.await_start(PATIENCE)?;
    }
    let before = proxy.counts().cuts();
    for cut in before..before + cuts {
        if pending(&mut *session)? < 250 {
            run.enqueue_mixed(400)?;
        }
        // Some commits pass between the cuts: a worker whose commits all fail rests longer and longer.
        let enough = proxy.counts().commits + run.random.u64(0..10);
        run.until("commits pass", PATIENCE, || Ok(proxy.counts().commits >= enough))?;
        proxy.cut_commits([how(&mut run.random)]);
        run.until("a commit is cut", PATIENCE, || Ok(proxy.counts().cuts() > cut))?;
    }
    run.await_pending(0, PATIENCE)?;
    let mut told = 0;
    for worker in &mut workers {
        told += worker.shut_down(PATIENCE)?.succeeded;
    }
    Ok(i64::try_from(told)?)
}
