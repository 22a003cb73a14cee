//! Bar 37: a proxy falls silent, accepts connections only, delays or resets, at any statement. Work goes on within a bound.
//!
//! The bound is twice the time that the database may take to answer, and the timeout of a handler, whose own statement may be
//! the one that gets no answer.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::bank::NewPayment;
use crate::bar::{Bar, Needs};
use crate::checker::Expected;
use crate::options::{Backend, Mode, Terms};
use crate::proxy::{Proxy, Trouble};
use crate::run::{Run, Scale};

pub(super) const BAR: Bar = Bar {
    number: 37,
    title: "a network that says nothing",
    backends: Backend::EACH_NETWORK_CLIENT,
    modes: Mode::ALL,
    server: Needs::Shared,
    measures: false,
    smoke_seconds: 30,
    run,
};

const PATIENCE: Duration = Duration::from_secs(120);
const NETWORK_TIMEOUT: Duration = Duration::from_secs(1);
/// The timeout of a hasty payment.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long the code under a lease may take that applies an answer, by default.
const TO_APPLY: Duration = Duration::from_secs(30);
/// Allows for the work itself, and for a busy machine.
const ALLOWANCE: Duration = Duration::from_secs(4);
/// How long connections are only accepted.
const ACCEPTED: Duration = Duration::from_millis(2500);

fn run(run: &mut Run) -> Result<()> {
    let proxy = Proxy::start(run.url())?;
    let recipe = run.recipe().url(proxy.url_for(run.url())).terms(Terms::Hasty).workers(2).grace(Duration::ZERO);
    let recipe = recipe.own_connections().network_timeout(NETWORK_TIMEOUT);
    let timeout = if run.asked.mode == Mode::Lease { TO_APPLY } else { TIMEOUT };
    let bound = 2 * NETWORK_TIMEOUT + timeout + ALLOWANCE;
    let is_smoke = run.asked.scale == Scale::Smoke;
    let (rounds, mut slowest) = (run.times(5, 100), Duration::ZERO);
    let mut told = 0;
    for round in 0..rounds {
        let mut workers = [recipe.start()?, recipe.start()?];
        for worker in &mut workers {
            worker.await_start(PATIENCE)?;
        }
        let trouble = [Trouble::Silence, Trouble::SilenceOfAll, Trouble::AcceptsOnly, Trouble::Reset];
        let trouble = trouble.get(usize::try_from(round % 5)?).copied();
        match trouble {
            Some(trouble) => proxy.trouble_after(run.random.u64(0..80), trouble),
            None => proxy.delay(Duration::from_millis(run.random.u64(1..20))),
        }
        run.enqueue(&(0..40).map(NewPayment::plain).collect::<Vec<_>>())?;
        run.until("there is trouble", PATIENCE, || Ok(proxy.has_troubled()))?;
        if trouble == Some(Trouble::AcceptsOnly) {
            thread::sleep(ACCEPTED);
            proxy.recover();
        }
        let since = Instant::now();
        run.await_pending(0, PATIENCE)?;
        proxy.delay(Duration::ZERO);
        let time = since.elapsed();
        slowest = slowest.max(time);
        run.expect(is_smoke || time < bound, || format!("work went on {time:?} after {trouble:?}"));
        for worker in &mut workers {
            told += worker.log().matches("has not answered for").count();
            // A handler whose own statement gets no answer never returns, and is left behind.
            worker.shut_down(PATIENCE)?;
        }
    }
    run.number("rounds", rounds);
    run.number("bound_ms", u64::try_from(bound.as_millis())?);
    run.number("slowest_ms", u64::try_from(slowest.as_millis())?);
    run.number("threads_left_behind", u64::try_from(told)?);
    run.expect(told > 0, || "no worker has told of a silent database".to_owned());
    run.check(|expected| Expected { exact_tries: false, ..expected })
}
