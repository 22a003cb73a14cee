//! The application beside the workers: its threads, and its books of what it has done, which stay exact whatever happens.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::on;
use crate::options::Mode;
use crate::session::{Dialect, Session};

/// What one thread of the application does, over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Enqueues payments, single and many at a time, and takes some back.
    Insert,
    /// Inserts children of payments that may be worked at this moment.
    Remark,
    /// Loads payments, and saves them a little later as they were.
    SaveStale,
    /// Holds locks on payments.
    Lock,
    /// Deletes payments that are not booked.
    Delete,
    /// Stops, restarts, postpones, retries and skips payments through the library.
    Operate,
}

const ROLES: [Role; 6] = [Role::Insert, Role::Remark, Role::SaveStale, Role::Lock, Role::Delete, Role::Operate];

/// How busy the application is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) mode: Mode,
    /// How many payments it enqueues in a second.
    pub(crate) payments_per_second: u64,
}

/// An application at work. It ends when it is dropped.
pub(crate) struct Application {
    books: Arc<Books>,
    threads: Vec<JoinHandle<()>>,
}

impl Application {
    pub(crate) fn start(url: &str, pace: Pace, seed: u64) -> Self {
        let books = Arc::new(Books::default());
        let threads = ROLES.into_iter().zip(1..).map(|(role, number)| {
            let (url, books) = (url.to_owned(), books.clone());
            thread::spawn(move || {
                let random = fastrand::Rng::with_seed(seed ^ number);
                match Dialect::of(&url) {
                    Dialect::Postgres => on::postgres::typed::application::act(&url, role, pace, random, &books),
                    Dialect::Mysql => on::mysql::typed::application::act(&url, role, pace, random, &books),
                    Dialect::Sqlite => on::sqlite::typed::application::act(&url, role, pace, random, &books),
                }
            })
        });
        Application { threads: threads.collect(), books }
    }

    /// Restarts the payments that it has stopped, and ends. Its books are complete then.
    pub(crate) fn end(mut self) -> Result<Arc<Books>> {
        self.join(ENDING)
    }

    /// Ends at once, even if its database never comes back.
    pub(crate) fn stop(mut self) -> Result<Arc<Books>> {
        self.join(OVER)
    }

    fn join(&mut self, phase: u8) -> Result<Arc<Books>> {
        self.books.ask_for(phase);
        let ended: Vec<_> = self.threads.drain(..).map(JoinHandle::join).collect();
        ensure!(ended.iter().all(Result::is_ok), "a thread of the application has panicked");
        Ok(self.books.clone())
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.books.ask_for(OVER);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Leave nothing half done, then end.
const ENDING: u8 = 1;
/// End at once.
const OVER: u8 = 2;

/// What the application has done.
#[derive(Default)]
pub(crate) struct Books {
    phase: AtomicU8,
    batches: AtomicI64,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    did: BTreeMap<&'static str, u64>,
    met: BTreeMap<String, u64>,
    inserted: i64,
    /// Payments whose insert may have been committed: their note, and how many they are.
    doubtful_inserts: Vec<(String, i64)>,
    /// Deleted payments with their notes, which a doubtful insert is compared with.
    deleted: BTreeMap<i64, String>,
    doubtful_deletes: BTreeMap<i64, String>,
}

/// The result of comparing the application's books with the database.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Balance {
    /// How many payments the table must have.
    pub(crate) payments: i64,
    /// How many commits had their answer lost.
    pub(crate) doubtful: usize,
}

impl Books {
    fn ask_for(&self, phase: u8) {
        self.phase.fetch_max(phase, Ordering::Relaxed);
    }

    /// Whether the threads should leave nothing half done and then end.
    pub(crate) fn is_ending(&self) -> bool {
        self.phase.load(Ordering::Relaxed) >= ENDING
    }

    /// Whether the threads should end at once.
    pub(crate) fn is_over(&self) -> bool {
        self.phase.load(Ordering::Relaxed) >= OVER
    }

