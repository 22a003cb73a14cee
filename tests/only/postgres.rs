//! Promises that only PostgreSQL makes.

mod returning;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use queueable::{QueueState, Queueable, Status};

use crate::suite::bank::{Bank, Payment, book, payments};

#[test]
fn an_infinite_time_is_an_error_value_and_never_due() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2]);
    let mut connection = bank.connect();
    connection.batch_execute("UPDATE payments SET next_attempt_time = 'infinity' WHERE id = 1").unwrap();
    let state = payments::table.find(1).select(Payment::queue_state()).get_result::<QueueState>(&mut connection);
    assert!(matches!(state, Err(DieselError::DeserializationError(_))), "{state:?}");
    assert_eq!(bank.run(book).succeeded, 1);
    assert_eq!(bank.booked(), ids[1..]);
}

#[test]
fn a_row_that_is_due_since_ever_fails_alone() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2]);
    bank.connect().batch_execute("UPDATE payments SET next_attempt_time = '-infinity' WHERE id = 1").unwrap();
    let tally = bank.run(book);
    assert_eq!((tally.succeeded, tally.retried), (1, 1));
    assert_eq!(bank.booked(), ids[1..]);
    assert_eq!(bank.state(ids[0]).status, Status::Error);
}
