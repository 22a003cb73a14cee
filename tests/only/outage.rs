//! A server that goes away and comes back.

use std::sync::Mutex;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use queueable::{Message, Queueable, Status};

use crate::db::{Conn, Database, PrivateServer};
use crate::suite::bank::{Bank, Payment, book, payment_queue, payments};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn workers_survive_the_servers_kill_and_every_row_is_handled_once() {
    let server = PrivateServer::start();
    let bank = Bank::in_database(Database::on(&server));
    let ids = bank.enqueue(1..=300);
    let (handled, wait) = mpsc::channel();
    let handled = Mutex::new(handled);
    let handle = Payment::poller(bank.pool(4), move |payment: &Payment, message: &mut Message<'_, Conn>| {
        let _ = handled.lock().unwrap().send(payment.id);
        book(payment, message)
    })
    .workers(4)
    .start()
    .unwrap();
    for _ in 0..50 {
        wait.recv_timeout(PATIENCE).unwrap();
    }
    server.kill();
    server.restart();
    let mut connection = bank.connect();
    let deadline = Instant::now() + PATIENCE;
    while pending(&mut connection) > 0 {
        assert!(Instant::now() < deadline, "the workers did not come back");
        // A message is handled a moment before it is committed, so the last of them is not the end.
        let _ = wait.recv_timeout(Duration::from_millis(100));
    }
    let shutdown = handle.shutdown(PATIENCE);
    assert_eq!(shutdown.rolled_back, 0);
    assert_eq!(bank.booked(), ids);
    assert_eq!(bank.balance(1), (1..=300).sum::<i64>());
    let tried_once = payments::table
        .filter(payment_queue::status.eq(Status::Success).and(payment_queue::try_count.eq(1)))
        .count()
        .get_result::<i64>(&mut connection);
    assert_eq!(tried_once, Ok(300), "an outage uses no try");
}

fn pending(connection: &mut Conn) -> i64 {
    payments::table.filter(payment_queue::next_attempt_time.is_not_null()).count().get_result(connection).unwrap()
}
