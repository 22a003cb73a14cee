//! Where the workers get their sessions, and how the work goes on while some have none.

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use diesel::r2d2::{ConnectionManager, Pool};
use queueable::{Error, HandlerResult, Message, Outcome, Poller, PollerSettings};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, book};
use crate::suite::lease::{self, Charge};

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
