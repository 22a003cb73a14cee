//! Crash accounting: finds a row whose handler ends the process, although the row's transaction is lost with it.
//!
//! The account is on the row. A worker writes the count before the handler runs, in a transaction of its own
//! (`attempt/crash_check.rs`): always, or while the row may have ended an earlier process ([`Probation`]). A row that bears
//! such a mark when it is claimed is a suspect. It runs alone in its process (`exclusive_run.rs`): from then on only a crash
//! there counts, and after three the row is set aside.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{self, Duration};
use std::{fmt, fs};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::exclusive_run::Concurrency;
use crate::row::{ErrorText, Fence, Instant, PRESUMED, QueueState, SET_ASIDE};
use crate::sync::Mutex;

/// What a poller knows about crashes.
#[derive(Default)]
pub(crate) struct Crashes {
    accounting: CrashAccounting,
    probation: Probation,
}

/// The rows that may have ended an earlier process: those that were due before this one started. Its workers mark such a
/// row before they handle it. A row that ends processes is one of the first that the next one claims, so the marks have
/// an end, and they cost little.
#[derive(Default)]
pub(crate) struct Probation {
    /// The rows that were due before this time.
    pub(crate) before: DateTime<Utc>,
    /// How many rows of each queue are still to be marked.
    pub(crate) left: HashMap<String, AtomicU32>,
}

/// How many rows of a queue are marked. What the last process had in hand is among the first rows that the next one
/// claims, and the keys that its workers share are up to 256. If a group was larger, each crash brings its row nearer.
pub(crate) const MARKED: u32 = 256;

/// How many rows of a queue are marked that takes turns by a column: the first row of each value may come before. A guess.
pub(crate) const MARKED_IN_TURNS: u32 = 1000;

/// By how much the age of the process may be too high: Linux gives its start, and the time since the start of the machine, in
/// hundredths of a second.
const TICKS: Duration = Duration::from_millis(20);

/// Returns for how long this process has been running. Only Linux tells this; elsewhere the time counts from the first call.
pub(crate) fn process_age() -> Duration {
    static FIRST_CALL: LazyLock<time::Instant> = LazyLock::new(time::Instant::now);
    let told = || {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // The name before may contain anything. See proc_pid_stat(5): field 22 is the start, and the first of these is 3.
        let started: f64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
        let uptime: f64 = fs::read_to_string("/proc/uptime").ok()?.split_whitespace().next()?.parse().ok()?;
        // In a container, the two may count from different times.
        Duration::try_from_secs_f64(uptime - started / 100.0).ok()
    };
    told().unwrap_or_else(|| FIRST_CALL.elapsed()).saturating_sub(TICKS)
}

impl Probation {
    /// Tells whether the row is to be marked.
    fn concerns(&self, queue: &str, state: &QueueState) -> bool {
        // Most rows of a running poller are due later, so this costs nothing.
        state.next_attempt_time.is_none_or(|due| due < self.before) && self.left(queue) > 0
    }

    fn left(&self, queue: &str) -> u32 {
        self.left.get(queue).map_or(0, |left| left.load(Ordering::Relaxed))
    }

    fn note_marked(&self, queue: &str) {
        if let Some(left) = self.left.get(queue) {
            let _ = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        }
    }
}

/// What a worker does with a row that it has claimed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CrashAction {
    /// It handles the row. The row's text becomes this if the outcome leaves it as it is: a suspicion ends.
    Handle(ErrorText),
    /// The row is a suspect, and the worker is not alone: it gives the claim up and comes back alone.
    ComeBackAlone,
    /// It sets the row aside with this text.
    SetAside(String),
    /// It writes and commits this text before it handles the row.
    MarkAndHandle(String),
}

impl Crashes {
    /// Makes the accounts of a poller. Other accounting than [`CrashAccounting::On`] needs no probation.
    pub(crate) fn new(accounting: CrashAccounting, probation: Probation) -> Self {
        let is_needed = accounting == CrashAccounting::On;
        Crashes { accounting, probation: if is_needed { probation } else { Probation::default() } }
    }

    /// Makes accounts that count nothing.
    pub(crate) fn off() -> Self {
        Crashes::new(CrashAccounting::Off, Probation::default())
    }

