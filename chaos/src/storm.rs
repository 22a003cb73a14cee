//! The random schedule: the seed draws faults of every kind, while the application works and the invariants are checked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;
use signal_hook::consts::SIGINT;

use crate::application::{Application, Books, Pace};
use crate::bar::{Bar, Needs};
use crate::injector::Injector;
use crate::options::{Backend, Mode};
use crate::run::{Run, booked, pending};
use crate::schedule::{Strike, Terms, schedule};
use crate::session::{Session, connect};

/// The run when the command line names no bar.
pub(crate) const STORM: Bar = Bar {
    number: STORM_NUMBER,
    title: "random schedule",
    backends: Backend::SINGLE,
    modes: Mode::ALL,
    server: Needs::Own,
    measures: false,
    smoke_seconds: 0,
    run,
};

/// The storm is none of the promise's bars, and has a number that none of them has.
pub(crate) const STORM_NUMBER: u8 = u8::MAX;

/// The longest time without a booking after a fault.
const RECOVERY: Duration = Duration::from_secs(30);
/// How long the remaining payments may take at the end.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often the invariants are checked while the faults go on.
const BETWEEN_CHECKS: Duration = Duration::from_secs(3);

/// The settings of a storm.
pub(crate) struct Storm {
    pub(crate) length: Duration,
    /// How many worker processes there are.
    pub(crate) processes: usize,
    /// How many of them live from beginning to end.
    pub(crate) spared: usize,
    pub(crate) payments_per_second: u64,
}

fn run(run: &mut Run) -> Result<()> {
    let payments_per_second = if run.asked.backend == Backend::Sqlite { 80 } else { 300 };
    let length = Duration::from_secs(run.asked.seconds);
    let storm = Storm { length, processes: 3, spared: 0, payments_per_second };
    let strikes = storm.schedule(run);
    for strike in &strikes {
        eprintln!("{strike}");
    }
    storm.rage(run, &strikes, |_| Ok(()))
}

impl Storm {
    /// The faults, each with its time.
    pub(crate) fn schedule(&self, run: &Run) -> Vec<Strike> {
        let &Storm { processes, spared, length, .. } = self;
        let terms = Terms { backend: run.asked.backend, mode: run.asked.mode, processes, spared };
        schedule(run.asked.seed, terms, length)
    }

    /// Lets the storm rage, and checks the database afterwards. `started` gets the process ids.
    pub(crate) fn rage(
        &self,
        run: &mut Run,
        strikes: &[Strike],
        started: impl FnOnce(&[u32]) -> Result<()>,
    ) -> Result<()> {
        let interrupted = Arc::new(AtomicBool::new(false));
        // A second Ctrl-C ends the harness at once, and with it the workers and the server.
        signal_hook::flag::register_conditional_default(SIGINT, interrupted.clone())?;
        signal_hook::flag::register(SIGINT, interrupted.clone())?;

        let url = run.url().to_owned();
        let mut injector = Injector::new(&url, run.place.server.clone(), run.recipe(), self.processes)?;
        started(&injector.ids())?;
        let pace = Pace { mode: run.asked.mode, payments_per_second: self.payments_per_second };
        let application = Application::start(&url, pace, run.asked.seed);

        let injected = self.inject(run, &mut injector, strikes, &interrupted);
        let is_calm = injected.is_ok() && !interrupted.load(Ordering::Relaxed);
        let books = if is_calm { application.end()? } else { application.stop()? };
        run.number("faults", json!(injector.counts()));
        run.number("commits_cut", injector.commits_cut());
        run.number("fail_points_reached", json!(injector.reached()));
        run.number("slowest_shutdown_ms", u64::try_from(injector.slowest_end().as_millis())?);
        run.number("application", json!(books.did()));
        run.number("errors_survived", json!(books.errors()));
        injected?;
        if interrupted.load(Ordering::Relaxed) {
            run.fault("interrupted");
            return Ok(());
        }
        let kills = injector.kills();
        injector.shut_down()?;
        run.number("left_to_drain", pending(&mut *run.session()?)?);
        let drained = Instant::now();
        run.drain(&run.recipe(), PATIENCE)?;
        run.number("drained_in_ms", u64::try_from(drained.elapsed().as_millis())?);
        conclude(run, &books, kills)
    }

