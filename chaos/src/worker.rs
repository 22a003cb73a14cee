//! Worker processes, which the harness starts, kills, freezes and reads from.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, io};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use procfs::process::Process;
use queueable::Tally;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::options::{Accounting, Break, Mode, Terms, WorkerOptions};

/// What a worker process prints, one per line.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Said {
    /// It claims payments now.
    Started,
    /// It has reached a fail point, and its action happens next.
    Reached { point: String },
    /// It has shut down in good order.
    Ended { tally: Tally, rolled_back: usize },
}

/// How to start a worker process; every setting has a default.
#[derive(Debug, Clone)]
pub(crate) struct Recipe {
    pub(crate) options: WorkerOptions,
    /// Further environment variables.
    pub(crate) environment: Vec<(String, String)>,
    /// The directory for its output.
    pub(crate) directory: PathBuf,
}

impl Recipe {
    pub(crate) fn new(url: &str, mode: Mode, directory: &Path) -> Self {
        let options = WorkerOptions {
            url: url.to_owned(),
            mode,
            is_async: false,
            workers: 4,
            terms: Terms::Usual,
            calls: directory.join("calls"),
            poll_interval_ms: 200,
            grace_ms: 5000,
            accounting: Accounting::On,
            own_connections: false,
            network_timeout_ms: 30_000,
            held_sessions: 0,
            error_text_limit: 8 * 1024,
            breaks: Vec::new(),
        };
        Recipe { options, environment: Vec::new(), directory: directory.to_owned() }
    }

    pub(crate) fn workers(mut self, workers: usize) -> Self {
        self.options.workers = workers;
        self
    }

    /// Gives the entity other settings than the usual ones.
    pub(crate) fn terms(mut self, terms: Terms) -> Self {
        self.options.terms = terms;
        self
    }

    /// Limits how long running handlers may go on when the process is told to stop.
    pub(crate) fn grace(mut self, grace: Duration) -> Self {
        self.options.grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// Limits how many bytes of a failure's text are stored.
    pub(crate) fn error_text_limit(mut self, bytes: usize) -> Self {
        self.options.error_text_limit = bytes;
        self
    }

    /// Reaches the database by another address, for example through a proxy.
    pub(crate) fn url(mut self, url: impl Into<String>) -> Self {
        self.options.url = url.into();
        self
    }

    /// Reaches PostgreSQL through diesel-async, or by Diesel's own connection.
    pub(crate) fn client(mut self, is_async: bool) -> Self {
        self.options.is_async = is_async;
        self
    }

    /// Lets the poller open its own connections instead of taking them from a pool.
    pub(crate) fn own_connections(mut self) -> Self {
        self.options.own_connections = true;
        self
    }

    /// Limits how long the database may take to answer.
    pub(crate) fn network_timeout(mut self, wait: Duration) -> Self {
        self.options.network_timeout_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// Lets the application keep this many sessions of the pool for itself.
    pub(crate) fn held_sessions(mut self, sessions: usize) -> Self {
        self.options.held_sessions = sessions;
        self
    }

    pub(crate) fn accounting(mut self, accounting: Accounting) -> Self {
        self.options.accounting = accounting;
        self
    }

    pub(crate) fn breaks(mut self, breaks: impl IntoIterator<Item = Break>) -> Self {
        self.options.breaks.extend(breaks);
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: impl Into<String>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// Starts a process, and returns at once.
    pub(crate) fn start(&self) -> Result<Worker> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let said = self.directory.join(format!("worker-{number}.said"));
        let WorkerOptions {
            url,
            mode,
            is_async,
            workers,
            terms,
            calls,
            poll_interval_ms,
            grace_ms,
            accounting,
            own_connections,
            network_timeout_ms,
            held_sessions,
            error_text_limit,
            breaks,
        } = &self.options;
        let mut command = Command::new(env::current_exe()?);
        command.args(["worker", "--url", url, "--mode", &name_of(mode)]);
        command.arg("--calls").arg(calls);
        command.args(["--accounting", &name_of(accounting), "--workers", &workers.to_string()]);
        command.args(["--grace-ms", &grace_ms.to_string(), "--poll-interval-ms", &poll_interval_ms.to_string()]);
        command.args(["--network-timeout-ms", &network_timeout_ms.to_string()]);
        command.args(["--terms", &name_of(terms), "--error-text-limit", &error_text_limit.to_string()]);
        command.args(["--held-sessions", &held_sessions.to_string()]);
        if *is_async {
            command.arg("--is-async");
        }
        if *own_connections {
            command.arg("--own-connections");
        }
        for each in breaks {
            command.args(["--break", &each.to_string()]);
        }
        let child = command
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(File::create(&said)?)
            .stderr(File::create(self.directory.join(format!("worker-{number}.log")))?)
            .spawn()
            .context("no worker process")?;
        Ok(Worker { child, said })
    }
}

/// How a value is spelled on the command line.
pub(crate) fn name_of<V: ValueEnum>(value: &V) -> String {
    value.to_possible_value().expect("no value is skipped").get_name().to_owned()
}

/// A worker process. It is killed when it is dropped.
pub(crate) struct Worker {
    child: Child,
    said: PathBuf,
}

impl Worker {
    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The process, as /proc shows it.
    pub(crate) fn process(&self) -> Result<Process> {
        process(self.id())
    }

    /// The lines that it has printed so far, without an unfinished one.
    pub(crate) fn said(&self) -> Result<Vec<Said>> {
        let text = fs::read_to_string(&self.said)?;
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
    }

    /// Everything that it has written to its standard error.
    pub(crate) fn log(&self) -> String {
        fs::read(self.said.with_extension("log"))
            .map_or_else(|error| error.to_string(), |log| String::from_utf8_lossy(&log).into_owned())
    }

    /// Whether it has printed that it claims payments.
    pub(crate) fn has_started(&self) -> bool {
        fs::metadata(&self.said).is_ok_and(|file| file.len() > 0)
    }

    /// Its exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits until it claims payments.
    pub(crate) fn await_start(&mut self, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        while !self.has_started() {
            if let Some(status) = self.ended()? {
                bail!("a worker ended with {status}: {}", self.log());
            }
            ensure!(Instant::now() < deadline, "a worker does not start: {}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Waits for its end.
    pub(crate) fn await_end(&mut self, patience: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            ensure!(Instant::now() < deadline, "a worker does not end within {patience:?}: {}", self.log());
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        send(self.child.id(), signal)
    }

    /// Kills it as `kill -9` does, and returns when it is gone.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Shuts it down in good order, and returns its tally.
    pub(crate) fn shut_down(&mut self, patience: Duration) -> Result<Tally> {
        self.signal(Signal::TERM)?;
        let status = self.await_end(patience)?;
        ensure!(status.success(), "a worker ended with {status}: {}", self.log());
        match self.said()?.pop() {
            Some(Said::Ended { tally, .. }) => Ok(tally),
            said => bail!("a worker ended well and said {said:?} last"),
        }
    }
}

/// The process with this id, as /proc shows it.
pub(crate) fn process(id: u32) -> Result<Process> {
    Ok(Process::new(i32::try_from(id)?)?)
}

/// Kills the worker with this id as `kill -9` does. It must be one that nobody has waited for yet.
pub(crate) fn kill(id: u32) -> Result<()> {
    send(id, Signal::KILL)
}

fn send(id: u32, signal: Signal) -> Result<()> {
    let id = Pid::from_raw(i32::try_from(id)?).context("no process")?;
    Ok(kill_process(id, signal).map_err(io::Error::from)?)
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