    /// Waits, but not beyond the end.
    pub(crate) fn pause(&self, time: Duration) {
        let step = Duration::from_millis(20);
        let mut left = time;
        while !left.is_zero() && !self.is_ending() {
            thread::sleep(left.min(step));
            left = left.saturating_sub(step);
        }
    }

    /// A note that no other payments carry.
    pub(crate) fn mark(&self) -> String {
        format!("batch {}", self.batches.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn count(&self, what: &'static str, times: usize) {
        *self.entries().did.entry(what).or_default() += times as u64;
    }

    /// Notes an error that the application has survived.
    pub(crate) fn met(&self, error: &anyhow::Error) {
        let text: String = format!("{error:#}").chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
        let cause = ACCEPTED.iter().find(|cause| text.contains(**cause));
        *self.entries().met.entry(cause.map_or(text, |cause| (*cause).to_owned())).or_default() += 1;
    }

    pub(crate) fn inserted(&self, payments: i64) {
        self.entries().inserted += payments;
    }

    pub(crate) fn perhaps_inserted(&self, note: String, payments: i64) {
        self.entries().doubtful_inserts.push((note, payments));
    }

    pub(crate) fn deleted(&self, id: i64, note: String) {
        self.entries().deleted.insert(id, note);
    }

    pub(crate) fn perhaps_deleted(&self, id: i64, note: String) {
        self.entries().doubtful_deletes.insert(id, note);
    }

    /// How often each thing was done.
    pub(crate) fn did(&self) -> BTreeMap<&'static str, u64> {
        self.entries().did.clone()
    }

    /// How often each error was met.
    pub(crate) fn errors(&self) -> BTreeMap<String, u64> {
        self.entries().met.clone()
    }

    /// The errors that no fault explains.
    pub(crate) fn unexplained(&self) -> Vec<String> {
        self.entries().met.keys().filter(|text| !ACCEPTED.contains(&text.as_str())).cloned().collect()
    }

    /// Looks up the outcome of every commit whose answer was lost. Call it when all sessions of the application are gone:
    /// until then a commit may still be on its way.
    pub(crate) fn balance(&self, session: &mut dyn Session) -> Result<Balance> {
        let entries = self.entries();
        let mut deleted = entries.deleted.clone();
        for (id, note) in &entries.doubtful_deletes {
            if session.count(&format!("SELECT COUNT(*) AS n FROM payments WHERE id = {id}"))? == 0 {
                deleted.insert(*id, note.clone());
            }
        }
        let mut inserted = entries.inserted;
        for (note, payments) in &entries.doubtful_inserts {
            let there = session.count(&format!("SELECT COUNT(*) AS n FROM payments WHERE note = '{note}'"))?;
            let gone = i64::try_from(deleted.values().filter(|other| *other == note).count())?;
            match there + gone {
                0 => {}
                all if all == *payments => inserted += all,
                some => bail!("{some} of the {payments} payments of {note} were inserted"),
            }
        }
        let payments = inserted - i64::try_from(deleted.len())?;
        Ok(Balance { payments, doubtful: entries.doubtful_deletes.len() + entries.doubtful_inserts.len() })
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The errors that faults, locks and other sessions explain, in the words of PostgreSQL, MariaDB and their clients.
const ACCEPTED: &[&str] = &[
    "terminating connection due to administrator command",
    "terminating connection due to unexpected postmaster exit",
    "server closed the connection unexpectedly",
    "the database system is starting up",
    "the database system is not yet accepting connections",
    "Connection refused",
    "could not receive data from server",
    "could not send data to server",
    "Connection reset by peer",
    "a running attempt or another transaction holds some of the rows",
    "deadlock detected",
    "canceling statement due to lock timeout",
    "could not serialize access",
    "Deadlock found",
    "Lock wait timeout exceeded",
    "erver has gone away",
    "Lost connection",
    "Connection was killed",
    "Can't connect to",
    "Record has changed since last read",
];
