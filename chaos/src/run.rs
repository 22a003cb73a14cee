//! One run: its own database, the actions that bars share, and the report.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::bank::{self, NewPayment};
use crate::checker::{Expected, Invariant, check};
use crate::galera::Cluster;
use crate::on;
use crate::options::{Backend, Mode};
use crate::place::{Place, Server};
use crate::session::{Dialect, Session, connect};
use crate::worker::Recipe;

/// What was asked of a run.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) name: String,
    pub(crate) backend: Backend,
    pub(crate) mode: Mode,
    pub(crate) seed: u64,
    pub(crate) seconds: u64,
    /// The seconds as given, for a bar that has its own default.
    pub(crate) given_seconds: Option<u64>,
    pub(crate) scale: Scale,
    /// The longest time that it waits for anything.
    pub(crate) patience: Option<Duration>,
    /// SQL that spoils the rows before the checker looks, to see that it finds the damage.
    pub(crate) spoil: Option<String>,
    /// The directory for curves.
    pub(crate) plots: PathBuf,
}

/// How often a bar repeats what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// A few times, for CI.
    Smoke,
    /// As often as `docs/reliability.md` says.
    Release,
    /// This many times.
    Count(u64),
}

/// The result of a run, printed as one line of JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) run: String,
    pub(crate) backend: Backend,
    pub(crate) mode: Mode,
    pub(crate) seed: u64,
    pub(crate) passed: bool,
    pub(crate) seconds: f64,
    /// The numbers that the bar measures, by name.
    pub(crate) numbers: BTreeMap<&'static str, Value>,
    pub(crate) invariants: Vec<Invariant>,
    /// Exceeded bounds and other failures besides the invariants.
    pub(crate) faults: Vec<String>,
    /// Evidence that the database broke its own promises. The checker does not judge the rows concerned.
    pub(crate) database_faults: Vec<String>,
    /// The longest time from the end of a fault to the next booking.
    pub(crate) slowest_recovery_ms: Option<u64>,
}

/// A run that is going on.
pub(crate) struct Run {
    pub(crate) asked: Asked,
    pub(crate) random: fastrand::Rng,
    pub(crate) place: Place,
    /// The directory in which the workers write. It is removed with the run.
    pub(crate) directory: TempDir,
    began: Instant,
    enqueued: i64,
    numbers: BTreeMap<&'static str, Value>,
    invariants: Vec<Invariant>,
    faults: Vec<String>,
    database_faults: Vec<String>,
    slowest_recovery: Option<Duration>,
}

impl Run {
    /// A run in a new database on this server, with the bank's tables in it.
    pub(crate) fn on(server: Arc<Server>, asked: Asked) -> Result<Self> {
        let run = Run::in_an_empty_place(server, asked)?;
        bank::found(run.url())?;
        Ok(run)
    }

    /// A run in a new database on this server, without any tables: for bars that watch the migration.
    pub(crate) fn in_an_empty_place(server: Arc<Server>, asked: Asked) -> Result<Self> {
        let place = Place::on(server)?;
        Ok(Run {
            random: fastrand::Rng::with_seed(asked.seed),
            asked,
            place,
            directory: tempfile::Builder::new().prefix("queueable-chaos-").tempdir()?,
            began: Instant::now(),
            enqueued: 0,
            numbers: BTreeMap::new(),
            invariants: Vec::new(),
            faults: Vec::new(),
            database_faults: Vec::new(),
            slowest_recovery: None,
        })
    }

    /// A run in a database on a server that no other run uses: for bars that take the server down.
    pub(crate) fn on_a_server_of_its_own(asked: Asked) -> Result<Self> {
        if asked.backend == Backend::Galera {
            Cluster::can_start()?;
        }
        Run::on(Server::start(asked.backend), asked)
    }

    /// How many times to repeat: `smoke` in a smoke run, `release` for a release.
    pub(crate) fn times(&self, smoke: u64, release: u64) -> u64 {
        match self.asked.scale {
            Scale::Smoke => smoke,
            Scale::Release => release,
            Scale::Count(count) => count,
        }
    }

    pub(crate) fn url(&self) -> &str {
        self.place.url()
    }

    pub(crate) fn dialect(&self) -> Dialect {
        Dialect::of(self.url())
    }

