//! Crash accounting: it finds a row whose handler ends the process, although its transaction is gone with it.
//!
//! Each worker notes in a file of its own what it is about to run (`in_flight_file.rs`). The file's lock ends with the
//! process, and the next poller in that directory takes over the notes (`reports.rs`). When a worker claims a reported row,
//! it writes the number of crashes on the row itself (`crash_count.rs`), in a transaction of its own
//! (`attempt/crash_check.rs`). A suspect runs alone in its process (`exclusive_run.rs`): only a crash there counts further,
//! and after three the row is set aside. Where no file outlives the process, the count is written before the handler runs
//! (`attempt/crash_mark.rs`).

use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use super::accounting::{CrashAccounting, default_directory};
use super::crash_count::Suspicion;
use super::exclusive_run::Concurrency;
use super::in_flight_file::InFlightFile;
use super::in_flight_record::Entry;
use super::reports::CrashReports;
use crate::error::Error;
use crate::lock::unpoisoned;
use crate::log::RateLimitedLog;
use crate::row::Fence;

/// What a poller knows of crashes.
pub(crate) struct Crashes {
    pub(crate) accounting: CrashAccounting,
    reports: Option<Mutex<CrashReports>>,
    pub(crate) log: RateLimitedLog,
}

/// What is to be done with a row that was claimed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CrashAction {
    /// It is handled.
    Handle,
    /// It is a suspect, and the worker is not alone: give the claim up and come back alone.
    ComeBackAlone,
    /// Something was found out: write this text and give the claim up.
    Mark(String, Entry),
    /// It is set aside with this text.
    SetAside(String, Option<Entry>),
    /// This text is written and committed before the row is handled.
    MarkAndHandle(String),
}

impl Crashes {
    /// Opens the accounts of a poller that serves these queues of a database.
    pub(crate) fn open(
        accounting: CrashAccounting,
        directory: &Path,
        database: &str,
        queues: Vec<String>,
    ) -> Result<Self, Error> {
        let reports = match accounting {
            CrashAccounting::On => Some(open_reports(directory, database, queues).map_err(|error| Error::Setting {
                setting: "crash_directory",
                found: format!("{} ({error})", directory.display()),
                expected: "a directory in which this process can create and lock files; name another one, or set \
                           crash_accounting to strict, which marks the rows instead, or to off",
            })?),
            CrashAccounting::Strict | CrashAccounting::Off => None,
        };
        Ok(Crashes { accounting, reports: reports.map(Mutex::new), log: RateLimitedLog::default() })
    }

    /// Accounts of nothing.
    pub(crate) fn off() -> Self {
        Crashes { accounting: CrashAccounting::Off, reports: None, log: RateLimitedLog::default() }
    }

    /// Takes over what dead processes have left.
    pub(crate) fn adopt(&self) {
        if let Some(mut reports) = self.reports() {
            self.log_io_error(reports.adopt());
        }
    }

    /// A worker's record file.
    pub(crate) fn in_flight_file(&self) -> Option<InFlightFile> {
        self.log_io_error(self.reports()?.in_flight_file())
    }

