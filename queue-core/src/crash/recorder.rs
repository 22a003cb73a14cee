//! A worker's part of the crash accounts: the record of what it is about to run.

use std::fmt::Display;
use std::sync::Arc;

use super::accounting::CrashAccounting;
use super::accounts::{CrashAction, Crashes};
use super::exclusive_run::Concurrency;
use super::in_flight_file::InFlightFile;
use super::in_flight_record::Entry;
use crate::lock::Mutex;
use crate::row::{ErrorText, Fence};

/// The crash records of one worker.
pub(crate) struct Recorder {
    /// What its poller knows about crashes.
    pub(crate) crashes: Arc<Crashes>,
    in_flight_file: Mutex<Option<InFlightFile>>,
    concurrency: Mutex<Concurrency>,
    mark: Mutex<Option<CrashMark>>,
}

impl Recorder {
    /// Makes the recorder of one worker.
    pub(crate) fn new(crashes: Arc<Crashes>) -> Self {
        let in_flight_file = Mutex::new(crashes.in_flight_file());
        Recorder { in_flight_file, crashes, concurrency: Mutex::default(), mark: Mutex::default() }
    }

    /// Sets what else runs in this process, until the next call.
    pub(crate) fn set_concurrency(&self, concurrency: Concurrency) {
        *self.concurrency.lock() = concurrency;
    }

    /// Decides what to do with a row that was claimed in this state and with this error text.
    pub(crate) fn decide(&self, queue: &str, key: &dyn Display, fence: Fence, text: Option<&str>) -> CrashAction {
        self.crashes.decide(queue, key, fence, text, self.concurrency())
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
        if let Some(in_flight_file) = &mut *self.in_flight_file.lock() {
            let rows: Vec<_> = rows.into_iter().collect();
            let alone = rows.len() == 1 && self.concurrency() == Concurrency::Nobody;
            let entry = |(key, fence): (&K, Fence)| Entry::new(queue, &key.to_string(), fence, alone);
            let entries: Vec<_> = rows.into_iter().map(entry).collect();
            self.crashes.log_io_error(in_flight_file.write(&entries));
        }
    }

    /// Records that they were handled, however it ended.
    pub(crate) fn end(&self) {
        if let Some(in_flight_file) = &mut *self.in_flight_file.lock() {
            self.crashes.log_io_error(in_flight_file.clear());
        }
    }

    /// Notes that the row has a mark, which must be removed if the attempt ends without a settlement.
    pub(crate) fn set_mark(&self, mark: CrashMark) {
        *self.mark.lock() = Some(mark);
    }

    /// Takes the mark of the last claimed row, if its attempt has not written on the row.
    pub(crate) fn take_mark(&self) -> Option<CrashMark> {
        self.mark.lock().take()
    }

    fn concurrency(&self) -> Concurrency {
        *self.concurrency.lock()
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
    pub(crate) before: ErrorText,
}