    /// Decides what to do with a row that was claimed in this state.
    fn decide(&self, queue: &str, state: &QueueState, concurrency: Concurrency) -> CrashAction {
        let text = state.last_attempt_error_message.as_deref();
        match Suspicion::of(text) {
            Some(known) if known.crashes >= CRASHES => CrashAction::SetAside(Suspicion::final_text(text)),
            Some(_) if concurrency == Concurrency::Others => CrashAction::ComeBackAlone,
            known if self.marks(queue, state, known) => {
                // Beside other rows, the crash may be a neighbour's. A crash alone counts.
                let alone = u32::from(concurrency == Concurrency::Nobody);
                let crashes = known.map_or(0, |known| known.crashes).saturating_add(alone).max(1);
                CrashAction::MarkAndHandle(Suspicion { crashes }.over(text))
            }
            Some(_) => CrashAction::Handle(as_it_was(text)),
            None => CrashAction::Handle(ErrorText::Keep),
        }
    }

    /// Tells whether the row is marked before its handler runs.
    fn marks(&self, queue: &str, state: &QueueState, known: Option<Suspicion>) -> bool {
        match self.accounting {
            CrashAccounting::Strict => true,
            CrashAccounting::Off => false,
            // The crash of a suspect counts, whenever it was due.
            CrashAccounting::On if known.is_none() && !self.probation.concerns(queue, state) => false,
            CrashAccounting::On => {
                self.probation.note_marked(queue);
                true
            }
        }
    }

    /// Tells whether a row may share its transaction with others, as far as crashes are concerned.
    pub(crate) fn may_share(&self, queue: &str, state: &QueueState) -> bool {
        let is_suspect = Suspicion::of(state.last_attempt_error_message.as_deref()).is_some();
        !(is_suspect || self.probation.concerns(queue, state))
    }
}

/// How a poller finds rows whose handler ends the whole process: by an abort, a stack overflow, or lack of memory.
///
/// After a crash, the database rolls such a row back with everything that its attempt wrote. Without crash accounting
/// it would be due again, and end every process that claims it. With it the queue sets the row aside after three
/// crashes: it becomes `FAILED`, and its error text says why. Rows that ran beside it are suspects: each runs once
/// more, alone in its process, and is cleared.
///
/// A process that is killed from outside looks the same: `kill -9` makes suspects too, and so does
/// [`std::process::exit`] while handlers run. A row that is running at three such ends in a row, the last two alone in
/// its process, is set aside. So stop a service by [`PollerHandle::shutdown`], which leaves no suspects, however short
/// its grace. A crash while a row is decoded is not counted. A crash in a call under a lease is left to the lease: the
/// claim has counted the attempt as a try, and the row is due again when the lease has ended.
///
/// ```
/// use queueable::{CrashAccounting, PollerSettings};
///
/// assert_eq!(PollerSettings::default().crash_accounting, CrashAccounting::On);
/// ```
///
/// [`PollerHandle::shutdown`]: crate::PollerHandle::shutdown
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CrashAccounting {
    /// The worker marks a row before its handler runs, as under `Strict`, but only the first 256 rows of each queue that
    /// were due before the process started: one of them may have ended an earlier one. With `serial_by`, `fair_by` and
    /// `at_most` these are 1,000 rows. Messages of groups run one by one meanwhile, and all later rows cost nothing. So a
    /// crash of a process that has run for a while is not counted, and such a row is set aside after four. This is the
    /// default.
    #[default]
    On,
    /// The worker marks each row before its handler runs, so that every crash is counted. It costs one more transaction
    /// for each message (four statements), and after a crash the row waits for up to five seconds. Messages of groups run
    /// one by one. A process that is ended while a handler runs leaves a mark. A shutdown whose grace is over removes it,
    /// if it gets a connection for that; on SQLite it cannot.
    Strict,
    /// Crashes are not counted.
    Off,
}

/// What one worker knows about crashes.
pub(crate) struct Recorder {
    /// What its poller knows.
    pub(crate) crashes: Arc<Crashes>,
    state: Mutex<RecorderState>,
}

#[derive(Default)]
struct RecorderState {
    concurrency: Concurrency,
    marks: bool,
    mark: Option<CrashMark>,
}

impl Recorder {
    /// Makes the recorder of one worker.
    pub(crate) fn new(crashes: Arc<Crashes>) -> Self {
        Recorder { crashes, state: Mutex::default() }
    }

    /// Sets what else runs in this process, until the next call.
    pub(crate) fn set_concurrency(&self, concurrency: Concurrency) {
        self.state.lock().concurrency = concurrency;
    }

