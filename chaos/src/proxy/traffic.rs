//! The state that a proxy's connections share, and the threads that carry their bytes.

use std::collections::VecDeque;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::link::{self, Cut, Link, PACE, lock, take_down};
use super::messages::{Import, Message, Messages, prepared, says_committed, says_outcome};
use crate::session::Dialect;

/// How many commits have passed and were cut so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) connections: u64,
    pub(crate) commits: u64,
    /// How many commits were cut and did not reach the server.
    pub(crate) cut_before: u64,
    /// How many were cut that the server reported as committed.
    pub(crate) cut_after: u64,
    /// How many of those reached the server after the client was gone.
    pub(crate) cut_late: u64,
    /// How many were cut that the server refused or did not answer.
    pub(crate) cut_refused: u64,
}

impl Counts {
    /// How many commits were cut, of those whose outcome the proxy knows.
    pub(crate) fn cuts(&self) -> u64 {
        self.cut_before + self.cut_after + self.cut_refused
    }
}

/// What happens to connections at a message of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The message's connection passes nothing any more, for ever.
    Silence,
    /// None of the connections does.
    SilenceOfAll,
    /// The same, and new ones are accepted and pass nothing either, until [`Proxy::recover`](super::Proxy::recover).
    AcceptsOnly,
    /// The message's connection is reset.
    Reset,
}

pub(super) type Hook = Arc<dyn Fn(u64) + Send + Sync>;

/// The state that the threads of a proxy share.
pub(super) struct Traffic {
    pub(super) dialect: Dialect,
    /// Host and port of the server.
    pub(super) target: String,
    pub(super) orders: Mutex<Orders>,
    /// Notified when waiting threads should look again.
    pub(super) changed: Condvar,
    pub(super) links: Mutex<Vec<Weak<Link>>>,
    pub(super) hook: Mutex<Option<Hook>>,
    pub(super) threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
pub(super) struct Orders {
    pub(super) is_stopping: bool,
    pub(super) refuses: bool,
    pub(super) stalled_until: Option<Instant>,
    pub(super) cuts: VecDeque<Cut>,
    /// After how many more messages of clients there is trouble, and which.
    pub(super) trouble: Option<(u64, Trouble)>,
    /// Whether new connections pass nothing on.
    pub(super) accepts_only: bool,
    /// How long each message of a client takes.
    pub(super) delay: Duration,
    pub(super) counts: Counts,
}

impl Traffic {
    pub(super) fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.orders().is_stopping {
                return;
            }
            // The client is gone again, or too many files are open; the next client may have more luck.
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
        if self.orders().accepts_only {
            link.blacken();
        }
        lock(&self.links).push(Arc::downgrade(&link));
        if self.orders().is_stopping {
            return link.reset();
        }
        thread::scope(|scope| {
            scope.spawn(|| self.carry_answers(&link));
            self.carry_messages(&link);
        });
    }

