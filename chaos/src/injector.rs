//! Which faults come when, decided by the seed alone; and how each is made.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use crate::db::Server;
use crate::options::{Action, Backend, Break, Mode};
use crate::proxy::{Cut, Proxy};
use crate::session::{Dialect, connect};
use crate::worker::{Recipe, Worker};

/// How long a worker process may take to start, or to end in good order.
const PATIENCE: Duration = Duration::from_secs(30);

/// One thing that goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// `kill -9` of a worker process, and its restart.
    Kill { worker: usize },
    /// A worker process is stopped for a while, as a debugger or a host that is moved does it.
    Freeze { worker: usize, millis: u64 },
    /// A worker process is told to end, and started anew.
    Restart { worker: usize },
    /// A worker process that ends as by `kill -9` when it passes a fail point.
    Break { worker: usize, point: &'static str, pass: u64 },
    /// Every session with the database is ended, the application's too.
    EndSessions,
    /// `kill -9` of the database's server, and its restart after a while.
    KillServer { millis: u64 },
    /// The next commits are cut by the proxy: before they arrive, after they took place, or while they are on their way.
    CutCommits { cuts: Vec<Cut> },
    /// No byte passes between the workers and their server for a while.
    Stall { millis: u64 },
    /// The connections there are swallow everything for a while, and are reset then.
    HalfOpen { millis: u64 },
    /// All connections of the workers are reset.
    CutAll,
}

impl Fault {
    /// Its kind, as it is counted.
    fn kind(&self) -> &'static str {
        match self {
            Fault::Kill { .. } => "kill",
            Fault::Freeze { .. } => "freeze",
            Fault::Restart { .. } => "restart",
            Fault::Break { .. } => "fail point",
            Fault::EndSessions => "sessions ended",
            Fault::KillServer { .. } => "server killed",
            Fault::CutCommits { .. } => "commits cut",
            Fault::Stall { .. } => "stall",
            Fault::HalfOpen { .. } => "half-open connections",
            Fault::CutAll => "connections cut",
        }
    }

    fn worker(&self) -> Option<usize> {
        match self {
            Fault::Kill { worker } | Fault::Restart { worker } => Some(*worker),
            Fault::Freeze { worker, .. } | Fault::Break { worker, .. } => Some(*worker),
            _ => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Kill { worker } | Fault::Restart { worker } => write!(f, "{} of worker {worker}", self.kind()),
            Fault::Freeze { worker, millis } => write!(f, "freeze of worker {worker} for {millis} ms"),
            Fault::Break { worker, point, pass } => write!(f, "worker {worker} ends at pass {pass} of {point}"),
            Fault::EndSessions | Fault::CutAll => f.write_str(self.kind()),
            Fault::KillServer { millis } => write!(f, "server killed for {millis} ms"),
            Fault::CutCommits { cuts } => write!(f, "commits cut: {cuts:?}"),
            Fault::Stall { millis } | Fault::HalfOpen { millis } => write!(f, "{} for {millis} ms", self.kind()),
        }
    }
}

/// What goes wrong at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Strike {
    /// Counted from the beginning of the faults.
    pub(crate) at: Duration,
    pub(crate) faults: Vec<Fault>,
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: Vec<_> = self.faults.iter().map(Fault::to_string).collect();
        write!(f, "{:7.3} s: {}", self.at.as_secs_f64(), faults.join(", and "))
    }
}

/// What a schedule is drawn for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) backend: Backend,
    pub(crate) mode: Mode,
    /// How many worker processes there are.
    pub(crate) processes: usize,
    /// How many of them, the first ones, live from the beginning to the end.
    pub(crate) spared: usize,
}

/// The fail points that are passed in every mode.
const POINTS: &[&str] = &[
    "claimed",
    "sentinel",
    "releasing",
    "released",
    "recording",
    "recorded",
    "settled",
    "committing",
    "committed",
    "mid-handler",
    "effects",
];
/// Those of lease mode.
const LEASE_POINTS: &[&str] = &[
    "lease-claimed",
    "lease-called",
    "lease-locked",
    "lease-applied",
    "lease-expired",
    "heartbeat",
    "heartbeat-sent",
    "mid-handler",
    "effects",
    "settled",
    "committing",
    "committed",
    "recording",
    "recorded",
];

/// Draws a schedule. It depends on the seed and the terms alone, and a longer one begins as a shorter one does.
pub(crate) fn schedule(seed: u64, terms: Terms, length: Duration) -> Vec<Strike> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut strikes = Vec::new();
    let mut at = Duration::from_millis(500);
    while at < length {
        let mut faults = vec![draw(&mut random, terms)];
        if random.u8(..100) < 20 {
            // Two at once are more than one after the other: a server dies while a worker shuts down.
            let second = draw(&mut random, terms);
            if second.kind() != faults[0].kind() && (second.worker().is_none() || second.worker() != faults[0].worker())
            {
                faults.push(second);
            }
        }
        strikes.push(Strike { at, faults });
        at += Duration::from_millis(random.u64(150..1800));
    }
    strikes
}

