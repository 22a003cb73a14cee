//! The watchdog: the one thread of a poller that asks the database nothing. It replaces the threads that the database does not
//! answer.
//!
//! A network, a proxy or a stopped server may take statements and say nothing, for ever, and the C libraries wait for as long.
//! Nothing can wake such a thread, so it is left behind, with its session: the scout ends that one as soon as it can. If the
//! answer comes after all, the thread commits nothing new, ends its turn and leaves.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::heartbeat::Heartbeat;
use super::post::{Duty, LeftBehind};
use super::reporter::Reporter;
use super::scout::Scout;
use super::shared::PollerShared;
use super::worker::Worker;
use crate::backend::QueueConnection;
use crate::crash::GATE;
use crate::error::Error;
use crate::event::ThreadConnection;
use crate::row::failure_text;

/// How often the watchdog looks while threads wait for their replacement.
const SOON: Duration = Duration::from_millis(50);

/// How many times the watchdog looks while a thread waits for as long as it may.
const LOOKS: u32 = 4;

/// Each replacement beyond as many as handlers may be stuck doubles the pause before the next one, up to so many times.
const LONGEST_REST: u32 = 5;

/// The watchdog of a poller.
pub(crate) struct Watchdog<C: QueueConnection> {
    shared: Arc<PollerShared<C>>,
    /// The threads that are to be replaced. They connect one after the other, so that a server that accepts connections and
    /// says nothing gets one thread at a time.
    missing: VecDeque<Missing>,
    /// When the next thread may be replaced.
    next: Instant,
}

/// A thread that is to be replaced.
struct Missing {
    duty: Duty,
    /// That its connection is lost.
    connection: ThreadConnection,
}

impl<C: QueueConnection> Watchdog<C> {
    /// Starts the watchdog.
    pub(crate) fn start(shared: &Arc<PollerShared<C>>) -> Result<(), Error> {
        let mut watchdog = Watchdog { shared: shared.clone(), missing: VecDeque::new(), next: Instant::now() };
        let watch = move || {
            while !watchdog.shared.board.has_ended() {
                let looked = catch_unwind(AssertUnwindSafe(|| {
                    watchdog.leave_silent_behind();
                    watchdog.replace_next();
                }));
                if let Err(panic) = looked {
                    // Of the application's code that redacts what is logged.
                    std::mem::forget(panic);
                }
                let posts = watchdog.shared.posts();
                let patience = posts.iter().map(|post| post.patience()).min().unwrap_or_default();
                let pause = if watchdog.missing.is_empty() { SOON.max(patience / LOOKS) } else { SOON };
                watchdog.shared.board.sleep_until_change(pause, SOON);
            }
        };
        shared.keep_thread(
            thread::Builder::new().name("queueable-watch".to_owned()).spawn(watch).map_err(Error::Thread)?,
        );
        Ok(())
    }

    fn leave_silent_behind(&mut self) {
        for post in self.shared.posts() {
            let Some(LeftBehind { duty, turn, row, waited }) = post.leave_behind_if_silent() else { continue };
            if let Duty::Worker(slot) = &duty {
                GATE.note_stuck(slot.gate_number());
            }
            if let (Some(row), Some(runner)) = (row, turn) {
                self.shared.runners[runner].put_back(row);
            }
            self.shared.board.leave_behind(turn);
            if let (Some(session), Some(since)) = (post.wait.session(), Instant::now().checked_sub(waited)) {
                self.shared.note_silent(session, since);
            }
            let text = format!("the database has not answered for {waited:?}");
            self.shared.log.warn("poller", &format!("{text}: another thread takes the place of {duty}"));
            let connection = post.connection.take();
            connection.loses(&|| text.clone());
            let missing = Missing { duty, connection };
            // A worker without these two is of no use.
            match missing.duty {
                Duty::Scout | Duty::Heartbeat => self.missing.push_front(missing),
                Duty::Worker(_) | Duty::Reporter => self.missing.push_back(missing),
            }
        }
    }

    /// Returns how long the next replacement waits. If the server is alive and answers nothing, as when its COMMITs wait for
    /// a replica, each thread that was left behind keeps a session, and the application needs sessions too.
    fn rest(&self) -> Duration {
        let settings = &self.shared.settings;
        let left = self.shared.posts().iter().filter(|post| post.is_left_behind()).count();
        let beyond = u32::try_from(left.saturating_sub(settings.most_stuck())).unwrap_or(u32::MAX);
        if beyond == 0 { Duration::ZERO } else { settings.patience().saturating_mul(1 << beyond.min(LONGEST_REST)) }
    }

    /// Replaces one of the threads that were left behind, unless a thread is connecting.
    fn replace_next(&mut self) {
        if self.shared.board.is_stopping() {
            // Calls that run to their end need their leases, and nothing begins any more.
            let needs_leases = !self.shared.board.has_revoked();
            self.missing.retain(|missing| needs_leases && matches!(missing.duty, Duty::Heartbeat));
        }
        if self.shared.posts().iter().any(|post| post.wait.connects() && !post.is_left_behind()) {
            return;
        }
        if Instant::now() < self.next {
            return;
        }
        let Some(Missing { duty, connection }) = self.missing.pop_front() else { return };
        self.next = Instant::now() + self.rest();
        let shared = self.shared.clone();
        let replaced = match &duty {
            Duty::Scout => Scout::new(shared, connection.clone()).spawn(None),
            Duty::Heartbeat => {
                Heartbeat::new(&shared, connection.clone()).map_or(Ok(()), |heartbeat| heartbeat.spawn(None))
            }
            Duty::Reporter => {
                Reporter::new(&shared, connection.clone(), true).map_or(Ok(()), |reporter| reporter.spawn(None))
            }
            Duty::Worker(_) => Worker::new(shared, connection.clone()).spawn("queueable-substitute".to_owned(), None),
        };
        if let Err(error) = replaced {
            self.shared.log.warn("poller", &failure_text(&error, 500));
            self.missing.push_back(Missing { duty, connection });
        }
    }
}
