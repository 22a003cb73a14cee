//! How a poller says it is.

use std::sync::Mutex;
use std::sync::mpsc;
use std::time::Duration;

use chrono::{TimeDelta, Utc};
use diesel::prelude::*;
use queueable::{Health, Lease, Message, Outcome, Poller, PollerHandle, PollerSettings, Queueable};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, payments};
use crate::suite::events::{HastyCall, PATIENCE, Shared};
use crate::suite::lease::Charge;

/// Asks until the poller is so.
pub(crate) fn await_health(handle: &PollerHandle, is_so: impl Fn(&Health) -> bool) -> Health {
    let (_nobody, pace) = mpsc::channel::<()>();
    for _ in 0..6000 {
        let health = handle.health();
        if is_so(&health) {
            return health;
        }
        let _ = pace.recv_timeout(Duration::from_millis(10));
    }
    panic!("{:#?}", handle.health())
}

/// Runs two payments that have been due for an hour with one worker, which waits in its handler.
fn expect_work_to_show(entity: &str, serve: impl FnOnce(Poller<Conn>, mpsc::Receiver<()>) -> Poller<Conn>) {
    let bank = Bank::new();
    bank.enqueue([1, 2]);
    let an_hour_ago = Utc::now() - TimeDelta::hours(1);
    diesel::update(payments::table).set(Payment::due_at(an_hour_ago)).execute(&mut bank.connect()).unwrap();
    let (release, released) = mpsc::channel();
    // One row at a time: the other one waits.
    let poller = serve(Poller::new(bank.pool(1)), released).workers(1).claim_batch(1);
    let handle = poller.poll_interval(Duration::from_millis(50)).start().unwrap();
    let hour = Duration::from_secs(3600);
    let is_late = |health: &Health| health.entities[0].oldest_due.is_some_and(|age| age >= hour);
    let health = await_health(&handle, |health| health.running == 1 && is_late(health));
    assert!(health.alive && health.is_well(PATIENCE) && !health.is_well(Duration::ZERO), "{health:#?}");
    assert_eq!((health.workers, health.stuck_workers, health.threads_without_connection), (1, 0, 0));
    let of_entity = &health.entities[..];
    assert!(matches!(of_entity, [one] if one.entity == entity && one.running == 1), "{health:#?}");
    assert!(of_entity[0].oldest_due < Some(hour + PATIENCE) && of_entity[0].read < Some(PATIENCE), "{health:#?}");
    let json = serde_json::to_string(&health).unwrap();
    assert_eq!(serde_json::from_str::<Health>(&json).unwrap(), health);
    drop(release);
    await_health(&handle, |health| health.running == 0 && health.entities[0].oldest_due.is_none());
    assert_eq!(handle.shutdown(PATIENCE).tally.succeeded, 2);
}

#[test]
fn health_shows_a_message_at_work_and_how_long_rows_have_been_due() {
    expect_work_to_show("Payment", |poller, released| {
        let released = Mutex::new(released);
        poller.serve::<Payment>(move |_: &Payment, _: &mut Message<'_, Conn>| {
            let _ = released.lock().unwrap().recv_timeout(PATIENCE);
            Ok(Outcome::Done)
        })
    });
}

#[test]
fn health_shows_a_group_at_work_and_how_long_rows_have_been_due() {
    expect_work_to_show("Shared", |poller, released| {
        let released = Mutex::new(released);
        poller.serve::<Shared>(move |_: &Shared, _: &mut Message<'_, Conn>| {
            let _ = released.lock().unwrap().recv_timeout(PATIENCE);
            Ok(Outcome::Done)
        })
    });
}

#[test]
fn health_shows_a_call_under_a_lease_and_how_long_rows_have_been_due() {
    expect_work_to_show("Charge", |poller, released| {
        let released = Mutex::new(released);
        let call = move |_: &Charge, _: &Lease| {
            let _ = released.lock().unwrap().recv_timeout(PATIENCE);
            Ok(())
        };
        poller.serve::<Charge>((call, |_: &Charge, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done)))
    });
}

#[test]
fn a_poller_whose_thread_has_no_connection_is_not_well() {
    let bank = Bank::new();
    let pool = bank.pool(2);
    // The poller's own connection and that of one worker are left.
    let of_the_application: Vec<_> = (0..2).map(|_| pool.get().unwrap()).collect();
    let mut settings = PollerSettings::default();
    (settings.workers, settings.pool_timeout) = (2, Duration::from_millis(50));
    let handler = |_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let handle = Poller::new(pool).settings(settings).serve::<Payment>(handler).start().unwrap();
    let health = await_health(&handle, |health| health.threads_without_connection == 1);
    assert!(health.alive && !health.is_well(PATIENCE), "{health:#?}");
    drop(of_the_application);
    await_health(&handle, |health| health.is_well(PATIENCE));
}

#[test]
fn a_stuck_worker_shows_until_its_handler_returns() {
    let bank = Bank::new();
    bank.enqueue([1]);
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let call = move |_: &HastyCall, _: &Lease| {
        let _ = released.lock().unwrap().recv_timeout(PATIENCE);
        Ok(())
    };
    let apply = |_: &HastyCall, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let handle = HastyCall::poller(bank.pool(1), (call, apply)).workers(1).start().unwrap();
    let health = await_health(&handle, |health| (health.stuck_workers, health.workers) == (1, 2));
    // Another worker has taken its place.
    assert!(health.alive && health.running == 0 && !health.is_well(PATIENCE), "{health:#?}");
    drop(release);
    await_health(&handle, |health| health.workers == 1 && health.is_well(PATIENCE));
}
