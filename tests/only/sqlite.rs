//! Promises that only SQLite makes.

mod returning;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use queueable::{QueueState, Queueable, Status};

use crate::suite::bank::{Bank, Payment, book, payments};

#[test]
fn a_time_that_is_none_is_an_error_value() {
    let bank = Bank::new();
    bank.enqueue([1]);
    let mut connection = bank.connect();
    for garbage in ["'soon'", "''", "'2026-13-45 99:99:99'", "'1700000000'", "x'ff00'"] {
        connection.batch_execute(&format!("UPDATE payments SET next_attempt_time = {garbage}")).unwrap();
        let state = payments::table.find(1).select(Payment::queue_state()).get_result::<QueueState>(&mut connection);
        assert!(matches!(state, Err(DieselError::DeserializationError(_))), "{garbage}: {state:?}");
    }
}

#[test]
fn a_row_whose_time_is_none_fails_alone() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2, 3]);
    // Each stands before every honest time in the index.
    bank.connect()
        .batch_execute(
            "UPDATE payments SET next_attempt_time = '' WHERE id = 1;
             UPDATE payments SET next_attempt_time = '1999-99-99' WHERE id = 2",
        )
        .unwrap();
    let tally = bank.run(book);
    assert_eq!((tally.succeeded, tally.retried), (1, 2));
    assert_eq!(bank.booked(), ids[2..]);
    assert_eq!(bank.state(ids[0]).status, Status::Error);
}
