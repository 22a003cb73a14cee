//! Constraints that are checked at COMMIT, on the databases that have them.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queueable::{Message, Outcome, Queueable, Status};

use crate::db::{AUTO_KEY, BIGINT, Conn};
use crate::suite::bank::{Bank, Payment, book, payments};
use crate::suite::group::{booked, enqueue_group, entity, run};

entity!(Deferred, deferred_queue, group = 50);
entity!(DeferredOptimistic, deferred_optimistic_queue, group(50, optimistic));

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
        let _ = book(payment, message)?;
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

#[test]
fn a_deferred_constraint_that_fails_at_the_commit_of_a_group_is_a_failure_of_its_row() {
    fn receive(payment: &Payment, message: &mut Message<'_, Conn>) -> queueable::HandlerResult {
        let _ = book(payment, message)?;
        let company = if payment.amount_cents == 3 { 404 } else { 1 };
        diesel::sql_query(format!("INSERT INTO receipts (company_id) VALUES ({company})"))
            .execute(message.connection())?;
        Ok(Outcome::Done)
    }

    for optimistic in [false, true] {
        let bank = Bank::new();
        bank.connect()
            .batch_execute(&format!(
                "CREATE TABLE receipts (id {AUTO_KEY} NOT NULL,
                 company_id {BIGINT} NOT NULL REFERENCES companies (id) DEFERRABLE INITIALLY DEFERRED)"
            ))
            .unwrap();
        let ids = enqueue_group(&bank, 4, 1..=4);
        let tally = if optimistic {
            run::<DeferredOptimistic>(&bank, |row: &DeferredOptimistic, message: &mut Message<'_, Conn>| {
                receive(&row.payment(), message)
            })
        } else {
            run::<Deferred>(&bank, |row: &Deferred, message: &mut Message<'_, Conn>| receive(&row.payment(), message))
        };
        assert_eq!((tally.succeeded, tally.retried, tally.interrupted), (3 + 3, 1, 0));
        assert_eq!(booked(&bank), [ids[0], ids[1], ids[3]]);
        let state = bank.state(ids[2]);
        assert_eq!((state.status, state.try_count), (Status::Error, 1));
        assert!(state.last_attempt_error_message.unwrap().starts_with("the commit was refused"));
    }
}