    /// Makes the faults. Returns early when an invariant breaks, while the cause is still visible.
    fn inject(
        &self,
        run: &mut Run,
        injector: &mut Injector,
        strikes: &[Strike],
        interrupted: &AtomicBool,
    ) -> Result<()> {
        let mut watch = Watch { url: run.url().to_owned(), session: None };
        let began = Instant::now();
        let mut checked = began;
        let mut checks = 0_u64;
        let mut cost = Duration::ZERO;
        let mut strikes = strikes.iter().peekable();
        while began.elapsed() < self.length && !interrupted.load(Ordering::Relaxed) {
            injector.tend()?;
            if let Some(strike) = strikes.next_if(|strike| strike.at <= began.elapsed()) {
                injector.strike(strike)?;
                self.await_recovery(run, injector, &mut watch, strike)?;
            }
            // Checks take at most a tenth of the time, however many payments there are.
            if checked.elapsed() > BETWEEN_CHECKS.max(cost * 10) {
                let asked = Instant::now();
                run.check(|expected| expected.while_faults_go_on())?;
                (checked, cost, checks) = (Instant::now(), asked.elapsed(), checks + 1);
            }
            if run.is_broken() {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        run.number("checks", checks);
        run.number("strikes_left_out", strikes.count());
        Ok(())
    }

    fn await_recovery(&self, run: &mut Run, injector: &mut Injector, watch: &mut Watch, strike: &Strike) -> Result<()> {
        let over = Instant::now();
        let before = loop {
            match watch.latest() {
                Ok(latest) => break latest,
                Err(error) if over.elapsed() > RECOVERY => return Err(error),
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        };
        loop {
            if watch.latest().is_ok_and(|latest| latest > before) {
                run.recovered_in(over.elapsed());
                return Ok(());
            }
            if over.elapsed() > RECOVERY {
                run.fault(format!("nothing was booked for {RECOVERY:?} after {strike}; {}", run.said()));
                return Ok(());
            }
            injector.tend()?;
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Checks the results, when the faults are over and all payments were worked.
fn conclude(run: &mut Run, books: &Books, kills: u64) -> Result<()> {
    let session = &mut *run.session()?;
    let balance = books.balance(session)?;
    run.count_enqueued(balance.payments);
    run.number("answers_lost", balance.doubtful);
    let tries = "SELECT CAST(COALESCE(SUM(try_count), 0) AS $int) AS n FROM payments";
    let extra =
        "SELECT CAST(COALESCE(SUM(try_count - fails - 1), 0) AS $int) AS n FROM payments WHERE status = 'SUCCESS'";
    let int = session.dialect().integer();
    run.number("tries", session.count(&tries.replace("$int", int))?);
    run.number("tries_beyond_plan", session.count(&extra.replace("$int", int))?);
    run.number("booked", booked(session)?);
    let stopped = session.count("SELECT COUNT(*) AS n FROM touched WHERE how = 'stopped'")?;
    run.expect(stopped == 0, || format!("{stopped} payments are still stopped"));
    for error in books.unexplained() {
        run.fault(format!("the application has met: {error}"));
    }
    // Each takes one crash among other rows, and two more while it runs alone in its process.
    run.check_after_kills(kills / 2)
}

/// Looks for bookings, and opens a new session if its own breaks.
struct Watch {
    url: String,
    session: Option<Box<dyn Session>>,
}

impl Watch {
    /// The number of the last ledger row.
    fn latest(&mut self) -> Result<i64> {
        let session = match &mut self.session {
            Some(session) => session,
            none => none.insert(connect(&self.url)?),
        };
        let latest = session.count("SELECT COALESCE(MAX(id), 0) AS n FROM ledger");
        if latest.is_err() {
            self.session = None;
        }
        latest.context("the ledger cannot be read")
    }
}