    /// Decides what to do with a row that was claimed in this state.
    pub(crate) fn decide(&self, queue: &str, row: &QueueState) -> CrashAction {
        let mut state = self.state.lock();
        let action = self.crashes.decide(queue, row, state.concurrency);
        state.marks = matches!(action, CrashAction::MarkAndHandle(_));
        action
    }

    /// Tells whether the last row was to be marked, so that the next one probably is too, and shares its transaction with
    /// none.
    pub(crate) fn marks(&self) -> bool {
        self.state.lock().marks
    }

    /// Tells whether every row is marked before its handler runs, so that none shares its transaction with others.
    pub(crate) fn is_strict(&self) -> bool {
        self.crashes.accounting == CrashAccounting::Strict
    }

    /// Tells whether the worker has asked to be alone in its process, and is.
    pub(crate) fn is_alone(&self) -> bool {
        self.state.lock().concurrency != Concurrency::Others
    }

    /// Notes that the row has a mark, which must be removed if the attempt ends without a settlement.
    pub(crate) fn set_mark(&self, mark: CrashMark) {
        self.state.lock().mark = Some(mark);
    }

    /// Notes when the row that has the mark is due.
    pub(crate) fn note_due(&self, due: Option<DateTime<Utc>>) {
        if let Some(mark) = &mut self.state.lock().mark {
            mark.due = due.or(mark.due);
        }
    }

    /// Takes the mark of the last claimed row, if its attempt has not written on the row.
    pub(crate) fn take_mark(&self) -> Option<CrashMark> {
        self.state.lock().mark.take()
    }

    /// Tells whether the last claimed row has a mark.
    pub(crate) fn has_mark(&self) -> bool {
        self.state.lock().mark.is_some()
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder::new(Arc::new(Crashes::off()))
    }
}

/// A mark on a row, and the text that it replaced.
#[derive(Debug)]
pub(crate) struct CrashMark {
    pub(crate) text: String,
    /// The state of the row that bears it.
    pub(crate) fence: Fence,
    /// When that row is due, if that is known.
    pub(crate) due: Option<DateTime<Utc>>,
    /// What the row was without it: its state, when it was due, and its text.
    pub(crate) before: (Fence, Option<Instant>, ErrorText),
}

/// The number of crashes after which a row is set aside. The first may be another row's fault; two more in a row, alone
/// in the process, are not.
pub(crate) const CRASHES: u32 = 3;

/// Stands between the text about the crashes and the text that the row had before.
const BEFORE: &str = "; before that: ";

/// How many characters of the earlier text are kept: a suspicion does not last long, and the column's text is bounded.
const TEXT_KEPT: usize = 1000;

/// The suspicion that a row ends its process, as its error text says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Suspicion {
    /// The number of crashes, if the process has ended while the row was handled.
    pub(crate) crashes: u32,
}

impl Suspicion {
    /// Finds the suspicion in a row's error text.
    pub(crate) fn of(text: Option<&str>) -> Option<Self> {
        let (number, rest) = text?.strip_prefix(PRESUMED)?.strip_prefix(" (crash ")?.split_once(" of ")?;
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(')')?;
        (rest.is_empty() || rest.starts_with(BEFORE)).then_some(())?;
        Some(Suspicion { crashes: number.parse().ok()? })
    }

    /// Returns the text for a row whose error text was `text`.
    pub(crate) fn over(self, text: Option<&str>) -> String {
        with_earlier(self.to_string(), text)
    }

    /// Returns the text for a row that is set aside and whose error text was `text`.
    pub(crate) fn final_text(text: Option<&str>) -> String {
        with_earlier(format!("{SET_ASIDE}: it is set aside"), text)
    }
}

/// Returns the text that a row had before it was suspected.
fn earlier(text: Option<&str>) -> Option<&str> {
    match Suspicion::of(text) {
        Some(_) => text?.split_once(BEFORE).map(|(_, earlier)| earlier),
        None => text,
    }
}

/// Returns the error text as it was before the row was suspected.
pub(crate) fn as_it_was(text: Option<&str>) -> ErrorText {
    earlier(text).map_or(ErrorText::Clear, |text| ErrorText::Set(text.to_owned()))
}

fn with_earlier(said: String, text: Option<&str>) -> String {
    match earlier(text) {
        Some(earlier) => said + BEFORE + &earlier.chars().take(TEXT_KEPT).collect::<String>(),
        None => said,
    }
}

impl fmt::Display for Suspicion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PRESUMED} (crash {} of {CRASHES})", self.crashes)
    }
}

#[cfg(test)]
mod tests;
