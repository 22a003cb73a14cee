//! Lanes: a strict one whose first row fails in a transaction that is gone, while another process claims in it, and one
//! whose row has ended its process. SQLite has one writer at a time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use fail::FailScenario;
use queueable::{Failure, HandlerResult, Message, Migrations, Outcome, Queueable};

use crate::db::{AUTO_KEY, BIGINT, Conn, Database};

const PATIENCE: Duration = Duration::from_secs(60);

diesel::table! {
    orders (id) {
        id -> BigInt,
        company_id -> BigInt,
    }
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[queue(retry = fixed("1h"), max_tries = 3, serial_by(company_id, strict))]
struct Order {
    id: i64,
    company_id: i64,
}

/// How far the two processes are.
#[derive(Default)]
struct Progress {
    /// The first row's transaction is gone, or is about to go.
    is_lost: AtomicBool,
    /// Meanwhile a worker of the other process has asked whether a row holds the lane back: this thread.
    asker: OnceLock<ThreadId>,
    /// The failure is on the row.
    is_recorded: AtomicBool,
    /// The same worker has asked again, so its claim has ended.
    has_asked_again: AtomicBool,
}

impl Progress {
    fn asks(&self) {
        if !self.is_lost.load(Ordering::SeqCst) {
            return;
        }
        let thread = std::thread::current().id();
        if self.asker.set(thread).is_ok() {
            await_that(|| self.is_recorded.load(Ordering::SeqCst));
        } else if self.asker.get() == Some(&thread) {
            self.has_asked_again.store(true, Ordering::SeqCst);
        }
    }
}

fn await_that(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "the other process does not go on");
        std::thread::yield_now();
    }
}

/// A database with orders of these companies, each due a second later than the one before.
fn orders_of(companies: impl IntoIterator<Item = i64>) -> Database {
    let database = Database::new();
    let mut connection = database.connect();
    let table = format!("CREATE TABLE orders (id {AUTO_KEY} NOT NULL, company_id {BIGINT} NOT NULL)");
    connection.batch_execute(&table).unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Order>()).unwrap();
    let row = |(second, company): (usize, i64)| format!("({company}, '2026-01-01 00:00:{second:02}')");
    let rows: Vec<_> = companies.into_iter().enumerate().map(row).collect();
    let insert = format!("INSERT INTO orders (company_id, next_attempt_time) VALUES {}", rows.join(", "));
    connection.batch_execute(&insert).unwrap();
    database
}

#[test]
fn a_failure_that_is_recorded_while_another_process_claims_holds_its_lane_back() {
    let scenario = FailScenario::setup();
    let database = orders_of([7, 7]);

    let progress = Arc::new(Progress::default());
    let (asking, recording, recorded) = (progress.clone(), progress.clone(), progress.clone());
    fail::cfg_callback("lane-asked", move || asking.asks()).unwrap();
    fail::cfg_callback("recording", move || await_that(|| recording.asker.get().is_some())).unwrap();
    fail::cfg_callback("recorded", move || recorded.is_recorded.store(true, Ordering::SeqCst)).unwrap();

    let begun = Arc::new(Mutex::new(Vec::new()));
    let start = || {
        let (progress, begun) = (progress.clone(), begun.clone());
        let handler = move |order: &Order, message: &mut Message<'_, Conn>| {
            begun.lock().unwrap().push(order.id);
            // Before, because the lane's place is free at once.
            progress.is_lost.store(true, Ordering::SeqCst);
            message.connection().batch_execute("ROLLBACK")?;
            Err::<Outcome, _>(Failure::retry("the bank is down"))
        };
        Order::poller(database.pool(2), handler).workers(1).poll_interval(Duration::from_millis(20)).start().unwrap()
    };
    let pollers = [start(), start()];
    await_that(|| progress.has_asked_again.load(Ordering::SeqCst) || begun.lock().unwrap().len() > 1);
    let retried: u64 = pollers.map(|poller| poller.shutdown(PATIENCE).tally.retried).iter().sum();
    scenario.teardown();
    assert_eq!((begun.lock().unwrap().clone(), retried), (vec![1], 1));
}

#[test]
fn an_order_that_has_ended_its_process_has_its_turn_beside_the_backlog_of_another_company() {
    // The fail points are the process's, and so is the gate behind which the suspected order runs alone.
    let scenario = FailScenario::setup();
    let database = orders_of(std::iter::once(7).chain(std::iter::repeat_n(8, 50)));
    let suspected = order_queue::last_attempt_error_message
        .eq("queueable: the process ended while this message was handled (crash 1 of 3)");
    diesel::update(orders::table.find(1)).set(suspected).execute(&mut database.connect()).unwrap();
    let begun = Arc::new(Mutex::new(Vec::new()));
    let noted = begun.clone();
    let handler = move |order: &Order, _: &mut Message<'_, Conn>| -> HandlerResult {
        noted.lock().unwrap().push(order.company_id);
        Ok(Outcome::Done)
    };
    let tally = Order::poller(database.pool(2), handler).workers(1).run_until_idle().unwrap();
    scenario.teardown();
    assert_eq!(tally.succeeded, 51);
    let place = begun.lock().unwrap().iter().position(|company| *company == 7);
    assert!(place.is_some_and(|place| place < 3), "{begun:?}");
}
