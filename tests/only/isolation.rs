//! Operations beside transactions that change the same rows, whatever isolation the database has by default.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use queueable::{Error, Queueable};

use crate::db::{Conn, SERIALIZABLE, WAITS};
use crate::suite::bank::{Bank, Payment};

/// Returns when a statement waits for a lock.
fn await_wait(bank: &Bank) {
    let mut connection = bank.connect();
    let (_nobody, pace) = mpsc::channel::<()>();
    while sql::<BigInt>(WAITS).get_result::<i64>(&mut connection).unwrap() == 0 {
        // InnoDB refreshes its list of waits only every 100 milliseconds.
        let _ = pace.recv_timeout(Duration::from_millis(200));
    }
}

/// Runs an operation in a serializable session, while another transaction has changed a row. That one does `meanwhile`
/// before it commits.
fn beside(bank: &Bank, meanwhile: &str, operation: fn(&mut Conn) -> Result<usize, Error>) -> Result<usize, Error> {
    let mut other = bank.connect();
    other.batch_execute("BEGIN; UPDATE payments SET amount_cents = 7 WHERE id = 2").unwrap();
    thread::scope(|scope| {
        let running = scope.spawn(|| {
            let mut connection = bank.connect();
            connection.batch_execute(SERIALIZABLE).unwrap();
            operation(&mut connection)
        });
        await_wait(bank);
        // The server ends one of two sessions that wait for each other.
        let _ = other.batch_execute(meanwhile);
        other.batch_execute("COMMIT").unwrap();
        running.join().unwrap()
    })
}

#[test]
fn an_operation_takes_rows_as_another_transaction_has_left_them() {
    type Operation = fn(&mut Conn) -> Result<usize, Error>;
    let operations: [Operation; 4] = [
        |connection| Payment::queue().all_rows().wait(Duration::from_secs(30)).retry_now(connection),
        |connection| Payment::queue().all_rows().wait(Duration::from_secs(30)).stop(connection),
        |connection| Payment::queue().all_rows().wait(Duration::from_secs(30)).restart(connection),
        |connection| Payment::queue().all_rows().wait(Duration::from_secs(30)).delete(connection),
    ];
    let bank = Bank::new();
    bank.enqueue([1, 2, 3]);
    for (number, operation) in operations.into_iter().enumerate() {
        assert_eq!(beside(&bank, "SELECT 1", operation).unwrap(), 3, "{number}");
    }
}

#[test]
fn an_operation_that_loses_a_deadlock_is_tried_anew() {
    let bank = Bank::new();
    bank.enqueue([1, 2, 3]);
    let first = "UPDATE payments SET amount_cents = 8 WHERE id = 1";
    let operation =
        |connection: &mut Conn| Payment::queue().all_rows().wait(Duration::from_secs(30)).retry_now(connection);
    for _ in 0..3 {
        assert_eq!(beside(&bank, first, operation).unwrap(), 3);
    }
}
