//! Crash accounting: finds a row whose handler ends the process, although the row's transaction is lost with it.
//!
//! Each worker notes in a file of its own what it is about to run (`in_flight.rs`). The file's lock ends with the
//! process, and the next poller in that directory takes over the notes (`reports.rs`). When a worker claims a reported
//! row, it writes the number of crashes on the row itself ([`Suspicion`]), in a transaction of its own
//! (`attempt/crash_check.rs`). A suspect runs alone in its process (`exclusive_run.rs`): from then on only a crash
//! there counts, and after three the row is set aside. If no file outlives the process, the worker writes the count
//! before the handler runs (`attempt/crash_check.rs`): always, or while the row may have ended an earlier process
//! ([`Probation`]).

use std::collections::HashMap;
use std::fmt::{self, Display};
use std::io;
use std::path::Path;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::crash_directory::CrashDirectory;
use super::exclusive_run::Concurrency;
use super::in_flight::{Entry, InFlightFile};
use super::reports::CrashReports;
use crate::error::Error;
use crate::log::RateLimitedLog;
use crate::row::{CRASHED, ErrorText, Fence, PRESUMED, QueueState};
use crate::sync::Mutex;

/// What a poller knows about crashes.
pub(crate) struct Crashes {
    pub(crate) accounting: CrashAccounting,
    reports: Option<Mutex<CrashReports>>,
    probation: Option<Probation>,
    log: RateLimitedLog,
}

/// The rows that may have ended an earlier process of which no file is left: those that were due before this poller
/// started. Its workers mark such a row before they handle it. A row that ends processes is one of the first that the next
/// one claims, so the marks have an end, and they cost little.
struct Probation {
    /// The rows that were due before this time.
    before: DateTime<Utc>,
    /// How many rows of each queue were marked.
    marked: Mutex<HashMap<String, u32>>,
}

/// How many rows of each queue are marked. The row that has ended the last process is not behind more rows than that
/// process had in hand: sixteen workers with groups of 500 have 8,000.
const MOST_MARKED: u32 = 10_000;

impl Probation {
    fn new(start: DateTime<Utc>) -> Self {
        Probation { before: start, marked: Mutex::default() }
    }

    /// Tells whether the row is to be marked.
    fn concerns(&self, queue: &str, state: &QueueState) -> bool {
        // Most rows of a running poller are due later, so this costs nothing.
        state.next_attempt_time.is_none_or(|due| due < self.before)
            && self.marked.lock().get(queue).is_none_or(|marked| *marked < MOST_MARKED)
    }

    fn note_marked(&self, queue: &str) {
        *self.marked.lock().entry(queue.to_owned()).or_default() += 1;
    }
}

/// How often a lasting problem with the records is logged. It does no harm to the work, so it must not flood the log.
const TOLD_EVERY: Duration = Duration::from_secs(600);

/// What a worker does with a row that it has claimed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CrashAction {
    /// It handles the row. The row's text becomes this if the outcome leaves it as it is: a suspicion ends.
    Handle(ErrorText),
    /// The row is a suspect, and the worker is not alone: it gives the claim up and comes back alone.
    ComeBackAlone,
    /// The row was reported after a crash: the worker writes this text and gives the claim up.
    Mark(String, Entry),
    /// It sets the row aside with this text.
    SetAside(String, Option<Entry>),
    /// It writes and commits this text before it handles the row.
    MarkAndHandle(String),
}

