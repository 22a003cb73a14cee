//! Rows that others hold: an operation changes all of them or none, and does not wait for them without bound.

use std::sync::Mutex;
use std::sync::mpsc;
use std::time::Duration;

use chrono::{TimeDelta, Utc};
use diesel::connection::TransactionManager;
use diesel::prelude::*;
use queueable::{Error, Lease, Message, Outcome, Queueable, Status};

use super::operations::{Operated, company, rows_of_every_kind};
use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, payment_queue, payments};
use crate::suite::lease::{Charge, apply, poller};

/// Begins a transaction that changes one of the company's rows and stays open.
fn hold(operated: &Operated) -> Conn {
    let mut holder = operated.connect();
    <Conn as Connection>::TransactionManager::begin_transaction(&mut holder).unwrap();
    let held = payments::table.filter(payments::company_id.eq(3345)).filter(payments::amount_cents.eq(2));
    diesel::update(held).set(payment_queue::try_count.eq(9)).execute(&mut holder).unwrap();
    holder
}

#[test]
fn rows_that_another_transaction_holds_are_not_waited_for_without_bound_nor_torn() {
    let operated = rows_of_every_kind();
    let mut connection = operated.connect();
    let mut holder = hold(&operated);
    let company = company!().wait(Duration::from_millis(50));
    let now = Utc::now();
    for refused in [
        company.retry_now(&mut connection),
        company.postpone_until(&mut connection, now),
        company.stop(&mut connection),
        company.skip(&mut connection),
        company.delete(&mut connection),
    ] {
        assert!(matches!(refused, Err(Error::Held(_))), "{refused:?}");
    }
    assert_eq!(operated.changed(), [""; 0]);
    // A read waits for nobody.
    assert_eq!(company.count(&mut connection).unwrap(), 8);
    <Conn as Connection>::TransactionManager::commit_transaction(&mut holder).unwrap();
    assert_eq!(company.retry_now(&mut connection).unwrap(), 4);
    assert_eq!(operated.state("error").try_count, 9);
}

#[test]
fn the_callers_transaction_goes_on_after_rows_were_held() {
    let operated = rows_of_every_kind();
    let mut connection = operated.connect();
    let mut holder = hold(&operated);
    let company = company!().wait(Duration::from_millis(50));
    let counted = connection.transaction(|connection| {
        let refused = company.skip(connection);
        assert!(matches!(refused, Err(Error::Held(_))), "{refused:?}");
        payments::table.count().get_result::<i64>(connection)
    });
    assert_eq!(counted, Ok(16));
    <Conn as Connection>::TransactionManager::rollback_transaction(&mut holder).unwrap();
    assert_eq!(operated.changed(), [""; 0]);
    assert_eq!(company.skip(&mut connection).unwrap(), 6);
}

#[test]
fn a_row_that_a_worker_runs_is_left_to_it() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    let (running, is_running) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let poller = bank.poller(move |_: &Payment, _: &mut Message<'_, Conn>| {
        running.send(()).unwrap();
        // This ends with the test at the latest, even if the test fails.
        let _ = may_go_on.lock().unwrap().recv();
        Ok(Outcome::Done)
    });
    let handle = poller.start().unwrap();
    is_running.recv().unwrap();
    let refused = Payment::queue().all_rows().wait(Duration::from_millis(50)).stop(&mut bank.connect());
    assert!(matches!(refused, Err(Error::Held(_))), "{refused:?}");
    go_on.send(()).unwrap();
    let done = handle.shutdown(Duration::from_secs(60));
    assert_eq!((done.tally.succeeded, done.rolled_back), (1, 0));
    assert_eq!((bank.state(id).status, bank.state(id).next_attempt_time), (Status::Success, None));
}

/// With a later time, a row under a lease would look as if a worker held it.
#[test]
fn a_row_that_is_postponed_after_its_lease_has_ended_is_held_by_nobody() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2]);
    let mut connection = bank.connect();
    let expired = (payment_queue::status.eq(Status::InProgress), payment_queue::try_count.eq(1));
    diesel::update(payments::table.find(ids[0])).set(expired).execute(&mut connection).unwrap();
    let later = Utc::now() + TimeDelta::hours(3);
    let all = || Charge::queue().all_rows();
    assert_eq!(all().dry_run().postpone_until(&mut connection, later).unwrap().rows, 2);
    assert_eq!(all().postpone_until(&mut connection, later).unwrap(), 2);
    let backlog = all().backlog(&mut connection).unwrap();
    assert_eq!((backlog.scheduled, backlog.running), (2, Some(0)));
    assert_eq!((bank.state(ids[0]).status, bank.state(ids[0]).try_count), (Status::Error, 1));
    assert_eq!(all().retry_now(&mut connection).unwrap(), 2);
    let call = |charge: &Charge, _: &Lease| Ok(charge.amount_cents);
    assert_eq!(poller(&bank, (call, apply)).run_until_idle().unwrap().succeeded, 2);
}
