//! What pollers and modes in one process do to each other, which is nothing.

use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use diesel::prelude::*;
use queueable::{HandlerResult, Message, Outcome, Queueable, Status};

use super::lease::{self, Charge};
use super::modes::Grouped;
use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, ledger, payment_queue, payments};

const PATIENCE: Duration = Duration::from_secs(30);

fn book(id: i64, message: &mut Message<'_, Conn>) -> HandlerResult {
    let booked = (ledger::payment_id.eq(id), ledger::amount_cents.eq(1));
    diesel::insert_into(ledger::table).values(booked).execute(message.connection())?;
    Ok(Outcome::Done)
}

#[test]
fn one_poller_works_the_rows_of_a_table_in_three_modes_and_each_is_handled_once() {
    let bank = Bank::new();
    let ids = bank.enqueue(1..=900);
    let tally =
        Payment::poller(bank.pool(4), |payment: &Payment, message: &mut Message<'_, Conn>| book(payment.id, message))
            .serve::<Grouped>(|grouped: &Grouped, message: &mut Message<'_, Conn>| book(grouped.id, message))
            .serve::<Charge>((|charge: &Charge, _: &queueable::Lease| Ok(charge.amount_cents), lease::apply))
            .workers(4)
            .run_until_idle()
            .unwrap();
    assert_eq!(bank.booked(), ids);
    assert_eq!((tally.succeeded, tally.retried, tally.failed, tally.lost), (900, 0, 0, 0));
    assert!(ids.iter().all(|id| (bank.state(*id).status, bank.state(*id).try_count) == (Status::Success, 1)));
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
            let _ = released.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(PATIENCE);
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
                .eq("queueable: the process ended while this message was handled (crash 1 of 3)"),
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
    assert_eq!(told.recv_timeout(PATIENCE / 3), Ok(ids[0]));
    assert_eq!(next.shutdown(PATIENCE).tally.succeeded, 1);
    drop(release);
}