impl Crashes {
    /// Opens the accounts of a poller that serves these queues of a database, and takes over the records of dead
    /// processes. It uses `directory`, or else the first usable one of the usual places. If none of them is usable, the
    /// rows are on probation that were due before the poller started, at the database's time `start`.
    ///
    /// # Errors
    ///
    /// If `directory` cannot be used. A problem with the usual places does not stop a service.
    pub(crate) fn open(
        accounting: CrashAccounting,
        directory: Option<&Path>,
        (database, start): (&str, DateTime<Utc>),
        queues: Vec<String>,
        log: RateLimitedLog,
    ) -> Result<Self, Error> {
        let reports = match (accounting, directory) {
            (CrashAccounting::Strict | CrashAccounting::Off, _) => None,
            (CrashAccounting::On, Some(named)) => {
                let reports = CrashReports::open(&CrashDirectory::named(named), database, queues);
                Some(reports.map_err(|error| Error::Setting {
                    setting: "crash_directory",
                    found: format!("{} ({error})", named.display()),
                    expected: "a directory in which this process can create and lock files, and other users cannot replace them; \
                               name another one, or set crash_accounting to strict, which marks the rows instead, or to off",
                })?)
            }
            (CrashAccounting::On, None) => open_usual(&CrashDirectory::usual(), database, &queues),
        };
        let has_no_files = accounting == CrashAccounting::On && reports.is_none();
        let probation = has_no_files.then(|| Probation::new(start));
        let crashes = Crashes { accounting, reports: reports.map(Mutex::new), probation, log: log.every(TOLD_EVERY) };
        if let Some(mut reports) = crashes.reports() {
            crashes.log_io_error(reports.adopt_all());
            tracing::info!(entity = "poller", "{}", reports.summary());
        }
        Ok(crashes)
    }

    /// Makes accounts that count nothing.
    pub(crate) fn off() -> Self {
        let (accounting, log) = (CrashAccounting::Off, RateLimitedLog::default().every(TOLD_EVERY));
        Crashes { accounting, reports: None, probation: None, log }
    }

    /// Takes over the records of dead processes.
    pub(crate) fn adopt(&self) {
        if let Some(mut reports) = self.reports() {
            self.log_io_error(reports.adopt());
        }
    }

    /// Creates a worker's record file.
    pub(crate) fn in_flight_file(&self) -> Option<InFlightFile> {
        self.log_io_error(self.reports()?.in_flight_file())
    }

    /// Decides what to do with a row that was claimed in this state.
    pub(crate) fn decide(
        &self,
        queue: &str,
        key: &dyn Display,
        fence: Fence,
        state: &QueueState,
        concurrency: Concurrency,
    ) -> CrashAction {
        let text = state.last_attempt_error_message.as_deref();
        let known = Suspicion::of(text);
        if let Some(mut reports) = self.reports().filter(|reports| !reports.is_empty()) {
            let row = Entry::new(queue, &key.to_string(), fence, false);
            if let Some(suspect) = reports.take(&row) {
                // Beside other rows, the crash may have been a neighbour's. A crash alone counts.
                let crashes = known.map_or(0, |known| known.crashes).saturating_add(suspect.alone).max(1);
                let suspicion = Suspicion { crashes, presumed: false };
                return if suspicion.is_proven() {
                    CrashAction::SetAside(Suspicion::final_text(text), Some(suspect))
                } else {
                    CrashAction::Mark(suspicion.over(text), suspect)
                };
            }
        }
        match known {
            Some(known) if known.is_proven() => CrashAction::SetAside(Suspicion::final_text(text), None),
            Some(_) if concurrency == Concurrency::Others => CrashAction::ComeBackAlone,
            known if self.marks(queue, state, known) => {
                let crashes = known
                    .map_or(0, |known| known.crashes)
                    .saturating_add(u32::from(concurrency == Concurrency::Nobody))
                    .max(1);
                CrashAction::MarkAndHandle(Suspicion { crashes, presumed: true }.over(text))
            }
            Some(_) => CrashAction::Handle(as_it_was(text)),
            None => CrashAction::Handle(ErrorText::Keep),
        }
    }

    /// Tells whether the row is marked before its handler runs.
    fn marks(&self, queue: &str, state: &QueueState, known: Option<Suspicion>) -> bool {
        let Some(probation) = &self.probation else { return self.accounting == CrashAccounting::Strict };
        // The crash of a suspect counts, whenever it was due.
        let marks = known.is_some() || probation.concerns(queue, state);
        if marks {
            probation.note_marked(queue);
        }
        marks
    }