    pub(crate) fn session(&self) -> Result<Box<dyn Session>> {
        connect(self.url())
    }

    /// The settings with which a worker process of this run starts.
    pub(crate) fn recipe(&self) -> Recipe {
        let is_async = self.asked.backend == Backend::AsyncPostgres;
        Recipe::new(self.url(), self.asked.mode, self.directory.path()).client(is_async)
    }

    /// The file in which the workers note their calls of the outside world.
    pub(crate) fn calls(&self) -> PathBuf {
        self.directory.path().join("calls")
    }

    /// Enqueues `count` payments of the usual mix.
    pub(crate) fn enqueue_mixed(&mut self, count: i64) -> Result<()> {
        let new: Vec<_> = (self.enqueued..self.enqueued + count).map(NewPayment::mixed).collect();
        self.enqueue(&new)
    }

    pub(crate) fn enqueue(&mut self, new: &[NewPayment]) -> Result<()> {
        let url = self.place.url();
        match Dialect::of(url) {
            Dialect::Postgres => on::postgres::typed::application::enqueue(url, new)?,
            Dialect::Mysql => on::mysql::typed::application::enqueue(url, new)?,
            Dialect::Sqlite => on::sqlite::typed::application::enqueue(url, new)?,
        }
        self.enqueued += i64::try_from(new.len())?;
        Ok(())
    }

    /// Counts payments that others have enqueued, or deleted if the number is negative.
    pub(crate) fn count_enqueued(&mut self, payments: i64) {
        self.enqueued += payments;
    }

    /// Waits until at most this many payments are pending.
    pub(crate) fn await_pending(&self, at_most: i64, patience: Duration) -> Result<()> {
        let mut session = self.session()?;
        self.until(&format!("at most {at_most} payments are pending"), patience, || {
            Ok(pending(&mut *session)? <= at_most)
        })
    }

