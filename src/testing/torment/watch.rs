//! What is seen of an attempt, and how the world ends in it.

use std::cell::RefCell;
use std::mem;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use diesel::connection::{Instrumentation, InstrumentationEvent};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use queue_core::internals::testing::{AtPoints, Thrown, at_points, second_call};

use crate::Error;

/// How many characters of a statement a story quotes.
const QUOTED: usize = 70;

/// How long a second call may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How the world ends at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The process is killed, or a lease is lost: nobody goes on from here.
    Killed,
    /// The database ends the transaction, as after a deadlock, and the statement returns its error.
    Deadlock,
    /// The worker takes the transaction, or the answer of a call, away, and records a failure.
    TimedOut,
    /// The lease is lost and another worker calls the handler meanwhile, from the beginning to the end; the first call goes on.
    Twice,
}

/// A point that an attempt has passed.
#[derive(Debug, Clone)]
pub(super) struct Point {
    /// What had happened.
    pub(super) after: String,
    /// What happened next, if anything did.
    pub(super) before: Option<String>,
    /// How the world may end here.
    pub(super) faults: &'static [Fault],
}

/// The payload of the panic that stands for the end of the process.
pub(super) struct Killed;

/// Watches the attempts on this thread, in the worker's code and on its connection.
#[derive(Clone, Default)]
pub(super) struct Watch(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    /// Whether a worker takes a turn.
    is_on: bool,
    /// Whether the statements are the handler's.
    is_in_handler: bool,
    is_leased: bool,
    /// Whether a call under a lease runs.
    is_in_call: bool,
    /// Whether the point of the next statement is passed already.
    is_passed: bool,
    is_dead: bool,
    /// Whether the turn has committed a row's new state.
    is_committed: bool,
    last: String,
    points: Vec<Point>,
    /// The number of the point at which the world ends, and how.
    end: Option<(usize, Fault)>,
    has_struck: bool,
    /// Whether it has ended in any turn.
    has_ended_once: bool,
    /// Whether a second call did not come to its end.
    is_stuck: bool,
}

