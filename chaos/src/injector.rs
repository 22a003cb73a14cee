//! Makes the faults: on worker processes, on their server, and on the connections in between.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use crate::options::{Action, Break};
use crate::place::Server;
use crate::proxy::Proxy;
use crate::schedule::{Fault, Strike};
use crate::session::{Dialect, connect};
use crate::worker::{Recipe, Said, Worker};

/// How long a worker process may take to start, or to end in good order.
const PATIENCE: Duration = Duration::from_secs(30);

/// Makes the faults, and keeps the worker processes running.
pub(crate) struct Injector {
    url: String,
    server: Arc<Server>,
    /// The proxy through which the workers reach their server, if it has a network.
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
    /// Whether it was asked to shut down, and had its signal handler by then.
    told_to_end: bool,
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
        let posts = (0..processes).map(|_| Ok(Post { worker: recipe.start()?, armed: None, told_to_end: false }));
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
        // Last, because a dead server could not end its sessions.
        let (last, first): (Vec<_>, Vec<_>) =
            strike.faults.iter().partition(|fault| matches!(fault, Fault::KillServer { .. }));
        for fault in first.into_iter().chain(last) {
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
                // A process that still waits for its database has no signal handler yet.
                post.told_to_end = post.worker.has_started();
                post.worker.signal(if post.told_to_end { Signal::TERM } else { Signal::KILL })?;
            }
            Fault::Break { worker, point, pass } => {
                let post = &mut self.posts[*worker];
                post.worker.kill()?;
                let broken = Break { point: (*point).to_owned(), pass: *pass, again: false, action: Action::Kill };
                *post = Post {
                    worker: self.recipe.clone().breaks([broken]).start()?,
                    armed: Some(point),
                    told_to_end: false,
                };
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
                let killed = status.signal() == Some(Signal::KILL.as_raw());
                // An armed process may reach its fail point while it shuts down.
                let may_be_killed = !post.told_to_end || post.armed.is_some();
                if !(status.success() || killed && may_be_killed) {
                    bail!("a worker that was told to end ended with {status}: {}", post.worker.log());
                }
                self.staff(*worker)?;
            }
            // It ends when it reaches its fail point: see `tend`.
            Fault::Break { .. } => {}
            // The proxy cuts the remaining ones when they come.
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

    /// Starts a new process in this post.
    fn staff(&mut self, worker: usize) -> Result<()> {
        self.posts[worker] = Post { worker: self.recipe.start()?, armed: None, told_to_end: false };
        Ok(())
    }

    /// Replaces the processes that have ended at their fail points. No process may end in another way.
    pub(crate) fn tend(&mut self) -> Result<()> {
        for number in 0..self.posts.len() {
            let post = &mut self.posts[number];
            let Some(status) = post.worker.ended()? else { continue };
            let Some(point) = post.armed else { bail!("a worker ended with {status}: {}", post.worker.log()) };
            let reached = post.worker.said()?.iter().any(|said| matches!(said, Said::Reached { .. }));
            ensure!(
                reached && status.signal() == Some(Signal::KILL.as_raw()),
                "a worker with a fail point ended with {status}: {}",
                post.worker.log()
            );
            self.reached.insert(point.to_owned());
            *self.counts.entry("fail point reached").or_default() += 1;
            self.staff(number)?;
        }
        Ok(())
    }

    /// The process ids.
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

    /// The fail points at which a process has ended.
    pub(crate) fn reached(&self) -> &BTreeSet<String> {
        &self.reached
    }

    /// The longest time from a SIGTERM to the end of the process.
    pub(crate) fn slowest_end(&self) -> Duration {
        self.slowest_end
    }

    /// Shuts every process down in good order, after the faults.
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

/// Ends every session with the database except its own.
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
                // A session that has ended meanwhile needs no killing.
                let _ = session.run(&format!("KILL CONNECTION {id}"));
            }
        }
        Dialect::Sqlite => bail!("SQLite has no sessions that others could end"),
    }
    Ok(())
}
