//! A row that an attempt has lost: the attempt does not overwrite what others did to it meanwhile.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use queueable::{Failure, Message, Queueable, Status};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, book, payment_queue, payments};

/// The answers of a handler whose transaction is gone: the worker waits after a conflict, and records any other
/// failure.
const ANSWERS: [fn() -> Failure; 2] = [
    || {
        let text = "database is locked".to_owned();
        DieselError::DatabaseError(DatabaseErrorKind::SerializationFailure, Box::new(text)).into()
    },
    || Failure::retry("no conflict"),
];

/// Gives the row's lock up like a lost deadlock: the database ends the transaction while the handler still runs.
fn lose_the_transaction(message: &mut Message<'_, Conn>) {
    message.connection().batch_execute("ROLLBACK").unwrap();
}

#[test]
fn a_row_that_was_stopped_while_its_attempt_lost_it_stays_stopped() {
    for answer in ANSWERS {
        let bank = Bank::new();
        let id = bank.enqueue([1])[0];
        let (first, operator) = (AtomicBool::new(true), Mutex::new(bank.connect()));
        bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| {
            if !first.swap(false, Ordering::Relaxed) {
                return book(payment, message);
            }
            lose_the_transaction(message);
            assert_eq!(Payment::queue().all_rows().stop(&mut *operator.lock().unwrap())?, 1);
            Err(answer())
        });
        let state = bank.state(id);
        assert_eq!((state.status, state.try_count, state.next_attempt_time), (Status::NotAttempted, 0, None));
        assert!(bank.booked().is_empty());
    }
}

#[test]
fn a_row_that_another_worker_finished_while_its_attempt_lost_it_does_not_run_again() {
    for answer in ANSWERS {
        let bank = Bank::new();
        let id = bank.enqueue([1])[0];
        bank.run(book);
        // Sent again by an application that knows one column: status and tries are those of a finished row.
        diesel::update(payments::table.find(id))
            .set(payment_queue::next_attempt_time.eq(queueable::columns::Now))
            .execute(&mut bank.connect())
            .unwrap();
        let (first, pool) = (AtomicBool::new(true), bank.pool(1));
        bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| {
            if !first.swap(false, Ordering::Relaxed) {
                return book(payment, message);
            }
            lose_the_transaction(message);
            // In a thread of its own, like another process: a handler may not wait for its own queue.
            let other = || Payment::poller(pool.clone(), book).workers(1).run_until_idle().unwrap();
            assert_eq!(thread::scope(|scope| scope.spawn(other).join().unwrap()).succeeded, 1);
            Err(answer())
        });
        assert_eq!(bank.booked(), [id, id], "once, and once more because it was sent again");
        assert_eq!((bank.state(id).status, bank.state(id).next_attempt_time), (Status::Success, None));
    }
}