thread_local! {
    static CURRENT: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

/// Says that something has just happened in the outside world, in a model of it that a test has: "the e-mail was sent".
///
/// A call of it in a mock is a further point at which [`torment`](crate::testing::torment) ends the world, and the story names it.
/// It counts on the thread of the worker. Elsewhere, and outside of torment, it does nothing. It unwinds where the world ends, so
/// hold no guard of a lock meanwhile that a second attempt needs.
///
/// ```
/// # use std::sync::Mutex;
/// use queueable::testing;
///
/// #[derive(Default)]
/// struct Mailbox(Mutex<Vec<String>>);
///
/// impl Mailbox {
///     fn send(&self, mail: &str) {
///         self.0.lock().unwrap().push(mail.to_owned());
///         testing::step("the e-mail was sent");
///     }
/// }
/// # Mailbox::default().send("hello");
/// ```
pub fn step(what: impl Into<String>) {
    if let Some(watch) = CURRENT.with_borrow(Clone::clone) {
        watch.step(what.into());
    }
}

/// Watches until it is dropped.
pub(super) struct Watching(#[expect(dead_code, reason = "it is kept")] AtPoints);

impl Drop for Watching {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

impl Watch {
    /// Ends the world in this way at the point with this number. `None`: nowhere.
    pub(super) fn ending(end: Option<(usize, Fault)>) -> Self {
        let watch = Watch::default();
        watch.seen().end = end;
        watch
    }

    /// Hears of the points on this thread.
    pub(super) fn watching(&self) -> Watching {
        CURRENT.set(Some(self.clone()));
        let watch = self.clone();
        Watching(at_points(move |name| watch.pass(name)))
    }

    pub(super) fn begin_turn(&self) {
        let mut seen = self.seen();
        (seen.is_on, seen.is_in_handler, seen.is_in_call) = (true, false, false);
        (seen.is_committed, seen.has_struck) = (false, false);
        "the worker looked for the row".clone_into(&mut seen.last);
    }

    pub(super) fn end_turn(&self) {
        let mut seen = self.seen();
        (seen.is_on, seen.is_dead) = (false, false);
    }

    /// Tells whether the turn has committed a row's new state.
    pub(super) fn is_committed(&self) -> bool {
        self.seen().is_committed
    }

    /// Tells whether the world has ended in this turn.
    pub(super) fn has_struck(&self) -> bool {
        self.seen().has_struck
    }

    /// Tells whether the world has ended in any turn.
    pub(super) fn has_ended_once(&self) -> bool {
        self.seen().has_ended_once
    }

    /// Returns an error if a second call waited for the first one.
    pub(super) fn check_second_call(&self) -> Result<(), Error> {
        if !self.seen().is_stuck {
            return Ok(());
        }
        Err(Error::Setting {
            setting: "the second call of a handler",
            found: format!("not at its end after {PATIENCE:?}, while the first one was at a `step`"),
            expected: "calls of `step` where no lock is held that a second call waits for",
        })
    }

    /// Returns the points, in the order in which they were passed.
    pub(super) fn points(&self) -> Vec<Point> {
        self.seen().points.clone()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a point of the worker's code.
    fn pass(&self, name: &'static str) {
        if !self.is_alive() {
            return;
        }
        match name {
            "claimed" => self.happened("the row was claimed"),
            "lease-claimed" => {
                self.seen().is_leased = true;
                self.happened("the row was leased");
            }
            "calling" => {
                self.point(&[Fault::Killed]);
                self.happened("the call began");
                self.seen().is_in_call = true;
            }
            "called" => {
                self.seen().is_in_call = false;
                self.happened("the call returned");
                self.point(&[Fault::Killed, Fault::TimedOut]);
            }
            "offering" => self.seen().is_in_handler = true,
            "offered" => {
                self.seen().is_in_handler = false;
                self.point(&[Fault::Killed]);
            }
            "sentinel" => {
                self.point(&[Fault::Killed]);
                let is_leased = self.seen().is_leased;
                self.happened(if is_leased { "the answer was being applied" } else { "the handler began" });
                self.seen().is_in_handler = true;
            }
            "handled" => {
                self.seen().is_in_handler = false;
                let is_leased = self.seen().is_leased;
                self.happened(if is_leased { "the answer was applied" } else { "the handler returned" });
                self.point(&[Fault::Killed, Fault::TimedOut]);
            }
            "committing" => {
                self.happened("the row's new state was written");
                self.point(&[Fault::Killed]);
            }
            "committed" => {
                self.seen().is_committed = true;
                self.happened("the commit");
                self.point(&[Fault::Killed]);
            }
            _ => {}
        }
    }

    /// Passes the beginning of a statement.
    fn statement(&self, text: impl FnOnce() -> String) {
        if self.is_alive() && self.seen().is_in_handler {
            self.point(&[Fault::Killed, Fault::Deadlock]);
            self.happened(&format!("`{}`", quoted(&text())));
        }
    }

    /// Passes the statement of Diesel's transaction manager that comes next.
    fn transaction(&self, text: &str) {
        self.statement(|| text.to_owned());
        self.seen().is_passed = true;
    }

    fn step(&self, what: String) {
        if self.is_alive() {
            self.happened(&what);
            let is_in_call = self.seen().is_in_call;
            self.point(if is_in_call { &[Fault::Killed, Fault::Twice] } else { &[Fault::Killed] });
        }
    }

    /// Tells whether a turn runs. After the end of the process, nothing runs on but the destructors.
    fn is_alive(&self) -> bool {
        let Seen { is_on, is_dead, .. } = *self.seen();
        if is_dead && !thread::panicking() {
            resume_unwind(Box::new(Killed));
        }
        is_on && !is_dead
    }

    fn happened(&self, what: &str) {
        let mut seen = self.seen();
        for point in seen.points.iter_mut().rev().take_while(|point| point.before.is_none()) {
            point.before = Some(what.to_owned());
        }
        what.clone_into(&mut seen.last);
    }

    /// Passes a point, and ends the world there if that is the plan.
    fn point(&self, faults: &'static [Fault]) {
        let mut seen = self.seen();
        let number = seen.points.len();
        let after = seen.last.clone();
        seen.points.push(Point { after, before: None, faults });
        let Some((_, fault)) = seen.end.filter(|(place, fault)| *place == number && faults.contains(fault)) else {
            return;
        };
        (seen.has_struck, seen.has_ended_once, seen.is_dead) = (true, true, fault == Fault::Killed);
        drop(seen);
        // Not `panic_any`, which would print the panic.
        resume_unwind(match fault {
            Fault::Twice => {
                let has_ended = second_call(PATIENCE);
                self.seen().is_stuck = !has_ended;
                return;
            }
            Fault::Killed => Box::new(Killed),
            Fault::Deadlock => {
                let why = Box::new("deadlock detected (by torment)".to_owned());
                Box::new(Thrown(Box::new(DieselError::DatabaseError(DatabaseErrorKind::SerializationFailure, why))))
            }
            Fault::TimedOut => Box::new(Thrown("the handler took too long (by torment)".into())),
        });
    }
}

impl Instrumentation for Watch {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        // The end of the world unwinds before Diesel's transaction manager begins its work: diesel-async's uses no connection again
        // whose transaction it has not come to the end of.
        match event {
            InstrumentationEvent::BeginTransaction { .. } => self.transaction("SAVEPOINT"),
            InstrumentationEvent::CommitTransaction { .. } => self.transaction("RELEASE SAVEPOINT"),
            InstrumentationEvent::RollbackTransaction { .. } => self.transaction("ROLLBACK TO SAVEPOINT"),
            InstrumentationEvent::StartQuery { query, .. } if !mem::take(&mut self.seen().is_passed) => {
                self.statement(|| query.to_string());
            }
            _ => {}
        }
    }
}

/// Shortens a statement for a story.
fn quoted(statement: &str) -> String {
    let text = statement.split(" -- binds").next().unwrap_or_default().replace(['"', '`'], "");
    let words: Vec<_> = text.split_whitespace().collect();
    let text = words.join(" ");
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

impl Point {
    /// Says how the world ended here.
    pub(super) fn story(&self, fault: Fault) -> String {
        let Point { after, before, .. } = self;
        match (fault, before) {
            (Fault::Killed, Some(before)) if after == "the call returned" => {
                format!("killed, or its lease lost, after {after} and before {before}")
            }
            (Fault::Killed, Some(before)) => format!("killed after {after} and before {before}"),
            (Fault::Killed, None) => format!("killed after {after}, whose answer was lost"),
            (Fault::Deadlock, Some(before)) => format!("deadlock at {before}, after {after}"),
            (Fault::Deadlock, None) => format!("deadlock after {after}"),
            (Fault::Twice, _) => {
                format!("called a second time, by another worker, after {after} in the first call")
            }
            (Fault::TimedOut, _) => format!("timed out after {after}"),
        }
    }
}