    /// Says what is to be done with a row that was claimed in this state and with this error text.
    pub(crate) fn decide(
        &self,
        queue: &str,
        key: &dyn std::fmt::Debug,
        fence: Fence,
        text: Option<&str>,
        concurrency: Concurrency,
    ) -> CrashAction {
        let known = Suspicion::of(text);
        if let Some(mut reports) = self.reports().filter(|reports| !reports.is_empty()) {
            let row = Entry::new(queue, &format!("{key:?}"), fence, false);
            if let Some(suspect) = reports.take(&row) {
                // Beside others it may have been a neighbour's; a crash alone counts.
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
            known if self.accounting == CrashAccounting::Strict => {
                let crashes = known
                    .map_or(0, |known| known.crashes)
                    .saturating_add(u32::from(concurrency == Concurrency::Nobody))
                    .max(1);
                CrashAction::MarkAndHandle(Suspicion { crashes, presumed: true }.over(text))
            }
            _ => CrashAction::Handle,
        }
    }

    /// Whether a row may share its transaction with others, as far as crashes are concerned.
    pub(crate) fn may_share(&self, queue: &str, key: &dyn std::fmt::Debug, fence: Fence, text: Option<&str>) -> bool {
        let suspected = || {
            let row = Entry::new(queue, &format!("{key:?}"), fence, false);
            self.reports().is_some_and(|reports| !reports.is_empty() && reports.suspects(&row))
        };
        Suspicion::of(text).is_none() && !suspected()
    }

    /// What was found out is written on the row.
    pub(crate) fn clear(&self, suspect: &Entry) {
        if let Some(mut reports) = self.reports() {
            let cleared = reports.clear(suspect);
            self.log_io_error(cleared);
        }
    }

    /// What was found out cannot be written on the row now.
    pub(crate) fn put_back(&self, suspect: Entry) {
        if let Some(mut reports) = self.reports() {
            let put_back = reports.put_back(suspect);
            self.log_io_error(put_back);
        }
    }

    fn reports(&self) -> Option<MutexGuard<'_, CrashReports>> {
        self.reports.as_ref().map(|reports| unpoisoned(reports.lock()))
    }

    /// Work goes on without a record: a full disk is no reason to stop.
    pub(crate) fn log_io_error<T>(&self, result: io::Result<T>) -> Option<T> {
        result.map_err(|error| self.log.warn("poller", &format!("crashes may go uncounted: {error}"))).ok()
    }
}

fn open_reports(directory: &Path, database: &str, queues: Vec<String>) -> io::Result<CrashReports> {
    CrashReports::open(directory, directory == default_directory(), database, queues)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Status;

    const FENCE: Fence = Fence::new(Status::NotAttempted, 0);

    fn decide(accounting: CrashAccounting, text: Option<&str>, concurrency: Concurrency) -> CrashAction {
        let crashes = Crashes { accounting, ..Crashes::off() };
        crashes.decide("payments.status", &1, FENCE, text, concurrency)
    }

    #[test]
    fn a_suspect_runs_alone_and_is_set_aside_when_it_is_proven() {
        let text = |crashes| Suspicion { crashes, presumed: false }.over(Some("no route"));
        for accounting in [CrashAccounting::On, CrashAccounting::Strict, CrashAccounting::Off] {
            assert_eq!(decide(accounting, Some(&text(1)), Concurrency::Others), CrashAction::ComeBackAlone);
            let aside = CrashAction::SetAside(Suspicion::final_text(Some("no route")), None);
            assert_eq!(decide(accounting, Some(&text(3)), Concurrency::Others), aside);
        }
        assert_eq!(decide(CrashAccounting::On, Some(&text(2)), Concurrency::Nobody), CrashAction::Handle);
        // It would wait for ever for a handler that never returns.
        assert_eq!(decide(CrashAccounting::On, Some(&text(2)), Concurrency::Stuck), CrashAction::Handle);
        assert_eq!(decide(CrashAccounting::On, Some("no route"), Concurrency::Others), CrashAction::Handle);
    }

    #[test]
    fn strict_marks_count_further_only_when_the_row_is_alone() {
        let mark = |crashes| CrashAction::MarkAndHandle(Suspicion { crashes, presumed: true }.to_string());
        assert_eq!(decide(CrashAccounting::Strict, None, Concurrency::Others), mark(1));
        assert_eq!(decide(CrashAccounting::Strict, None, Concurrency::Nobody), mark(1));
        let text = Suspicion { crashes: 1, presumed: true }.to_string();
        assert_eq!(decide(CrashAccounting::Strict, Some(&text), Concurrency::Nobody), mark(2));
        assert_eq!(decide(CrashAccounting::Strict, Some(&text), Concurrency::Stuck), mark(1));
    }
}
