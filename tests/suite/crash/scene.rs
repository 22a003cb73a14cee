//! A bank whose payments are handled by processes that may end, and what such a process does.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use chrono::TimeDelta;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::result::DatabaseErrorKind::SerializationFailure;
use diesel::result::Error::DatabaseError;
use queueable::{CrashAccounting, HandlerResult, Message, PollerSettings, QueueState, Queueable, Status};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::db::{self, Conn};
use crate::suite::bank::{Bank, Payment, book, payment_queue, payments};
use crate::suite::group::entity;
use crate::suite::main_job::program::{Ended, Program};

/// The amount that ends the process.
pub(super) const DEADLY: i64 = -1;

entity!(Grouped, grouped_queue, group = 20);

/// The orders of a process.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Orders {
    pub(super) url: String,
    pub(super) settings: PollerSettings,
    /// How many handlers must have begun before the first one ends.
    pub(super) company: usize,
    /// Whether the handlers never end by themselves.
    pub(super) hang: bool,
    /// Whether the process shuts its poller down, with no grace, when a handler hangs.
    pub(super) leave: bool,
    /// Whether the rows are processed in groups.
    pub(super) grouped: bool,
    /// Whether the payments become due only when the process has started.
    pub(super) old: bool,
    /// Where the handlers leave notes that no crash undoes.
    pub(super) notes: PathBuf,
}

pub(super) const ORDERS: &str = "QUEUEABLE_CRASH_ORDERS";

/// Does what the environment orders. As one of the other tests, the process has no orders.
pub(super) fn work_as_ordered() {
    let Ok(orders) = env::var(ORDERS) else { return };
    let orders: Orders = serde_json::from_str(&orders).unwrap();
    let workers = u32::try_from(orders.settings.workers).unwrap();
    let pool = Pool::builder()
        // One for this thread, one that a shutdown opens.
        .max_size(workers + 3)
        // A pool that opens connections while its process exits makes libpq's Kerberos library abort it.
        .min_idle(Some(0))
        .build(ConnectionManager::<Conn>::new(&orders.url))
        .unwrap();
    let mut session = pool.get().unwrap();
    if db::NAME == "sqlite" {
        session.batch_execute("PRAGMA busy_timeout = 5000").unwrap();
    }
    let (settings, notes, leave, old) = (orders.settings.clone(), orders.notes.clone(), orders.leave, orders.old);
    let handler = Notary { barrier: Barrier::new(orders.company), orders, begun: AtomicUsize::new(0) };
    let poller = if handler.orders.grouped {
        Grouped::poller(pool, move |row: &Grouped, message: &mut Message<'_, Conn>| {
            handler.handle(&row.payment(), message)
        })
    } else {
        Payment::poller(pool, move |row: &Payment, message: &mut Message<'_, Conn>| handler.handle(row, message))
    };
    let handle = poller.settings(settings).start().unwrap();
    if old {
        // The system knows the start of the process to some hundredths of a second.
        postpone(&mut session, TimeDelta::milliseconds(100));
    }
    let (_nobody, pace) = mpsc::channel::<()>();
    let hangs = || fs::read_to_string(&notes).is_ok_and(|notes| notes.contains("hangs"));
    // While another connection recovers from the last crash, SQLite reports that the database is locked.
    let mut goes_on = || Payment::queue().pending().count(&mut session).unwrap_or(1) > 0;
    while goes_on() && !(leave && hangs()) {
        let _ = pace.recv_timeout(Duration::from_millis(20));
    }
    handle.shutdown(if leave { Duration::ZERO } else { Duration::from_secs(10) });
}

/// Makes the pending payments due so much later than now.
fn postpone(session: &mut Conn, by: TimeDelta) {
    let pending = payments::table.filter(payment_queue::next_attempt_time.is_not_null());
    let later = queueable::columns::Instant::from(chrono::Utc::now() + by);
    diesel::update(pending).set(payment_queue::next_attempt_time.eq(later)).execute(session).unwrap();
}

/// The handler in such a process.
struct Notary {
    orders: Orders,
    barrier: Barrier,
    begun: AtomicUsize,
}

static INSIDE: AtomicUsize = AtomicUsize::new(0);
static SUSPECT_INSIDE: AtomicBool = AtomicBool::new(false);

impl Notary {
    fn handle(&self, payment: &Payment, message: &mut Message<'_, Conn>) -> HandlerResult {
        let text = message.queue_state().last_attempt_error_message.as_deref();
        let suspected = text.is_some_and(|text| text.contains("(crash "));
        let others = INSIDE.fetch_add(1, Ordering::SeqCst);
        SUSPECT_INSIDE.fetch_or(suspected, Ordering::SeqCst);
        if SUSPECT_INSIDE.load(Ordering::SeqCst) && others > 0 {
            self.note("suspect in company", payment);
        }
        if suspected {
            self.note("suspect", payment);
        }
        if self.begun.fetch_add(1, Ordering::SeqCst) < self.orders.company {
            self.barrier.wait();
            if self.orders.company > 1 && payment.amount_cents != DEADLY {
                // A handler that ends before the abort would not be a neighbour.
                let (_nobody, never) = mpsc::channel::<()>();
                let _ = never.recv();
            }
        }
        if self.orders.hang {
            self.note("hangs", payment);
            let (_nobody, never) = mpsc::channel::<()>();
            let _ = never.recv();
        }
        if payment.amount_cents == DEADLY {
            self.note("ends the process", payment);
            std::process::abort();
        }
        let booked = book(payment, message);
        SUSPECT_INSIDE.fetch_and(!suspected, Ordering::SeqCst);
        INSIDE.fetch_sub(1, Ordering::SeqCst);
        booked
    }