fn draw(random: &mut fastrand::Rng, terms: Terms) -> Fault {
    let Terms { backend, mode, processes, spared } = terms;
    let any = random.usize(..processes);
    let worker = random.usize(spared..processes);
    let points = if mode == Mode::Lease { LEASE_POINTS } else { POINTS };
    match random.u8(..100) {
        0..18 => Fault::Kill { worker },
        // Shorter than the budget in the modes with a transaction: beyond it the server ends the session of a handler that
        // does not return, and that uses a try, as promised. Longer than the lease where there is one.
        18..26 if mode == Mode::Lease => Fault::Freeze { worker: any, millis: random.u64(100..4000) },
        18..26 => Fault::Freeze { worker: any, millis: random.u64(100..2500) },
        26..36 => Fault::Restart { worker },
        // Not at the first passes: a row that stands first after every restart would be taken for its process's end.
        36..54 => Fault::Break { worker, point: points[random.usize(..points.len())], pass: random.u64(3..40) },
        _ if backend == Backend::Sqlite => Fault::Kill { worker },
        54..64 => Fault::EndSessions,
        64..72 => Fault::KillServer { millis: random.u64(0..1500) },
        72..86 => Fault::CutCommits { cuts: (0..random.u8(1..12)).map(|_| draw_cut(random)).collect() },
        86..91 => Fault::Stall { millis: random.u64(50..2000) },
        91..95 => Fault::HalfOpen { millis: random.u64(50..2000) },
        _ => Fault::CutAll,
    }
}

fn draw_cut(random: &mut fastrand::Rng) -> Cut {
    match random.u8(..3) {
        0 => Cut::Before,
        1 => Cut::After,
        _ => Cut::Late(Duration::from_millis(random.u64(1..60))),
    }
}

/// Makes the faults, on the worker processes that it keeps, on their server, and on the way between them.
pub(crate) struct Injector {
    url: String,
    server: Arc<Server>,
    /// What the workers go through, where there is a network.
    proxy: Option<Proxy>,
    recipe: Recipe,
    posts: Vec<Post>,
    counts: BTreeMap<&'static str, u64>,
    reached: BTreeSet<String>,
    slowest_end: Duration,
}

/// One worker process, and whether it may end by itself.
struct Post {
    worker: Worker,
    armed: Option<&'static str>,
}

impl Injector {
    /// Starts the worker processes.
    pub(crate) fn new(url: &str, server: Arc<Server>, recipe: Recipe, processes: usize) -> Result<Self> {
        let proxy = (Dialect::of(url) != Dialect::Sqlite).then(|| Proxy::start(url)).transpose()?;
        let recipe = match &proxy {
            Some(proxy) => recipe.url(proxy.url_for(url)),
            None => recipe,
        };
        let posts = (0..processes).map(|_| Ok(Post { worker: recipe.start()?, armed: None }));
        let mut posts = posts.collect::<Result<Vec<_>>>()?;
        for post in &mut posts {
            post.worker.await_start(PATIENCE)?;
        }
        let (counts, reached) = (BTreeMap::new(), BTreeSet::new());
        let (url, slowest_end) = (url.to_owned(), Duration::ZERO);
        Ok(Injector { url, server, proxy, recipe, posts, counts, reached, slowest_end })
    }

    /// Makes the faults of one moment, and returns when they are over.
    pub(crate) fn strike(&mut self, strike: &Strike) -> Result<()> {
        let began = Instant::now();
        for fault in &strike.faults {
            *self.counts.entry(fault.kind()).or_default() += 1;
            self.begin(fault).with_context(|| fault.to_string())?;
        }
        for fault in &strike.faults {
            self.end(fault, began).with_context(|| fault.to_string())?;
        }
        Ok(())
    }

    fn begin(&mut self, fault: &Fault) -> Result<()> {
        match fault {
            Fault::Kill { worker } => self.posts[*worker].worker.kill()?,
            Fault::Freeze { worker, .. } => self.posts[*worker].worker.signal(Signal::STOP)?,
            Fault::Restart { worker } => {
                let post = &mut self.posts[*worker];
                // One that still waits for its database does not hear it.
                post.worker.signal(if post.worker.has_started() { Signal::TERM } else { Signal::KILL })?;
            }
            Fault::Break { worker, point, pass } => {
                let post = &mut self.posts[*worker];
                post.worker.kill()?;
                let broken = Break { point: (*point).to_owned(), pass: *pass, action: Action::Kill };
                *post = Post { worker: self.recipe.clone().breaks([broken]).start()?, armed: Some(point) };
            }
            Fault::EndSessions => end_sessions(&self.url)?,
            Fault::KillServer { .. } => self.server.kill(),
            Fault::CutCommits { cuts } => self.proxy()?.cut_commits(cuts.iter().copied()),
            Fault::Stall { millis } => self.proxy()?.stall(Duration::from_millis(*millis)),
            Fault::HalfOpen { millis } => self.proxy()?.half_open(Duration::from_millis(*millis)),
            Fault::CutAll => self.proxy()?.cut_all(),
        }
        Ok(())
    }

