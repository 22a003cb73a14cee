//! Crash accounting: a row whose handler ends the process is found out, although its transaction is gone with it.
//!
//! Each worker says in a file of its own what it is about to run (`flight.rs`); the file's lock ends with the process,
//! and the next poller in that directory takes over what it says (`docket.rs`). When an accused row is claimed, the
//! suspicion is written on the row itself (`suspicion.rs`), in a transaction of its own (`hearing.rs`). A suspect runs
//! alone in its process (`alone.rs`); how it ends there tells the innocent from the guilty, which is set aside after
//! three crashes. Where no file outlives the process, the suspicion is written before the handler runs (`strict.rs`).

use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use super::accounting::{CrashAccounting, default_directory};
use super::crash_count::Suspicion;
use super::exclusive_run::Company;
use super::in_flight_file::Flight;
use super::in_flight_record::Entry;
use super::reports::Docket;
use crate::error::Error;
use crate::lock::unpoisoned;
use crate::log::Noise;
use crate::row::Fence;

/// What a poller knows of crashes.
pub(crate) struct Crashes {
    pub(crate) accounting: CrashAccounting,
    docket: Option<Mutex<Docket>>,
    pub(crate) noise: Noise,
}

/// What is to be done with a row that was claimed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Course {
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
        let docket = match accounting {
            CrashAccounting::On => Some(open_docket(directory, database, queues).map_err(|error| Error::Setting {
                setting: "crash_directory",
                found: format!("{} ({error})", directory.display()),
                expected: "a directory in which this process can create and lock files; name another one, or set \
                           crash_accounting to strict, which marks the rows instead, or to off",
            })?),
            CrashAccounting::Strict | CrashAccounting::Off => None,
        };
        Ok(Crashes { accounting, docket: docket.map(Mutex::new), noise: Noise::default() })
    }

    /// Accounts of nothing.
    pub(crate) fn off() -> Self {
        Crashes { accounting: CrashAccounting::Off, docket: None, noise: Noise::default() }
    }

    /// Takes over what dead processes have left.
    pub(crate) fn adopt(&self) {
        if let Some(mut docket) = self.docket() {
            self.told(docket.adopt());
        }
    }

    /// A worker's record file.
    pub(crate) fn flight(&self) -> Option<Flight> {
        self.told(self.docket()?.flight())
    }

    /// Says what is to be done with a row that was claimed in this state and with this error text.
    pub(crate) fn weigh(
        &self,
        queue: &str,
        key: &dyn std::fmt::Debug,
        fence: Fence,
        text: Option<&str>,
        company: Company,
    ) -> Course {
        let known = Suspicion::of(text);
        if let Some(mut docket) = self.docket().filter(|docket| !docket.is_empty()) {
            let row = Entry::new(queue, &format!("{key:?}"), fence, false);
            if let Some(accusation) = docket.take(&row) {
                // In company it may have been a neighbour; a crash alone counts.
                let crashes = known.map_or(0, |known| known.crashes).saturating_add(accusation.alone).max(1);
                let suspicion = Suspicion { crashes, presumed: false };
                return if suspicion.is_proven() {
                    Course::SetAside(Suspicion::final_text(text), Some(accusation))
                } else {
                    Course::Mark(suspicion.over(text), accusation)
                };
            }
        }
        match known {
            Some(known) if known.is_proven() => Course::SetAside(Suspicion::final_text(text), None),
            Some(_) if company == Company::Others => Course::ComeBackAlone,
            known if self.accounting == CrashAccounting::Strict => {
                let crashes =
                    known.map_or(0, |known| known.crashes).saturating_add(u32::from(company == Company::Nobody)).max(1);
                Course::MarkAndHandle(Suspicion { crashes, presumed: true }.over(text))
            }
            _ => Course::Handle,
        }
    }

    /// Whether a row may share its transaction with others, as far as crashes are concerned.
    pub(crate) fn allows_company(
        &self,
        queue: &str,
        key: &dyn std::fmt::Debug,
        fence: Fence,
        text: Option<&str>,
    ) -> bool {
        let accused = || {
            let row = Entry::new(queue, &format!("{key:?}"), fence, false);
            self.docket().is_some_and(|docket| !docket.is_empty() && docket.accuses(&row))
        };
        Suspicion::of(text).is_none() && !accused()
    }

    /// What was found out is written on the row.
    pub(crate) fn strike(&self, accusation: &Entry) {
        if let Some(mut docket) = self.docket() {
            let struck = docket.strike(accusation);
            self.told(struck);
        }
    }

    /// What was found out cannot be written on the row now.
    pub(crate) fn put_back(&self, accusation: Entry) {
        if let Some(mut docket) = self.docket() {
            let put_back = docket.put_back(accusation);
            self.told(put_back);
        }
    }

    fn docket(&self) -> Option<MutexGuard<'_, Docket>> {
        self.docket.as_ref().map(|docket| unpoisoned(docket.lock()))
    }

    /// Work goes on without a record: a full disk is no reason to stop.
    pub(crate) fn told<T>(&self, result: io::Result<T>) -> Option<T> {
        result.map_err(|error| self.noise.warn("poller", &format!("crashes may go uncounted: {error}"))).ok()
    }
}

fn open_docket(directory: &Path, database: &str, queues: Vec<String>) -> io::Result<Docket> {
    Docket::open(directory, directory == default_directory(), database, queues)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Status;

    const FENCE: Fence = Fence::new(Status::NotAttempted, 0);

    fn weigh(accounting: CrashAccounting, text: Option<&str>, company: Company) -> Course {
        let crashes = Crashes { accounting, ..Crashes::off() };
        crashes.weigh("payments.status", &1, FENCE, text, company)
    }

    #[test]
    fn a_suspect_runs_alone_and_is_set_aside_when_it_is_proven() {
        let text = |crashes| Suspicion { crashes, presumed: false }.over(Some("no route"));
        for accounting in [CrashAccounting::On, CrashAccounting::Strict, CrashAccounting::Off] {
            assert_eq!(weigh(accounting, Some(&text(1)), Company::Others), Course::ComeBackAlone);
            let aside = Course::SetAside(Suspicion::final_text(Some("no route")), None);
            assert_eq!(weigh(accounting, Some(&text(3)), Company::Others), aside);
        }
        assert_eq!(weigh(CrashAccounting::On, Some(&text(2)), Company::Nobody), Course::Handle);
        // It would wait for ever for a handler that never returns.
        assert_eq!(weigh(CrashAccounting::On, Some(&text(2)), Company::Stuck), Course::Handle);
        assert_eq!(weigh(CrashAccounting::On, Some("no route"), Company::Others), Course::Handle);
    }

    #[test]
    fn strict_marks_count_further_only_when_the_row_is_alone() {
        let mark = |crashes| Course::MarkAndHandle(Suspicion { crashes, presumed: true }.to_string());
        assert_eq!(weigh(CrashAccounting::Strict, None, Company::Others), mark(1));
        assert_eq!(weigh(CrashAccounting::Strict, None, Company::Nobody), mark(1));
        let text = Suspicion { crashes: 1, presumed: true }.to_string();
        assert_eq!(weigh(CrashAccounting::Strict, Some(&text), Company::Nobody), mark(2));
        assert_eq!(weigh(CrashAccounting::Strict, Some(&text), Company::Stuck), mark(1));
    }
}
