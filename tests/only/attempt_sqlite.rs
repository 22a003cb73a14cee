//! The attempt's promises that only SQLite can break.

use std::sync::Mutex;
use std::sync::mpsc;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queueable::{Message, Queueable};

use crate::db::Conn;
use crate::suite::bank::{Bank, NewPayment, Payment, book, payments};

const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_second_writer_waits_its_turn_and_nobody_sees_a_locked_database() {
    let bank = Bank::new();
    bank.enqueue(1..=100);
    let mut second = bank.connect();
    second.batch_execute("PRAGMA busy_timeout = 20000").unwrap();
    let (handled, signals) = mpsc::channel();
    let writer = std::thread::spawn(move || {
        let mut written = 0_i64;
        // Each write begins while a message's transaction has the database. Without pauses the workers would never get it.
        for () in signals {
            diesel::insert_into(payments::table)
                .values(NewPayment { company_id: 2, amount_cents: 0 })
                .execute(&mut second)
                .unwrap();
            written += 1;
        }
        written
    });
    let handled = Mutex::new(handled);
    let book_and_tell = move |payment: &Payment, message: &mut Message<'_, Conn>| {
        let outcome = book(payment, message)?;
        handled.lock().unwrap().send(())?;
        Ok(outcome)
    };
    let patience = Duration::from_secs(20);
    let tally =
        Payment::poller(bank.pool(4), book_and_tell).workers(4).lock_timeout(patience).run_until_idle().unwrap();
    let written = writer.join().unwrap();
    assert_eq!((tally.succeeded, tally.interrupted, tally.retried, written), (100, 0, 0, 100));
    let of_two = payments::table.filter(payments::company_id.eq(2)).count();
    assert_eq!(of_two.get_result::<i64>(&mut bank.connect()), Ok(written));
}

#[test]
fn a_poller_that_starts_while_another_writes_waits_for_it_and_says_so_when_that_is_too_long() {
    // Not in WAL mode yet: the poller must switch the file, and needs it alone for that.
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    let mut holder = bank.connect();
    holder.batch_execute("BEGIN IMMEDIATE").unwrap();
    let refused = bank.poller(book).lock_timeout(Duration::from_millis(50)).start().map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("database is locked"), "{refused}");
    let (started, wait) = mpsc::channel();
    let poller = bank.poller(book).lock_timeout(PATIENCE);
    let start = std::thread::spawn(move || {
        let tally = poller.run_until_idle().unwrap();
        started.send(tally.succeeded).unwrap();
    });
    assert!(wait.recv_timeout(Duration::from_millis(100)).is_err());
    holder.batch_execute("COMMIT").unwrap();
    assert_eq!(wait.recv_timeout(PATIENCE), Ok(1));
    start.join().unwrap();
    assert_eq!(bank.booked(), [id]);
}

#[test]
fn a_writer_that_holds_the_database_delays_the_claim_and_costs_no_try() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    let mut holder = bank.connect();
    // The poller switches to WAL mode when it starts, while no other connection may use the file.
    holder.batch_execute("PRAGMA journal_mode = WAL").unwrap();
    holder.batch_execute("BEGIN IMMEDIATE").unwrap();
    let (handled, wait) = mpsc::channel();
    let handled = Mutex::new(handled);
    let handle = bank
        .poller(move |payment: &Payment, message: &mut Message<'_, Conn>| {
            handled.lock().unwrap().send(message.try_number())?;
            book(payment, message)
        })
        .lock_timeout(Duration::from_millis(50))
        .start()
        .unwrap();
    // Several claims give up in this time.
    assert!(wait.recv_timeout(Duration::from_millis(500)).is_err());
    holder.batch_execute("COMMIT").unwrap();
    assert_eq!(wait.recv_timeout(PATIENCE), Ok(1));
    handle.shutdown(PATIENCE);
    assert_eq!(bank.booked(), [id]);
}
