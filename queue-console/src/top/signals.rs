//! Signals that end the program. The terminal is given back first.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::{emulate_default_handler, unregister};
use signal_hook::{SigId, flag};

use super::terminal::give_back;

/// How long the screen may take to end by itself.
const GRACE: Duration = Duration::from_secs(2);

/// How often somebody looks for a signal.
const PACE: Duration = Duration::from_millis(100);

#[cfg(unix)]
const ENDS: [i32; 4] = [SIGINT, SIGTERM, signal_hook::consts::SIGHUP, signal_hook::consts::SIGQUIT];
#[cfg(not(unix))]
const ENDS: [i32; 2] = [SIGINT, SIGTERM];

/// Notes signals, as long as it lives.
pub(super) struct Signals {
    noted: Arc<AtomicUsize>,
    registered: Vec<SigId>,
    /// Nothing is sent: it tells the watch that the screen has ended.
    _screen: Sender<()>,
}

impl Signals {
    pub(super) fn watch() -> io::Result<Self> {
        let noted = Arc::new(AtomicUsize::new(0));
        let register =
            |signal: &i32| flag::register_usize(*signal, noted.clone(), usize::try_from(*signal).unwrap_or(0));
        let registered = ENDS.iter().map(register).collect::<io::Result<_>>()?;
        let (screen, ended) = channel();
        let of_watch = noted.clone();
        // Who writes to a terminal that nobody reads may wait for ever. A person who loses the connection to the machine would leave
        // a program behind.
        thread::spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(PACE) {
                let Some(signal) = signal(&of_watch) else { continue };
                if ended.recv_timeout(GRACE) == Err(RecvTimeoutError::Timeout) {
                    end_by(signal);
                }
            }
        });
        Ok(Signals { noted, registered, _screen: screen })
    }

    /// Returns the signal that has arrived.
    pub(super) fn noted(&self) -> Option<i32> {
        signal(&self.noted)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            unregister(id);
        }
    }
}

fn signal(noted: &AtomicUsize) -> Option<i32> {
    i32::try_from(noted.load(Ordering::SeqCst)).ok().filter(|signal| *signal != 0)
}

/// Ends the program as the signal does without a handler, so that its parent sees the signal.
pub(super) fn end_by(signal: i32) {
    give_back();
    let _ = emulate_default_handler(signal);
}

/// Stops the program until the shell continues it.
pub(super) fn suspend() {
    give_back();
    #[cfg(unix)]
    let _ = emulate_default_handler(signal_hook::consts::SIGTSTP);
}
