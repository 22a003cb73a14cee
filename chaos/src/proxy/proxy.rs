//! A proxy between worker processes and a server, which knows where COMMIT is: it cuts, stalls and blackens connections.

mod link;
mod messages;

use std::collections::VecDeque;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use self::link::Link;
use crate::session::Dialect;

/// What happens to a COMMIT and to its client's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The COMMIT does not reach the server; the client's connection is reset.
    Before,
    /// The server commits; in place of its answer the client's connection is reset.
    After,
    /// The client's connection is reset at once, and the COMMIT reaches the server so much later.
    Late(Duration),
}

/// What has passed and what was cut so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) connections: u64,
    pub(crate) commits: u64,
    /// How many commits were cut and did not reach the server.
    pub(crate) cut_before: u64,
    /// How many were cut of which the server says that it has committed.
    pub(crate) cut_after: u64,
    /// How many of those reached the server when the client was gone already.
    pub(crate) cut_late: u64,
    /// How many were cut that the server refused, or did not answer.
    pub(crate) cut_refused: u64,
}

impl Counts {
    /// How many commits were cut, and their outcome is known here.
    pub(crate) fn cuts(&self) -> u64 {
        self.cut_before + self.cut_after + self.cut_refused
    }
}

/// A proxy on a port of its own. It ends, with all its connections, when it is dropped.
pub(crate) struct Proxy {
    traffic: Arc<Traffic>,
    port: u16,
    acceptor: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy in front of the server of this address.
    pub(crate) fn start(url: &str) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port for a proxy")?;
        let port = listener.local_addr()?.port();
        let traffic = Arc::new(Traffic {
            dialect: Dialect::of(url),
            target: host_and_port(url).with_context(|| format!("no server to stand before: {url}"))?.to_owned(),
            orders: Mutex::default(),
            changed: Condvar::new(),
            links: Mutex::default(),
            hook: Mutex::default(),
            threads: Mutex::default(),
        });
        let accepting = traffic.clone();
        let acceptor = Some(thread::spawn(move || accepting.accept(&listener)));
        Ok(Proxy { traffic, port, acceptor })
    }

    /// The same database, reached through the proxy.
    pub(crate) fn url_for(&self, url: &str) -> String {
        let through = format!("127.0.0.1:{}", self.port);
        host_and_port(url).map_or_else(|| url.to_owned(), |direct| url.replacen(direct, &through, 1))
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Cuts the next commits in these ways, one each.
    pub(crate) fn cut_commits(&self, cuts: impl IntoIterator<Item = Cut>) {
        self.traffic.orders().cuts.extend(cuts);
    }

    /// Lets no byte pass in either direction for so long. Returns at once.
    pub(crate) fn stall(&self, time: Duration) {
        self.traffic.orders().stalled_until = Some(Instant::now() + time);
    }

    /// Has the connections that there are swallow everything for so long, without a word to either side; then they are
    /// reset. New ones work. Returns at once.
    pub(crate) fn half_open(&self, time: Duration) {
        let links = self.traffic.links();
        for link in &links {
            link.blacken();
        }
        let traffic = self.traffic.clone();
        self.traffic.keep(thread::spawn(move || {
            traffic.wait(Instant::now() + time);
            for link in links {
                link.reset();
            }
        }));
    }

    /// Resets all connections.
    pub(crate) fn cut_all(&self) {
        for link in self.traffic.links() {
            link.reset();
        }
    }

    /// Whether new connections are reset at once.
    pub(crate) fn refuse(&self, refuses: bool) {
        self.traffic.orders().refuses = refuses;
    }

    /// Calls this at every COMMIT that was handed to the server, with its number, on the thread of its connection. Its answer
    /// does not pass before the call returns. It must not keep the proxy alive.
    pub(crate) fn on_commit(&self, hook: impl Fn(u64) + Send + Sync + 'static) {
        *lock(&self.traffic.hook) = Some(Arc::new(hook));
    }

    pub(crate) fn counts(&self) -> Counts {
        self.traffic.orders().counts
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.traffic.orders().is_stopping = true;
        self.traffic.changed.notify_all();
        // Wakes the acceptor, which is the last to add connections.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        self.cut_all();
        let threads = std::mem::take(&mut *lock(&self.traffic.threads));
        for thread in threads {
            let _ = thread.join();
        }
    }
}

type Hook = Arc<dyn Fn(u64) + Send + Sync>;

/// What the threads of a proxy share.
struct Traffic {
    dialect: Dialect,
    /// Host and port of the server.
    target: String,
    orders: Mutex<Orders>,
    /// Told when a thread that waits should look again.
    changed: Condvar,
    links: Mutex<Vec<Weak<Link>>>,
    hook: Mutex<Option<Hook>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Orders {
    is_stopping: bool,
    refuses: bool,
    stalled_until: Option<Instant>,
    cuts: VecDeque<Cut>,
    counts: Counts,
}

impl Traffic {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.orders().is_stopping {
                return;
            }
            // A client that is gone again, or too many open files: the next one may be luckier.
            let Ok(client) = client else { continue };
            self.orders().counts.connections += 1;
            let traffic = self.clone();
            self.keep(thread::spawn(move || traffic.connect(client)));
        }
    }

    /// Serves one connection to its end.
    fn connect(self: Arc<Self>, client: TcpStream) {
        let server = if self.orders().refuses { None } else { TcpStream::connect(&self.target).ok() };
        let Some(server) = server else { return link::reset(&client) };
        let Ok(link) = Link::between(client, server).map(Arc::new) else { return };
        lock(&self.links).push(Arc::downgrade(&link));
        if self.orders().is_stopping {
            return link.reset();
        }
        thread::scope(|scope| {
            scope.spawn(|| self.carry_answers(&link));
            self.carry_messages(&link);
        });
    }

    /// Waits until a link's bytes may pass; they may not any more if it says so.
    fn may_pass(&self, link: &Link) -> bool {
        let mut orders = self.orders();
        loop {
            if orders.is_stopping || link.is_reset() {
                return false;
            }
            let is_stalled = orders.stalled_until.is_some_and(|until| Instant::now() < until);
            if !is_stalled && !link.is_black() {
                return true;
            }
            orders = self.changed.wait_timeout(orders, PACE).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until then, or until the proxy ends.
    fn wait(&self, until: Instant) {
        let mut orders = self.orders();
        while let Some(rest) = until.checked_duration_since(Instant::now()).filter(|_| !orders.is_stopping) {
            orders = self.changed.wait_timeout(orders, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn orders(&self) -> MutexGuard<'_, Orders> {
        lock(&self.orders)
    }

    fn links(&self) -> Vec<Arc<Link>> {
        let mut links = lock(&self.links);
        links.retain(|link| link.strong_count() > 0);
        links.iter().filter_map(Weak::upgrade).collect()
    }

    /// Keeps a thread until the proxy ends, or it ends before.
    fn keep(&self, thread: JoinHandle<()>) {
        let mut threads = lock(&self.threads);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
    }
}

/// How often a thread looks whether it may go on.
const PACE: Duration = Duration::from_millis(10);

/// What the threads share is whole at every moment, whoever panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `host:port` of an address that names one server.
fn host_and_port(url: &str) -> Option<&str> {
    let rest = url.split_once("://")?.1;
    let authority = rest.split(['/', '?']).next()?;
    Some(authority.rsplit_once('@').map_or(authority, |(_, server)| server))
}