    /// Waits until a link's bytes may pass. Returns false if the link must end instead.
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
    pub(super) fn wait(&self, until: Instant) {
        let mut orders = self.orders();
        while let Some(rest) = until.checked_duration_since(Instant::now()).filter(|_| !orders.is_stopping) {
            orders = self.changed.wait_timeout(orders, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn orders(&self) -> MutexGuard<'_, Orders> {
        lock(&self.orders)
    }

    pub(super) fn links(&self) -> Vec<Arc<Link>> {
        let mut links = lock(&self.links);
        links.retain(|link| link.strong_count() > 0);
        links.iter().filter_map(Weak::upgrade).collect()
    }

    /// Keeps a thread's handle, so that the proxy can wait for it.
    pub(super) fn keep(&self, thread: JoinHandle<()>) {
        let mut threads = lock(&self.threads);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
    }

    /// Carries the client's messages, one by one, to the end.
    fn carry_messages(&self, link: &Link) {
        let mut messages = Messages::of(self.dialect);
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match link.read(&link.client, &mut buffer) {
                Ok([]) if self.may_pass(link) => return link.finish(&link.server),
                Ok(bytes) => messages.feed(bytes),
                Err(_) => {
                    // Even the end of a connection does not pass during a blackout.
                    if self.may_pass(link) {
                        link.reset();
                    }
                    return;
                }
            }
            while let Some(message) = messages.next() {
                self.meet_trouble(link);
                if !self.may_pass(link) {
                    return;
                }
                if !self.pass(link, &message) {
                    return link.reset();
                }
                if lock(&link.client).is_none() {
                    // The other thread still waits for the answer to a late COMMIT.
                    return;
                }
            }
        }
    }

    /// Counts a message, and makes trouble if it is the one.
    fn meet_trouble(&self, link: &Link) {
        let (trouble, delay) = {
            let mut orders = self.orders();
            match &mut orders.trouble {
                Some((0, trouble)) => {
                    let trouble = *trouble;
                    orders.trouble = None;
                    orders.accepts_only = trouble == Trouble::AcceptsOnly;
                    (Some(trouble), orders.delay)
                }
                Some((messages, _)) => {
                    *messages -= 1;
                    (None, orders.delay)
                }
                None => (None, orders.delay),
            }
        };
        match trouble {
            Some(Trouble::Silence) => link.blacken(),
            Some(Trouble::SilenceOfAll | Trouble::AcceptsOnly) => self.links().iter().for_each(|link| link.blacken()),
            Some(Trouble::Reset) => link.reset(),
            None => {}
        }
        if !delay.is_zero() {
            self.wait(Instant::now() + delay);
        }
    }

    /// Carries the server's answers.
    fn carry_answers(&self, link: &Link) {
        let (mut buffer, mut to_cut) = (vec![0; 64 * 1024], Vec::new());
        loop {
            let read = link.read(&link.server, &mut buffer);
            if !self.may_pass(link) {
                return;
            }
            let turn = lock(&link.answers);
            let cut = *lock(&link.cut);
            if let Some(cut) = cut {
                let answer = read.unwrap_or_default();
                to_cut.extend_from_slice(answer);
                if !answer.is_empty() && !says_outcome(self.dialect, &to_cut) {
                    // It answers what the client has sent before the COMMIT.
                    continue;
                }
                lock(&link.cut).take();
                let committed = says_committed(self.dialect, &to_cut);
                let counts = &mut self.orders().counts;
                counts.cut_after += u64::from(committed);
                counts.cut_late += u64::from(committed && matches!(cut, Cut::Late(_)));
                counts.cut_refused += u64::from(!committed);
                return link.reset();
            }
            match read {
                Ok([]) => return link.finish(&link.client),
                Ok(bytes) => {
                    // Before the answer passes, because the client uses the number then.
                    if link.prepares_commit.swap(false, Ordering::SeqCst) {
                        lock(&link.commits).extend(prepared(bytes));
                    }
                    if link.write(&link.client, bytes).is_err() {
                        return link.reset();
                    }
                }
                Err(_) => return link.reset(),
            }
            drop(turn);
        }
    }

    /// Passes a message on, or cuts it. Says whether the connection goes on.
    fn pass(&self, link: &Link, message: &Message) -> bool {
        let commits = match message.import {
            Import::None => false,
            Import::Commits => true,
            Import::PreparesCommit => {
                link.prepares_commit.store(true, Ordering::SeqCst);
                false
            }
            Import::Executes(statement) => lock(&link.commits).contains(&statement),
        };
        if !commits {
            return link.write(&link.server, &message.bytes).is_ok();
        }
        let (number, cut) = {
            let mut orders = self.orders();
            orders.counts.commits += 1;
            let cut = orders.cuts.pop_front();
            orders.counts.cut_before += u64::from(cut == Some(Cut::Before));
            (orders.counts.commits, cut)
        };
        let answers = lock(&link.answers);
        match cut {
            Some(Cut::Before) => return false,
            Some(Cut::Late(delay)) => {
                take_down(&link.client);
                self.wait(Instant::now() + delay);
            }
            Some(Cut::After) | None => {}
        }
        *lock(&link.cut) = cut;
        let passed = link.write(&link.server, &message.bytes).is_ok();
        let hook = lock(&self.hook).clone();
        if let Some(hook) = hook.filter(|_| passed) {
            hook(number);
        }
        drop(answers);
        passed
    }
}
