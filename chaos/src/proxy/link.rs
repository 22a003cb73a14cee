//! One connection through the proxy: its two ends, and how bytes are carried between them.

use std::collections::HashSet;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;

use super::messages::{Import, Message, Messages, prepared, says_committed};
use super::{Cut, PACE, Traffic, lock};

/// A client and the server that it is connected with. An end that is taken out is closed as soon as nobody reads from it.
pub(super) struct Link {
    client: Mutex<Option<Arc<TcpStream>>>,
    server: Mutex<Option<Arc<TcpStream>>>,
    /// Held by who lets no answer pass.
    answers: Mutex<()>,
    /// How the COMMIT is cut whose answer is to come.
    cut: Mutex<Option<Cut>>,
    /// Whether the answer to come tells the number of a prepared statement that commits.
    prepares_commit: AtomicBool,
    /// The numbers of the prepared statements that commit.
    commits: Mutex<HashSet<u32>>,
    is_black: AtomicBool,
}

impl Link {
    pub(super) fn between(client: TcpStream, server: TcpStream) -> io::Result<Self> {
        for end in [&client, &server] {
            end.set_nodelay(true)?;
            // A client that is frozen reads nothing: whoever writes to it has to look up now and then.
            end.set_write_timeout(Some(PACE))?;
        }
        Ok(Link {
            client: Mutex::new(Some(Arc::new(client))),
            server: Mutex::new(Some(Arc::new(server))),
            answers: Mutex::new(()),
            cut: Mutex::new(None),
            prepares_commit: AtomicBool::new(false),
            commits: Mutex::default(),
            is_black: AtomicBool::new(false),
        })
    }

    /// Ends it with a reset on either side.
    pub(super) fn reset(&self) {
        take_down(&self.client);
        take_down(&self.server);
    }

    pub(super) fn is_reset(&self) -> bool {
        lock(&self.server).is_none()
    }

    /// Lets nothing pass from now on.
    pub(super) fn blacken(&self) {
        self.is_black.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_black(&self) -> bool {
        self.is_black.load(Ordering::Relaxed)
    }

    /// Reads from an end; nothing when it is closed in good order.
    fn read<'a>(&self, end: &Mutex<Option<Arc<TcpStream>>>, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
        let stream = lock(end).clone().ok_or(ErrorKind::NotConnected)?;
        loop {
            match (&*stream).read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read.map(|length| &buffer[..length]),
            }
        }
    }

    fn write(&self, end: &Mutex<Option<Arc<TcpStream>>>, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let stream = lock(end).clone().ok_or(ErrorKind::NotConnected)?;
            match (&*stream).write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Tells an end that nothing more comes.
    fn finish(&self, end: &Mutex<Option<Arc<TcpStream>>>) {
        if let Some(stream) = &*lock(end) {
            let _ = stream.shutdown(Shutdown::Write);
        }
    }
}

/// Has a connection be reset when it is closed, and wakes who reads from it.
pub(super) fn reset(stream: &TcpStream) {
    let _ = set_socket_linger(stream, Some(Duration::ZERO));
    // Only this half: the other would tell the peer of an end in good order.
    let _ = stream.shutdown(Shutdown::Read);
}

fn take_down(end: &Mutex<Option<Arc<TcpStream>>>) {
    if let Some(stream) = lock(end).take() {
        reset(&stream);
    }
}

impl Traffic {
    /// Carries what the client sends, message by message, until there is no more.
    pub(super) fn carry_messages(&self, link: &Link) {
        let mut messages = Messages::of(self.dialect);
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match link.read(&link.client, &mut buffer) {
                Ok([]) if self.may_pass(link) => return link.finish(&link.server),
                Ok(bytes) => messages.feed(bytes),
                Err(_) => {
                    // Also the end of a connection passes through a black one only when that is over.
                    if self.may_pass(link) {
                        link.reset();
                    }
                    return;
                }
            }
            while let Some(message) = messages.next() {
                if !self.may_pass(link) {
                    return;
                }
                if !self.pass(link, &message) {
                    return link.reset();
                }
                if lock(&link.client).is_none() {
                    // The other thread still waits for the answer to a COMMIT that came late.
                    return;
                }
            }
        }
    }

    /// Carries what the server answers.
    pub(super) fn carry_answers(&self, link: &Link) {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = link.read(&link.server, &mut buffer);
            if !self.may_pass(link) {
                return;
            }
            let turn = lock(&link.answers);
            if let Some(cut) = lock(&link.cut).take() {
                let committed = read.as_ref().is_ok_and(|answer| says_committed(self.dialect, answer));
                let counts = &mut self.orders().counts;
                counts.cut_after += u64::from(committed);
                counts.cut_late += u64::from(committed && matches!(cut, Cut::Late(_)));
                counts.cut_refused += u64::from(!committed);
                return link.reset();
            }
            match read {
                Ok([]) => return link.finish(&link.client),
                Ok(bytes) => {
                    // Before the client can use the number.
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

    /// Passes a message on, or cuts it. Whether the connection goes on.
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
