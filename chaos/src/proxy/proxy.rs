//! The proxy itself: it listens, takes orders, and ends.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::link::{Cut, lock};
use super::traffic::{Counts, Traffic, Trouble};
use crate::place::host_and_port;
use crate::session::Dialect;

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

    /// The address of the same database through the proxy.
    pub(crate) fn url_for(&self, url: &str) -> String {
        let through = format!("127.0.0.1:{}", self.port);
        host_and_port(url).map_or_else(|| url.to_owned(), |direct| url.replacen(direct, &through, 1))
    }

    /// The port on which it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Cuts the next commits in these ways, one each.
    pub(crate) fn cut_commits(&self, cuts: impl IntoIterator<Item = Cut>) {
        self.traffic.orders().cuts.extend(cuts);
    }

    /// Lets no bytes pass in either direction for this long. Returns at once.
    pub(crate) fn stall(&self, time: Duration) {
        self.traffic.orders().stalled_until = Some(Instant::now() + time);
    }

    /// Lets the open connections swallow all bytes for this long, and then resets them. New connections work. Returns at
    /// once.
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

    /// Makes trouble at a message of a client, after so many others.
    pub(crate) fn trouble_after(&self, messages: u64, trouble: Trouble) {
        self.traffic.orders().trouble = Some((messages, trouble));
    }

    /// Tells whether the trouble that was ordered has begun.
    pub(crate) fn has_troubled(&self) -> bool {
        self.traffic.orders().trouble.is_none()
    }

    /// Lets new connections work again.
    pub(crate) fn recover(&self) {
        self.traffic.orders().accepts_only = false;
    }

    /// Delays each message of a client by this much.
    pub(crate) fn delay(&self, delay: Duration) {
        self.traffic.orders().delay = delay;
    }

    /// Resets all connections.
    pub(crate) fn cut_all(&self) {
        for link in self.traffic.links() {
            link.reset();
        }
    }

    /// Sets whether new connections are reset at once.
    pub(crate) fn refuse(&self, refuses: bool) {
        self.traffic.orders().refuses = refuses;
    }

    /// Sets a function that is called with the number of each COMMIT that was sent to the server, on the thread of its
    /// connection. The server's answer passes only after the call returns. The function must not own the proxy.
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
