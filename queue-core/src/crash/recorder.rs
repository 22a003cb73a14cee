//! A worker's part of the crash accounts: what it is about to run.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use super::accounting::CrashAccounting;
use super::accounts::{Course, Crashes};
use super::exclusive_run::Company;
use super::in_flight_file::Flight;
use super::in_flight_record::Entry;
use crate::lock::unpoisoned;
use crate::row::{ErrorText, Fence};

/// What a worker records.
pub(crate) struct Recorder {
    crashes: Arc<Crashes>,
    flight: Mutex<Option<Flight>>,
    company: Mutex<Company>,
    mark: Mutex<Option<Mark>>,
}

impl Recorder {
    /// The recorder of one worker.
    pub(crate) fn new(crashes: Arc<Crashes>) -> Self {
        let flight = Mutex::new(crashes.flight());
        Recorder { flight, crashes, company: Mutex::default(), mark: Mutex::default() }
    }

    /// Says what else runs in this process until it is said again.
    pub(crate) fn set_company(&self, company: Company) {
        *unpoisoned(self.company.lock()) = company;
    }

    /// Says what is to be done with a row that was claimed in this state and with this error text.
    pub(crate) fn weigh(&self, queue: &str, key: &dyn Debug, fence: Fence, text: Option<&str>) -> Course {
        self.crashes.weigh(queue, key, fence, text, self.company())
    }

    /// Whether a row that was claimed in this state and with this error text may share its transaction with others.
    pub(crate) fn allows_company(&self, queue: &str, key: &dyn Debug, fence: Fence, text: Option<&str>) -> bool {
        self.crashes.allows_company(queue, key, fence, text)
    }

    /// Whether every row is marked before its handler runs, so that none shares its transaction with others.
    pub(crate) fn is_strict(&self) -> bool {
        self.crashes.accounting == CrashAccounting::Strict
    }

    /// Whether the worker has asked to be alone in its process, and is.
    pub(crate) fn is_alone(&self) -> bool {
        self.company() != Company::Others
    }

    /// Says whether what was found out is written on its row.
    pub(crate) fn written(&self, accusation: Entry, written: bool) {
        if written {
            self.crashes.strike(&accusation);
        } else {
            self.crashes.put_back(accusation);
        }
    }

    /// Records that these rows are about to be handled.
    pub(crate) fn take_off<'k, K: Debug + 'k>(&self, queue: &str, rows: impl IntoIterator<Item = (&'k K, Fence)>) {
        if let Some(flight) = &mut *unpoisoned(self.flight.lock()) {
            let rows: Vec<_> = rows.into_iter().collect();
            let alone = rows.len() == 1 && self.company() == Company::Nobody;
            let entry = |(key, fence)| Entry::new(queue, &format!("{key:?}"), fence, alone);
            let entries: Vec<_> = rows.into_iter().map(entry).collect();
            self.crashes.told(flight.write(&entries));
        }
    }

    /// Records that they were handled, however it ended.
    pub(crate) fn land(&self) {
        if let Some(flight) = &mut *unpoisoned(self.flight.lock()) {
            self.crashes.told(flight.clear());
        }
    }

    /// Says that the row bears a mark that an attempt without an end is to take off.
    pub(crate) fn set_mark(&self, mark: Mark) {
        *unpoisoned(self.mark.lock()) = Some(mark);
    }

    /// The mark that the last claimed row bears, if its attempt has not ended in a word on the row.
    pub(crate) fn take_mark(&self) -> Option<Mark> {
        unpoisoned(self.mark.lock()).take()
    }

    fn company(&self) -> Company {
        *unpoisoned(self.company.lock())
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder::new(Arc::new(Crashes::off()))
    }
}

/// A mark on a row, and the text that stood in its place.
#[derive(Debug)]
pub(crate) struct Mark {
    pub(crate) text: String,
    pub(crate) before: ErrorText,
}
