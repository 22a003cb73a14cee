//! Pollers and modes in one process have no effect on each other.

use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{Error, HandlerResult, Message, Migrations, Outcome, Queueable};

use super::modes::Grouped;
use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, ledger, payment_queue, payments};

const PATIENCE: Duration = Duration::from_secs(120);

fn book(id: i64, message: &mut Message<'_, Conn>) -> HandlerResult {
    let booked = (ledger::payment_id.eq(id), ledger::amount_cents.eq(1));
    diesel::insert_into(ledger::table).values(booked).execute(message.connection())?;
    Ok(Outcome::Done)
}

#[test]
fn two_entities_on_the_same_columns_are_refused_in_one_poller() {
    let bank = Bank::new();
    bank.enqueue([1]);
    let handle_payment = |payment: &Payment, message: &mut Message<'_, Conn>| book(payment.id, message);
    let handle_grouped = |grouped: &Grouped, message: &mut Message<'_, Conn>| book(grouped.id, message);
    let says = |refused: Error| {
        let Error::Unsafe(findings) = refused else { panic!("{refused}") };
        assert_eq!(findings.len(), 1, "{findings:?}");
        findings[0].to_string()
    };
    let both = Payment::poller(bank.pool(1), handle_payment).serve::<Grouped>(handle_grouped).workers(1);
    let said = says(both.run_until_idle().unwrap_err());
    assert!(said.contains("Grouped") && said.contains("Payment") && said.contains("next_attempt_time"), "{said}");
    // Two pollers may serve one entity.
    let first = Payment::poller(bank.pool(1), handle_payment).workers(1).start().unwrap();
    Payment::poller(bank.pool(1), handle_payment).workers(1).run_until_idle().unwrap();
    first.shutdown(PATIENCE);
}

#[test]
fn two_entities_that_share_one_column_are_refused() {
    /// A queue that shares the other's column for failures.
    #[derive(Debug, Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(module = half_queue, prefix = "half_", last_attempt_error_message = last_attempt_error_message)]
    struct Half {
        id: i64,
    }

    let bank = Bank::new();
    MigrationHarness::run_pending_migrations(&mut bank.connect(), Migrations::new().entity::<Half>()).unwrap();
    let refused =
        Payment::poller(bank.pool(1), |payment: &Payment, message: &mut Message<'_, Conn>| book(payment.id, message))
            .serve::<Half>(|half: &Half, message: &mut Message<'_, Conn>| book(half.id, message))
            .workers(1)
            .run_until_idle()
            .unwrap_err()
            .to_string();
    assert!(refused.contains("Half") && refused.contains("last_attempt_error_message"), "{refused}");
}

#[test]
fn a_suspect_does_not_wait_for_a_handler_that_a_shutdown_has_left_behind() {
    let (bank, other) = (Bank::new(), Bank::new());
    bank.enqueue([1]);
    let (begin, begun) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (begin, released) = (Mutex::new(begin), Mutex::new(released));
    let handle = bank
        .poller(move |_: &Payment, _: &mut Message<'_, Conn>| -> HandlerResult {
            let _ = begin.lock().unwrap().send(());
            // This ends with the test at the latest, even if the test fails.
            let _ = released.lock().unwrap_or_else(PoisonError::into_inner).recv();
            Ok(Outcome::Done)
        })
        .start()
        .unwrap();
    begun.recv_timeout(PATIENCE).unwrap();
    assert_eq!(handle.shutdown(Duration::ZERO).rolled_back, 1);
    let ids = other.enqueue([1]);
    diesel::update(payments::table)
        .set(
            payment_queue::last_attempt_error_message
                .eq("queueable: this message is being handled, or the process ended meanwhile (crash 1 of 3)"),
        )
        .execute(&mut other.connect())
        .unwrap();
    let (tell, told) = mpsc::channel();
    let next = other
        .poller(move |payment: &Payment, message: &mut Message<'_, Conn>| {
            let _ = tell.send(payment.id);
            book(payment.id, message)
        })
        .start()
        .unwrap();
    assert_eq!(told.recv_timeout(PATIENCE), Ok(ids[0]));
    assert_eq!(next.shutdown(PATIENCE).tally.succeeded, 1);
    drop(release);
}
