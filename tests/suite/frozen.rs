//! A process that is frozen for longer than a handler may take, and continues when nobody expects it any more.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use queueable::{CrashAccounting, HandlerResult, Message, Queueable, Status};

use crate::db::{self, Conn};
use crate::suite::bank::{Bank, Payment, book, payments};
use crate::suite::main_job::program::Program;

const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = brief_queue, retry = fixed("1h"), timeout = "10s")]
struct Brief {
    id: i64,
    company_id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = brief_group_queue, retry = fixed("0s"), timeout = "10s", group = 8)]
struct BriefInGroups {
    id: i64,
    company_id: i64,
    amount_cents: i64,
}

impl BriefInGroups {
    fn alone(&self) -> Brief {
        let Self { id, company_id, amount_cents } = *self;
        Brief { id, company_id, amount_cents }
    }
}

/// The payment in the middle of a group at which the process is frozen.
const LATE: i64 = 10;

const URL: &str = "QUEUEABLE_FROZEN_URL";
const GROUPED: &str = "QUEUEABLE_FROZEN_IN_GROUPS";
const DIRECTORY: &str = "QUEUEABLE_FROZEN_DIRECTORY";

/// Books a payment, and returns only when a certain file exists.
fn book_and_wait(payment: &Brief, message: &mut Message<'_, Conn>) -> HandlerResult {
    let directory = PathBuf::from(env::var_os(DIRECTORY).expect("it runs in a process of its own"));
    let booked = book_brief(payment, message);
    fs::write(directory.join("begun"), "")?;
    let (_nobody, pace) = mpsc::channel::<()>();
    while !directory.join("release").exists() {
        let _ = pace.recv_timeout(Duration::from_millis(1));
    }
    booked
}

fn book_brief(payment: &Brief, message: &mut Message<'_, Conn>) -> HandlerResult {
    let Brief { id, company_id, amount_cents } = *payment;
    book(&Payment { id, company_id, amount_cents }, message)
}

#[test]
fn a_process_of_its_own() {
    // As one of the other tests, it has nothing to do.
    let Ok(url) = env::var(URL) else { return };
    // Crashes are not counted, because a young process marks its rows, and a marked row waits and runs alone.
    // A pool that opens connections while its process exits makes libpq's Kerberos library abort it.
    let pool = Pool::builder().max_size(2).min_idle(Some(0)).build(ConnectionManager::<Conn>::new(url)).unwrap();
    if env::var_os(GROUPED).is_some() {
        let handler = |row: &BriefInGroups, message: &mut Message<'_, Conn>| {
            if row.amount_cents == LATE {
                book_and_wait(&row.alone(), message)
            } else {
                book_brief(&row.alone(), message)
            }
        };
        let poller = BriefInGroups::poller(pool, handler).crash_accounting(CrashAccounting::Off);
        poller.workers(1).run_until_idle().unwrap();
        return;
    }
    let poller = Brief::poller(pool, book_and_wait).crash_accounting(CrashAccounting::Off);
    let tally = poller.workers(1).run_until_idle().unwrap();
    assert_eq!(tally.succeeded, 0, "it was past its timeout");
}

#[test]
fn a_group_that_was_frozen_past_its_timeout_commits_nothing_when_it_wakes() {
    let (bank, directory) = (Bank::new(), tempfile::tempdir().unwrap());
    let ids = bank.enqueue(1..=12);
    let place = directory.path().to_str().unwrap();
    let variables = [(URL, bank.database.url()), (DIRECTORY, place), (GROUPED, "")];
    let mut program = Program::of_this_test("suite::frozen::a_process_of_its_own", variables);
    program.await_answer("the handler has begun", || directory.path().join("begun").exists().then_some(()));
    program.signal("STOP");
    if db::NAME == "sqlite" {
        let (_nobody, time) = mpsc::channel::<()>();
        let _ = time.recv_timeout(TIMEOUT);
    } else {
        let handler = |row: &BriefInGroups, message: &mut Message<'_, Conn>| book_brief(&row.alone(), message);
        let tally = BriefInGroups::poller(bank.pool(1), handler).workers(1).run_until_idle().unwrap();
        assert!(tally.succeeded > 1, "the whole group runs elsewhere: {tally:?}");
        assert_eq!(bank.booked(), ids);
    }
    fs::write(directory.path().join("release"), "").unwrap();
    program.signal("CONT");
    program.end().well();
    assert_eq!(bank.booked(), ids, "each once, wherever");
    let open = Payment::queue().pending().count(&mut bank.connect()).unwrap();
    assert_eq!(open, 0);
}

#[test]
fn a_worker_that_was_frozen_past_its_timeout_commits_nothing_when_it_wakes() {
    let (bank, directory) = (Bank::new(), tempfile::tempdir().unwrap());
    let id = bank.enqueue([1])[0];
    let place = directory.path().to_str().unwrap();
    let variables = [(URL, bank.database.url()), (DIRECTORY, place)];
    let mut program = Program::of_this_test("suite::frozen::a_process_of_its_own", variables);
    program.await_answer("the handler has begun", || directory.path().join("begun").exists().then_some(()));
    program.signal("STOP");
    let elsewhere = db::NAME != "sqlite";
    if elsewhere {
        // The server ends the frozen session. Until then the row counts as due, and the poller waits for it.
        let tally = Brief::poller(bank.pool(1), book_brief).workers(1).run_until_idle().unwrap();
        assert_eq!(tally.succeeded, 1);
    } else {
        // Nobody can end the frozen session: it keeps the write lock.
        let (_nobody, time) = mpsc::channel::<()>();
        let _ = time.recv_timeout(TIMEOUT);
    }
    fs::write(directory.path().join("release"), "").unwrap();
    program.signal("CONT");
    program.end().well();
    let state = bank.state(id);
    if elsewhere {
        assert_eq!((state.status, state.try_count), (Status::Success, 1));
        assert_eq!(bank.booked(), [id]);
    } else {
        assert_eq!((state.status, state.try_count), (Status::Error, 1));
        assert!(state.last_attempt_error_message.unwrap().contains("longer than its timeout"));
        assert_eq!(bank.booked(), [0; 0]);
    }
}