    /// Tells whether a row may share its transaction with others, as far as crashes are concerned.
    pub(crate) fn may_share(&self, queue: &str, key: &dyn Display, fence: Fence, state: &QueueState) -> bool {
        let suspected = || {
            let row = Entry::new(queue, &key.to_string(), fence, false);
            self.reports().is_some_and(|reports| !reports.is_empty() && reports.suspects(&row))
        };
        let is_on_probation = || self.probation.as_ref().is_some_and(|it| it.concerns(queue, state));
        Suspicion::of(state.last_attempt_error_message.as_deref()).is_none() && !suspected() && !is_on_probation()
    }

    /// Notes whether a report is now written on its row.
    pub(crate) fn written(&self, suspect: Entry, written: bool) {
        if let Some(mut reports) = self.reports() {
            let noted = if written { reports.clear(&suspect) } else { reports.put_back(suspect) };
            self.log_io_error(noted);
        }
    }

    fn reports(&self) -> Option<MutexGuard<'_, CrashReports>> {
        self.reports.as_ref().map(|reports| reports.lock())
    }

    /// Logs the error and goes on without a record: a full disk is no reason to stop the work.
    pub(crate) fn log_io_error<T>(&self, result: io::Result<T>) -> Option<T> {
        result.map_err(|error| self.log.warn("poller", &format!("cannot record crashes: {error}"))).ok()
    }
}

/// Opens the reports in the first usable one of these places.
fn open_usual(places: &[CrashDirectory], database: &str, queues: &[String]) -> Option<CrashReports> {
    let mut troubles = Vec::new();
    for place in places {
        match CrashReports::open(place, database, queues.to_vec()) {
            Ok(reports) => return Some(reports),
            Err(error) => troubles.push(format!("{} ({error})", place.path().display())),
        }
    }
    let found = "there is no directory for crash records that outlives the process";
    let what = "rows that were due before the start are marked before they are handled, in a transaction of their own";
    tracing::info!(
        entity = "poller",
        "{found} ({}): {what}; the setting crash_directory names one",
        troubles.join(", ")
    );
    None
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
    /// Each worker notes in a small file of its own what it is about to run, and a process that starts later reads the
    /// files of those that have died. It costs no statement, and a few microseconds for each message. This is the
    /// default.
    ///
    /// Where no file outlives the process, as in a container without a volume, the worker marks the row itself before
    /// its handler runs, but only rows that were due before the poller started: one of them may have ended the process
    /// before. The first 10,000 such rows of each queue cost what they cost under `Strict`. So the first crash,
    /// of a process that has run for a while, is not counted, and a row is set aside after four.
    #[default]
    On,
    /// The worker marks each row itself before its handler runs. It costs one more transaction for each message (four
    /// statements), and after a crash the row waits for its timeout. Messages of groups run one by one. A process that
    /// is ended while a handler runs leaves a mark. A shutdown whose grace is over removes it, if it gets a connection
    /// for that; on SQLite it cannot.
    Strict,
    /// Crashes are not counted.
    Off,
}

/// The crash records of one worker.
pub(crate) struct Recorder {
    /// What its poller knows about crashes.
    pub(crate) crashes: Arc<Crashes>,
    state: Mutex<RecorderState>,
}

struct RecorderState {
    in_flight_file: Option<InFlightFile>,
    concurrency: Concurrency,
    mark: Option<CrashMark>,
}

impl Recorder {
    /// Makes the recorder of one worker.
    pub(crate) fn new(crashes: Arc<Crashes>) -> Self {
        let in_flight_file = crashes.in_flight_file();
        let state = RecorderState { in_flight_file, concurrency: Concurrency::default(), mark: None };
        Recorder { crashes, state: Mutex::new(state) }
    }

    /// Sets what else runs in this process, until the next call.
    pub(crate) fn set_concurrency(&self, concurrency: Concurrency) {
        self.state.lock().concurrency = concurrency;
    }

    /// Decides what to do with a row that was claimed in this state.
    pub(crate) fn decide(&self, queue: &str, key: &dyn Display, fence: Fence, state: &QueueState) -> CrashAction {
        self.crashes.decide(queue, key, fence, state, self.concurrency())
    }

