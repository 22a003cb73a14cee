//! Constraints that are checked at COMMIT, on the databases that have them.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queueable::{Message, Outcome, Status};

use crate::db::{AUTO_KEY, BIGINT, Conn};
use crate::suite::bank::{Bank, Payment, book};

#[test]
fn a_deferred_constraint_that_fails_at_commit_is_a_failure_of_its_row() {
    let bank = Bank::new();
    bank.connect()
        .batch_execute(&format!(
            "CREATE TABLE receipts (id {AUTO_KEY} NOT NULL,
             company_id {BIGINT} NOT NULL REFERENCES companies (id) DEFERRABLE INITIALLY DEFERRED)"
        ))
        .unwrap();
    let ids = bank.enqueue([1, 2]);
    let tally = bank.run(|payment: &Payment, message: &mut Message<'_, Conn>| {
        book(payment, message)?;
        let company = if payment.amount_cents == 1 { 404 } else { 1 };
        diesel::sql_query(format!("INSERT INTO receipts (company_id) VALUES ({company})"))
            .execute(message.connection())?;
        Ok(Outcome::Done)
    });
    assert_eq!((tally.succeeded, tally.retried), (1, 1));
    assert_eq!(bank.booked(), [ids[1]]);
    let state = bank.state(ids[0]);
    assert_eq!((state.status, state.try_count), (Status::Error, 1));
    let text = state.last_attempt_error_message.unwrap();
    assert!(text.starts_with("the commit was refused"), "{text}");
}