    /// Asks again and again until the answer is true.
    pub(crate) fn until(&self, what: &str, patience: Duration, mut ask: impl FnMut() -> Result<bool>) -> Result<()> {
        let patience = self.asked.patience.map_or(patience, |most| most.min(patience));
        let deadline = Instant::now() + patience;
        while !ask()? {
            ensure!(Instant::now() < deadline, "not within {patience:?}: {what}; {}", self.said());
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Starts a process that works all remaining payments, and shuts it down. The faults must be over.
    pub(crate) fn drain(&self, recipe: &Recipe, patience: Duration) -> Result<()> {
        let mut worker = recipe.start()?;
        worker.await_start(patience)?;
        self.await_pending(0, patience)?;
        worker.shut_down(patience)?;
        Ok(())
    }

    /// Checks all invariants. `adjust` changes the expectations of a drained run.
    pub(crate) fn check(&mut self, adjust: impl FnOnce(Expected) -> Expected) -> Result<()> {
        let expected = adjust(Expected {
            old: bank::OLD_PAYMENTS,
            payments: Some(self.enqueued),
            drained: true,
            exact_tries: self.asked.mode != Mode::Lease,
            may_be_set_aside: false,
            also_fail: "1 = 0",
        });
        if let Some(sql) = &self.asked.spoil {
            self.session()?.run(sql)?;
        }
        let found = check(&mut *self.session()?, &self.calls(), expected)?;
        found.into_iter().for_each(|invariant| self.add(invariant));
        Ok(())
    }

    /// Checks a drained run in which processes were killed. A row that runs alone in a killed process and is then killed again,
    /// and once more, looks like one that ends its process; only a few may be set aside for that.
    pub(crate) fn check_after_kills(&mut self, at_most: u64) -> Result<()> {
        let set_aside = "SELECT COUNT(*) AS n FROM payments WHERE status = 'FAILED' AND kind <> 'fatal'";
        let set_aside = self.session()?.count(set_aside)?;
        self.number("set_aside", set_aside);
        self.expect(set_aside.unsigned_abs() <= at_most, || {
            format!("{set_aside} rows were set aside, the bound is {at_most}")
        });
        self.check(|expected| Expected { may_be_set_aside: true, ..expected })
    }

    /// Checks the invariants that always hold, after a run that failed before its end.
    pub(crate) fn check_what_always_holds(&mut self) -> Result<()> {
        self.check(|expected| Expected {
            payments: None,
            drained: false,
            exact_tries: false,
            may_be_set_aside: true,
            ..expected
        })
    }

    /// Adds a finding. The report has the worst finding of each invariant.
    pub(crate) fn add(&mut self, new: Invariant) {
        match self.invariants.iter_mut().find(|old| old.name == new.name) {
            Some(old) if old.broken >= new.broken => {}
            Some(old) => *old = new,
            None => self.invariants.push(new),
        }
    }

    /// Whether an invariant broke or a fault was reported so far.
    pub(crate) fn is_broken(&self) -> bool {
        self.invariants.iter().any(|invariant| invariant.broken > 0) || !self.faults.is_empty()
    }

    /// Reports a number.
    pub(crate) fn number(&mut self, name: &'static str, value: impl Into<Value>) {
        self.numbers.insert(name, value.into());
    }

    /// Reports a failure. The run goes on but does not pass.
    pub(crate) fn fault(&mut self, fault: impl Into<String>) {
        self.faults.push(fault.into());
    }

    /// Reports evidence that the database broke its own promises.
    pub(crate) fn database_fault(&mut self, evidence: impl Into<String>) {
        self.database_faults.push(evidence.into());
    }

    /// Reports a failure unless the condition holds.
    pub(crate) fn expect(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.faults.push(otherwise());
        }
    }

    /// Reports the time from the end of a fault to the next booking.
    pub(crate) fn recovered_in(&mut self, time: Duration) {
        self.slowest_recovery = self.slowest_recovery.max(Some(time));
    }

    /// The last lines that each worker has written to its standard error.
    pub(crate) fn said(&self) -> String {
        let ends = self.logs().unwrap_or_default().into_iter().filter_map(|(path, log)| {
            let lines: Vec<_> = log.lines().collect();
            let end = lines[lines.len().saturating_sub(5)..].join("\n");
            (!end.is_empty()).then(|| format!("{}: {end}", path.display()))
        });
        ends.collect::<Vec<_>>().join("\n")
    }

    /// The standard error of each worker, with its file.
    pub(crate) fn logs(&self) -> Result<Vec<(PathBuf, String)>> {
        let mut logs = Vec::new();
        for entry in fs::read_dir(self.directory.path())? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                let log = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
                logs.push((path, log));
            }
        }
        Ok(logs)
    }

    pub(crate) fn report(self) -> Report {
        // A run that has checked nothing has shown nothing.
        let passed = !self.is_broken() && !self.invariants.is_empty();
        let mut numbers = self.numbers;
        numbers.entry("payments").or_insert(json!(self.enqueued));
        Report {
            run: self.asked.name,
            backend: self.asked.backend,
            mode: self.asked.mode,
            seed: self.asked.seed,
            passed,
            seconds: (self.began.elapsed().as_secs_f64() * 10.0).round() / 10.0,
            numbers,
            invariants: self.invariants,
            faults: self.faults,
            database_faults: self.database_faults,
            slowest_recovery_ms: self.slowest_recovery.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

/// How many payments are pending.
pub(crate) fn pending(session: &mut dyn Session) -> Result<i64> {
    Ok(session.count("SELECT COUNT(*) AS n FROM payments WHERE next_attempt_time IS NOT NULL")?)
}

/// How many payments are booked.
pub(crate) fn booked(session: &mut dyn Session) -> Result<i64> {
    Ok(session.count("SELECT COUNT(*) AS n FROM ledger")?)
}

/// The beginning of the fault text of a run that could not be made.
pub(crate) const NOT_MADE: &str = "the run could not be made";

impl Report {
    /// The report of a run that could not be made.
    pub(crate) fn of_error(asked: Asked, error: &anyhow::Error) -> Self {
        Report {
            run: asked.name,
            backend: asked.backend,
            mode: asked.mode,
            seed: asked.seed,
            passed: false,
            seconds: 0.0,
            numbers: BTreeMap::new(),
            invariants: Vec::new(),
            faults: vec![format!("{NOT_MADE}: {error:#}")],
            database_faults: Vec::new(),
            slowest_recovery_ms: None,
        }
    }
}