    /// Tells whether every row is marked before its handler runs, so that none shares its transaction with others.
    pub(crate) fn is_strict(&self) -> bool {
        self.crashes.accounting == CrashAccounting::Strict
    }

    /// Tells whether the worker has asked to be alone in its process, and is.
    pub(crate) fn is_alone(&self) -> bool {
        self.concurrency() != Concurrency::Others
    }

    /// Records that these rows are about to be handled.
    pub(crate) fn begin<'k, K: Display + 'k>(&self, queue: &str, rows: impl IntoIterator<Item = (&'k K, Fence)>) {
        let mut state = self.state.lock();
        let RecorderState { in_flight_file: Some(in_flight_file), concurrency, .. } = &mut *state else { return };
        let rows: Vec<_> = rows.into_iter().collect();
        let alone = rows.len() == 1 && *concurrency == Concurrency::Nobody;
        let entry = |(key, fence): (&K, Fence)| Entry::new(queue, &key.to_string(), fence, alone);
        let entries: Vec<_> = rows.into_iter().map(entry).collect();
        self.crashes.log_io_error(in_flight_file.write(&entries));
    }

    /// Records that they were handled, however it ended.
    pub(crate) fn end(&self) {
        if let Some(in_flight_file) = &mut self.state.lock().in_flight_file {
            self.crashes.log_io_error(in_flight_file.clear());
        }
    }

    /// Notes that the row has a mark, which must be removed if the attempt ends without a settlement.
    pub(crate) fn set_mark(&self, mark: CrashMark) {
        self.state.lock().mark = Some(mark);
    }

    /// Takes the mark of the last claimed row, if its attempt has not written on the row.
    pub(crate) fn take_mark(&self) -> Option<CrashMark> {
        self.state.lock().mark.take()
    }

    /// Tells whether the last claimed row has a mark.
    pub(crate) fn has_mark(&self) -> bool {
        self.state.lock().mark.is_some()
    }

    fn concurrency(&self) -> Concurrency {
        self.state.lock().concurrency
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
    pub(crate) before: ErrorText,
}

/// The number of crashes after which a row is set aside. The first may be another row's fault; two more in a row, alone
/// in the process, are not.
pub(crate) const CRASHES: u32 = 3;

/// Stands between the text about the crashes and the text that the row had before.
const BEFORE: &str = "; before that: ";

/// How many characters of the earlier text are kept: a suspicion does not last long, and the column's text is bounded.
const TEXT_KEPT: usize = 1000;

/// The suspicion that a row ends its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Suspicion {
    /// The number of crashes so far.
    pub(crate) crashes: u32,
    /// Whether the last of them is only presumed: a worker writes the text before the handler runs.
    pub(crate) presumed: bool,
}

impl Suspicion {
    /// Finds the suspicion in a row's error text.
    pub(crate) fn of(text: Option<&str>) -> Option<Self> {
        let text = text?;
        let of = |said: &str, presumed| {
            let (number, rest) = text.strip_prefix(said)?.strip_prefix(" (crash ")?.split_once(" of ")?;
            let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(')')?;
            (rest.is_empty() || rest.starts_with(BEFORE)).then_some(())?;
            Some(Suspicion { crashes: number.parse().ok()?, presumed })
        };
        of(CRASHED, false).or_else(|| of(PRESUMED, true))
    }

    /// Tells whether the row is to be set aside.
    pub(crate) fn is_proven(self) -> bool {
        self.crashes >= CRASHES
    }

    /// Returns the text for a row whose error text was `text`.
    pub(crate) fn over(self, text: Option<&str>) -> String {
        with_earlier(self.to_string(), text)
    }

    /// Returns the text for a row that is set aside and whose error text was `text`.
    pub(crate) fn final_text(text: Option<&str>) -> String {
        let said = format!("the process ended {CRASHES} times while this message was handled: it is set aside");
        with_earlier(said, text)
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
        let said = if self.presumed { PRESUMED } else { CRASHED };
        write!(f, "{said} (crash {} of {CRASHES})", self.crashes)
    }
}

#[cfg(test)]
mod tests;
