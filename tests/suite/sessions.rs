//! Where the workers get their sessions, and how the work goes on while some have none.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use queueable::{Error, HandlerResult, Message, Outcome, Poller, PollerSettings};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, book, payment_queue, payments};
use crate::suite::lease::{self, Charge};
use crate::suite::modes::Grouped;
use crate::suite::warnings::{await_warning, keep_warnings};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn workers_without_a_session_keep_no_row_from_those_that_have_one() {
    let bank = Bank::new();
    // The poller's own session, those of two workers, and three of the application's.
    let pool = bank.pool(4);
    let of_the_application: Vec<_> = (0..3).map(|_| pool.get().unwrap()).collect();
    let mut settings = PollerSettings::default();
    (settings.workers, settings.pool_timeout) = (4, Duration::from_millis(200));
    let (worked, works) = mpsc::channel();
    let worked = Mutex::new(worked);
    let handler = move |payment: &Payment, _: &mut Message<'_, Conn>| -> HandlerResult {
        worked.lock().unwrap().send(payment.id).unwrap();
        Ok(Outcome::Done)
    };
    let handle = Poller::new(pool).settings(settings).serve::<Payment>(handler).start().unwrap();
    for amount in 1..=20 {
        let id = bank.enqueue([amount])[0];
        assert_eq!(works.recv_timeout(PATIENCE), Ok(id));
    }
    drop(of_the_application);
    assert_eq!(handle.shutdown(PATIENCE).tally.succeeded, 20);
}

#[test]
fn a_poller_works_on_connections_of_its_own() {
    let bank = Bank::new();
    let ids = bank.enqueue(1..=20);
    let manager = || ConnectionManager::<Conn>::new(bank.database.url());
    let tally = Poller::with_own_connections(manager()).workers(2).serve::<Payment>(book).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, bank.booked()), (20, ids));
    bank.enqueue(1..=5);
    let handler = (|charge: &Charge, _: &queueable::Lease| Ok(charge.amount_cents), lease::apply);
    let tally = Poller::with_own_connections(manager()).workers(2).serve::<Charge>(handler).run_until_idle().unwrap();
    assert_eq!(tally.succeeded, 5);
}

#[test]
fn a_driver_that_panics_while_the_heartbeat_connects_costs_no_lease() {
    let bank = Bank::new();
    let ids = bank.enqueue([1]);
    keep_warnings();
    let (url, has_panicked) = (bank.database.url().to_owned(), AtomicBool::new(false));
    let connect = move || {
        let is_heartbeat = thread::current().name() == Some("queueable-heart");
        assert!(!is_heartbeat || has_panicked.swap(true, Ordering::SeqCst), "a driver's first connect");
        Conn::establish(&url)
    };
    let (extended, is_extended) = mpsc::channel();
    let seen = bank.database.url().to_owned();
    let call = move |charge: &Charge, _: &queueable::Lease| {
        let end = || -> Option<DateTime<Utc>> {
            let of_row = payments::table.find(charge.id).select(payment_queue::next_attempt_time);
            of_row.get_result(&mut Conn::establish(&seen).unwrap()).unwrap()
        };
        let first = end();
        let deadline = Instant::now() + PATIENCE;
        while end() <= first {
            assert!(Instant::now() < deadline, "the lease is not extended");
            thread::park_timeout(Duration::from_millis(20));
        }
        let _ = extended.send(());
        Ok(charge.amount_cents)
    };
    let handler = (call, lease::apply);
    let handle = Poller::with_own_connections(connect).workers(1).serve::<Charge>(handler).start().unwrap();
    await_warning(&["Charge", "extending the leases panicked"]);
    is_extended.recv_timeout(PATIENCE).expect("the heartbeat works");
    assert_eq!(handle.shutdown(PATIENCE).tally.succeeded, 1);
    assert_eq!(bank.state(ids[0]).try_count, 1);
}

#[test]
fn a_worker_keeps_its_session_from_message_to_message() {
    let bank = Bank::new();
    let made = Arc::new(AtomicUsize::new(0));
    let poller = || {
        let (url, made) = (bank.database.url().to_owned(), made.clone());
        Poller::with_own_connections(move || {
            made.fetch_add(1, Ordering::SeqCst);
            Conn::establish(&url)
        })
        .workers(1)
    };
    let group = |payment: &Grouped, _: &mut Message<'_, Conn>| -> HandlerResult {
        assert!(payment.id > 0);
        Ok(Outcome::Done)
    };
    let leased = (|charge: &Charge, _: &queueable::Lease| Ok(charge.amount_cents), lease::apply);
    let pollers = [poller().serve::<Payment>(book), poller().serve::<Grouped>(group), poller().serve::<Charge>(leased)];
    for poller in pollers {
        bank.enqueue(1..=30);
        made.store(0, Ordering::SeqCst);
        assert_eq!(poller.run_until_idle().unwrap().succeeded, 30);
        // That of the checks at the start, the worker's, the poller's own, and that of the leases. One that a busy server
        // has ended may be among them, but not one for each message.
        let made = made.load(Ordering::SeqCst);
        assert!(made < 10, "{made} sessions were opened");
    }
}

#[test]
fn a_poller_that_cannot_connect_says_so() {
    let manager = ConnectionManager::<Conn>::new("postgres://nobody:secret@127.0.0.1:1/nowhere");
    let refused = Poller::with_own_connections(manager).serve::<Payment>(book).start();
    assert!(matches!(refused, Err(Error::Establish(_))), "{refused:?}");
}

#[test]
fn a_pool_without_a_free_connection_is_reported_at_start() {
    let bank = Bank::new();
    let pool = Pool::builder().max_size(3).build(ConnectionManager::<Conn>::new(bank.database.url())).unwrap();
    let _all: Vec<_> = (0..3).map(|_| pool.get().unwrap()).collect();
    let mut settings = PollerSettings::default();
    (settings.workers, settings.pool_timeout) = (2, Duration::from_millis(50));
    let refused = Poller::new(pool).settings(settings).serve::<Payment>(book).start();
    assert!(matches!(refused, Err(Error::Connect(_))), "{refused:?}");
}