    fn note(&self, what: &str, payment: &Payment) {
        let mut notes = OpenOptions::new().append(true).create(true).open(&self.orders.notes).unwrap();
        notes.write_all(format!("{what}: {}\n", payment.id).as_bytes()).unwrap();
    }
}

/// A bank whose payments are handled by processes that may end.
pub(super) struct Scene {
    pub(super) bank: Bank,
    /// Where the notes are, for as long as the scene lasts.
    _directory: TempDir,
    pub(super) orders: Orders,
}

impl Scene {
    pub(super) fn new(accounting: CrashAccounting, workers: usize) -> Self {
        let (bank, directory) = (Bank::new(), tempfile::tempdir().unwrap());
        let mut settings = PollerSettings::default();
        settings.workers = workers;
        settings.crash_accounting = accounting;
        settings.poll_interval = Duration::from_millis(100);
        let (url, notes) = (bank.database.url().to_owned(), directory.path().join("notes"));
        Scene {
            bank,
            orders: Orders { url, settings, company: 1, hang: false, leave: false, grouped: false, old: false, notes },
            _directory: directory,
        }
    }

    /// Enqueues a deadly payment, which has been due longest, and others. Returns their ids.
    pub(super) fn enqueue(&self, others: i64) -> (i64, Vec<i64>) {
        let mut ids = self.bank.enqueue([DEADLY].into_iter().chain(1..=others));
        let deadly = ids.remove(0);
        self.make_due_since(1, &[deadly]);
        (deadly, ids)
    }

    /// Makes these payments due since as many hours.
    pub(super) fn make_due_since(&self, hours: i64, ids: &[i64]) {
        let long_ago = chrono::Utc::now() - TimeDelta::hours(hours);
        diesel::update(payments::table.filter(payments::id.eq_any(ids)))
            .set(payment_queue::next_attempt_time.eq(queueable::columns::Instant::from(long_ago)))
            .execute(&mut self.bank.connect())
            .unwrap();
    }

    pub(super) fn start(&self, orders: &Orders) -> Program {
        if orders.old {
            postpone(&mut self.bank.connect(), TimeDelta::hours(1));
        }
        let orders = serde_json::to_string(orders).unwrap();
        Program::of_this_test("suite::crash::a_process_of_its_own", [(ORDERS, orders)])
    }

    /// Runs one process. Returns whether it ended by itself.
    pub(super) fn run(&self, company: usize) -> bool {
        let is_over = is_over(self.start(&Orders { company, ..self.orders.clone() }).end());
        if !is_over {
            self.end_the_wait();
        }
        is_over
    }

    /// Makes the rows due that wait after a crash, because they were marked.
    fn end_the_wait(&self) {
        let waits = payments::table.filter(payment_queue::next_attempt_time.gt(queueable::columns::Now));
        let end = diesel::update(waits).set(payment_queue::next_attempt_time.eq(queueable::columns::Now));
        let connection = &mut self.bank.connect();
        // The server may still run what the dead process has sent, and InnoDB finds a deadlock with that.
        let mut tries = (0..100).map(|_| end.clone().execute(connection));
        let is_conflict = |ended: &QueryResult<usize>| matches!(ended, Err(DatabaseError(SerializationFailure, _)));
        tries.find(|ended| !is_conflict(ended)).expect("a conflict does not last").unwrap();
    }

    /// Runs one process after the other until one ends by itself. Returns how many crashed.
    pub(super) fn run_until_over(&self) -> usize {
        (0..10).find(|_| self.run(1)).expect("the processes crash for ever")
    }

    /// Returns the ids in the notes of one kind.
    pub(super) fn noted(&self, what: &str) -> Vec<i64> {
        let notes = fs::read_to_string(&self.orders.notes).unwrap_or_default();
        notes.lines().filter_map(|line| line.strip_prefix(what)?.strip_prefix(": ")?.parse().ok()).collect()
    }

    pub(super) fn assert_set_aside(&self, deadly: i64) {
        let state = self.bank.state(deadly);
        assert_eq!((state.status, state.try_count, state.next_attempt_time), (Status::Failed, 0, None));
        let text = state.last_attempt_error_message.unwrap();
        assert!(text.contains("the process ended 3 times while this message was handled"), "{text}");
    }

    pub(super) fn assert_cleared(&self, others: &[i64]) {
        assert_eq!(self.bank.booked(), others, "each once");
        let states = payments::table.filter(payments::id.eq_any(others)).select(Payment::queue_state());
        let states: Vec<QueueState> = states.load(&mut self.bank.connect()).unwrap();
        assert_eq!(states.len(), others.len());
        for state in states {
            assert_eq!((state.status, state.try_count), (Status::Success, 1));
            assert_eq!(state.last_attempt_error_message, None);
        }
        assert_eq!(self.noted("suspect in company"), [0; 0]);
    }
}

pub(super) fn is_over(ended: Ended) -> bool {
    use std::os::unix::process::ExitStatusExt;
    const SIGABRT: i32 = 6;
    assert!(ended.status.success() || ended.status.signal() == Some(SIGABRT), "{ended:?}");
    ended.status.success()
}

/// How many handlers run at the same time. SQLite has one writer.
pub(super) fn at_once(workers: usize) -> usize {
    if db::NAME == "sqlite" { 1 } else { workers }
}
