//! One connection through the proxy, with its two ends.

use std::collections::HashSet;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

/// A way to cut a COMMIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The COMMIT does not reach the server; the client's connection is reset.
    Before,
    /// The server commits; instead of its answer, the client gets a reset.
    After,
    /// The client's connection is reset at once, and the COMMIT reaches the server this much later.
    Late(Duration),
}

/// How often a waiting thread checks whether it may go on.
pub(super) const PACE: Duration = Duration::from_millis(10);

/// Locks, also after another thread's panic: the threads never leave the shared state half changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A client and its server. An end that is taken out is closed as soon as no thread reads from it.
pub(super) struct Link {
    pub(super) client: Mutex<Option<Arc<TcpStream>>>,
    pub(super) server: Mutex<Option<Arc<TcpStream>>>,
    /// Held by a thread that lets no answer pass.
    pub(super) answers: Mutex<()>,
    /// How to cut the COMMIT whose answer comes next.
    pub(super) cut: Mutex<Option<Cut>>,
    /// Whether the next answer has the number of a prepared statement that commits.
    pub(super) prepares_commit: AtomicBool,
    /// The numbers of the prepared statements that commit.
    pub(super) commits: Mutex<HashSet<u32>>,
    is_black: AtomicBool,
}

impl Link {
    pub(super) fn between(client: TcpStream, server: TcpStream) -> io::Result<Self> {
        for end in [&client, &server] {
            end.set_nodelay(true)?;
            // A frozen client reads nothing, so a thread that writes to it must wake up now and then.
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

    /// Resets the connection on both sides.
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

    /// Reads from an end. No bytes mean that it was closed in good order.
    pub(super) fn read<'a>(&self, end: &Mutex<Option<Arc<TcpStream>>>, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
        let stream = lock(end).clone().ok_or(ErrorKind::NotConnected)?;
        loop {
            match (&*stream).read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read.map(|length| &buffer[..length]),
            }
        }
    }

    pub(super) fn write(&self, end: &Mutex<Option<Arc<TcpStream>>>, mut bytes: &[u8]) -> io::Result<()> {
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

    /// Tells an end that no more bytes come.
    pub(super) fn finish(&self, end: &Mutex<Option<Arc<TcpStream>>>) {
        if let Some(stream) = &*lock(end) {
            let _ = stream.shutdown(Shutdown::Write);
        }
    }
}

/// Makes closing the connection send a reset, and wakes the thread that reads from it.
pub(super) fn reset(stream: &TcpStream) {
    let _ = set_socket_linger(stream, Some(Duration::ZERO));
    // Only the reading half: closing the other would tell the peer of an orderly end.
    let _ = stream.shutdown(Shutdown::Read);
}

pub(super) fn take_down(end: &Mutex<Option<Arc<TcpStream>>>) {
    if let Some(stream) = lock(end).take() {
        reset(&stream);
    }
}