    fn end(&mut self, fault: &Fault, began: Instant) -> Result<()> {
        let after = |millis: &u64| Duration::from_millis(*millis).saturating_sub(began.elapsed());
        match fault {
            Fault::Kill { worker } => self.staff(*worker)?,
            Fault::Freeze { worker, millis } => {
                thread::sleep(after(millis));
                self.posts[*worker].worker.signal(Signal::CONT)?;
            }
            Fault::Restart { worker } => {
                let post = &mut self.posts[*worker];
                let told = Instant::now();
                let status = post.worker.await_end(PATIENCE)?;
                self.slowest_end = self.slowest_end.max(told.elapsed());
                if !status.success() && post.worker.has_started() && post.armed.is_none() {
                    bail!("a worker that was told to end ended with {status}: {}", post.worker.log());
                }
                self.staff(*worker)?;
            }
            // It ends when it comes to its fail point: see `tend`.
            Fault::Break { .. } => {}
            // What is not cut now is cut when it comes.
            Fault::EndSessions | Fault::CutAll | Fault::CutCommits { .. } => {}
            Fault::Stall { millis } | Fault::HalfOpen { millis } => thread::sleep(after(millis)),
            Fault::KillServer { millis } => {
                thread::sleep(after(millis));
                self.server.restart();
            }
        }
        Ok(())
    }

    fn proxy(&self) -> Result<&Proxy> {
        self.proxy.as_ref().context("there is no network to disturb")
    }

    /// How many commits were cut.
    pub(crate) fn commits_cut(&self) -> u64 {
        self.proxy.as_ref().map_or(0, |proxy| proxy.counts().cuts())
    }

    /// Starts the process of a post anew.
    fn staff(&mut self, worker: usize) -> Result<()> {
        self.posts[worker] = Post { worker: self.recipe.start()?, armed: None };
        Ok(())
    }

    /// Replaces the processes that have ended at their fail points. None may end otherwise.
    pub(crate) fn tend(&mut self) -> Result<()> {
        for number in 0..self.posts.len() {
            let post = &mut self.posts[number];
            let Some(status) = post.worker.ended()? else { continue };
            let Some(point) = post.armed else { bail!("a worker ended with {status}: {}", post.worker.log()) };
            ensure!(status.code().is_none(), "a worker with a fail point ended with {status}: {}", post.worker.log());
            self.reached.insert(point.to_owned());
            *self.counts.entry("fail point reached").or_default() += 1;
            self.staff(number)?;
        }
        Ok(())
    }

    /// The processes, by the numbers by which the system knows them.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.posts.iter().map(|post| post.worker.id()).collect()
    }

    /// How many processes were killed, which bounds how many rows can be set aside.
    pub(crate) fn kills(&self) -> u64 {
        ["kill", "fail point", "fail point reached"].iter().filter_map(|kind| self.counts.get(kind)).sum()
    }

    /// How many faults of each kind there were.
    pub(crate) fn counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.counts
    }

    /// At which fail points a process has ended.
    pub(crate) fn reached(&self) -> &BTreeSet<String> {
        &self.reached
    }

    /// The longest time from SIGTERM to the process's end.
    pub(crate) fn slowest_end(&self) -> Duration {
        self.slowest_end
    }

    /// With the faults off: ends every process in good order.
    pub(crate) fn shut_down(mut self) -> Result<()> {
        self.tend()?;
        for post in &mut self.posts {
            post.worker.await_start(PATIENCE)?;
            if post.armed.is_some() {
                post.worker.kill()?;
            } else {
                post.worker.shut_down(PATIENCE)?;
            }
        }
        Ok(())
    }
}

/// Ends every session with the database but the one that does it.
fn end_sessions(url: &str) -> Result<()> {
    let session = &mut *connect(url)?;
    match session.dialect() {
        Dialect::Postgres => {
            session.lines(
                "SELECT CAST(pg_terminate_backend(pid) AS TEXT) AS line FROM pg_stat_activity
                 WHERE datname = current_database() AND pid <> pg_backend_pid()",
            )?;
        }
        Dialect::Mysql => {
            let ids = session.lines(
                "SELECT CAST(id AS CHAR) AS line FROM information_schema.processlist
                 WHERE db = DATABASE() AND id <> CONNECTION_ID()",
            )?;
            for id in ids {
                // One that has ended meanwhile needs no killing.
                let _ = session.run(&format!("KILL CONNECTION {id}"));
            }
        }
        Dialect::Sqlite => bail!("SQLite has no sessions that others could end"),
    }
    Ok(())
}
