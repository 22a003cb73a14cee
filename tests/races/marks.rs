//! What another session does to a row between the commit of its mark and its handler, or between its handler and the end of its
//! mark. Each row is marked before its handler runs.

use std::sync::{Arc, Mutex};

use diesel::prelude::*;
use diesel::result::DatabaseErrorKind;
use diesel::result::Error::DatabaseError;
use diesel_migrations::MigrationHarness;
use fail::FailScenario;
use queueable::{CrashAccounting, HandlerResult, Message, Migrations, Outcome, Queueable, Status};

use crate::db::{Conn, NAME};
use crate::suite::bank::{Bank, Payment, book, payment_queue, payments};

/// Stops the only payment at the fail point. Returns whether its handler was called.
fn handles_although_it_is_stopped_at(fail_point: &str) -> (Bank, bool) {
    let scenario = FailScenario::setup();
    let bank = Arc::new(Bank::new());
    let id = bank.enqueue([1])[0];
    let operator = bank.clone();
    let stop = move || {
        assert_eq!(Payment::queue().all_rows().stop(&mut operator.connect()).unwrap(), 1);
    };
    fail::cfg_callback(fail_point, stop).unwrap();
    let called = Arc::new(Mutex::new(false));
    let calls = called.clone();
    let handler = move |payment: &Payment, message: &mut Message<'_, Conn>| -> HandlerResult {
        *calls.lock().unwrap() = true;
        let _ = book(payment, message)?;
        // The attempt is interrupted.
        let kind = if NAME == "sqlite" { DatabaseErrorKind::Unknown } else { DatabaseErrorKind::SerializationFailure };
        Err(DatabaseError(kind, Box::new("database is locked".to_owned())).into())
    };
    let tally = bank.poller(handler).crash_accounting(CrashAccounting::Strict).run_until_idle().unwrap();
    scenario.teardown();
    assert_eq!((tally.succeeded, tally.retried), (0, 0), "{tally:?}");
    let state = bank.state(id);
    assert_eq!((state.next_attempt_time, state.try_count), (None, 0), "{state:?}");
    assert!(bank.booked().is_empty());
    let called = *called.lock().unwrap();
    (Arc::into_inner(bank).expect("the poller has ended"), called)
}

#[test]
fn a_row_that_is_stopped_while_it_is_marked_is_not_handled() {
    assert!(!handles_although_it_is_stopped_at("marked").1);
}

#[test]
fn a_row_that_is_stopped_before_its_mark_is_removed_stays_stopped() {
    let (bank, called) = handles_although_it_is_stopped_at("unmarking");
    assert!(called);
    let text = payments::table.select(payment_queue::last_attempt_error_message);
    assert_eq!(text.get_result(&mut bank.connect()), Ok(Some("queueable: stopped".to_owned())), "its mark is gone");
}

/// A payment that is handled again when its amount changes.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = watched_queue, retry = fixed("1h"), timeout = "30s", rerun_on_change(amount_cents))]
struct Watched {
    #[allow(dead_code, reason = "the key is selected with it")]
    id: i64,
    amount_cents: i64,
}

#[test]
fn content_that_changes_while_a_row_is_marked_is_handled_once() {
    let scenario = FailScenario::setup();
    let bank = Arc::new(Bank::before_the_queue());
    bank.connect().run_pending_migrations(Migrations::new().entity::<Watched>()).unwrap();
    bank.enqueue([1]);
    let application = bank.clone();
    fail::cfg_callback("marked", move || {
        let changed = payments::amount_cents.eq(2);
        diesel::update(payments::table).set(changed).execute(&mut application.connect()).unwrap();
    })
    .unwrap();
    let handled = Arc::new(Mutex::new(Vec::new()));
    let contents = handled.clone();
    let handler = move |watched: &Watched, _: &mut Message<'_, Conn>| {
        contents.lock().unwrap().push(watched.amount_cents);
        Ok(Outcome::Done)
    };
    let poller = Watched::poller(bank.pool(1), handler).workers(1).crash_accounting(CrashAccounting::Strict);
    poller.run_until_idle().unwrap();
    scenario.teardown();
    assert_eq!(*handled.lock().unwrap(), [2]);
    let status = payments::table.select(payment_queue::status).get_result(&mut bank.connect());
    assert_eq!(status, Ok(Status::Success));
}
