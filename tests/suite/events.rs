//! What a poller's listeners hear: each thing that happened, once, after it is committed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{TimeDelta, Utc};
use diesel::connection::{SimpleConnection, TransactionManager};
use diesel::prelude::*;
use diesel::r2d2::event::{AcquireEvent, TimeoutEvent};
use diesel::r2d2::{ConnectionManager, HandleEvent, Pool};
use diesel::result::DatabaseErrorKind;
use diesel::result::Error::DatabaseError;
use queueable::columns::Instant;
use queueable::{
    AttemptEvent, Error, Event, Failure, HandlerResult, Lease, Message, Outcome, Poller, PollerSettings, Queueable,
    When,
};

use crate::db::{Conn, NAME, refuse_update_of};
use crate::suite::bank::{Bank, Payment, payment_queue, payments};
use crate::suite::group::entity;
use crate::suite::lease::Charge;
use crate::suite::warnings::{keep_warnings, times_told};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

entity!(Shared, shared_queue, group = 20);

/// The bank's payments, each with a short time for its handler.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = hasty_queue, retry = fixed("1h"), timeout = "1s")]
struct Hasty {
    id: i64,
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = hasty_call_queue, lease = "60s", retry = fixed("1h"), timeout = "500ms")]
pub(crate) struct HastyCall {
    id: i64,
}

/// Returns a listener, and what it hears.
pub(crate) fn listener() -> (impl FnMut(&Event) + Send + 'static, Receiver<Event>) {
    let (sender, heard) = mpsc::channel();
    let listener = move |event: &Event| {
        let _ = sender.send(event.clone());
    };
    (listener, heard)
}

/// Waits for an event.
pub(crate) fn await_event(heard: &Receiver<Event>, is_it: impl Fn(&Event) -> bool) -> Event {
    loop {
        let event = heard.recv_timeout(PATIENCE).expect("the event is told");
        if is_it(&event) {
            return event;
        }
    }
}

/// The event's name.
pub(crate) fn name(event: &Event) -> String {
    serde_json::to_value(event).unwrap()["event"].as_str().unwrap().to_owned()
}

/// Returns the events of each row, by its key.
fn by_key(events: Vec<Event>) -> BTreeMap<String, Vec<Event>> {
    let mut by_key = BTreeMap::<_, Vec<_>>::new();
    for event in events {
        if let Some(key) = event.attempt().map(|attempt| attempt.key.to_string()) {
            by_key.entry(key).or_default().push(event);
        }
    }
    by_key
}

fn names(events: &[Event]) -> Vec<String> {
    events.iter().map(name).collect()
}

/// What the handlers of these tests answer, by the payment's amount.
fn answer(amount: i64) -> HandlerResult {
    match amount {
        1 => Ok(Outcome::Done),
        2 => Ok(Outcome::Skip),
        3 => Ok(Outcome::Delete),
        4 => Ok(Outcome::Again(When::In(Duration::from_secs(3600)))),
        5 => Err(Failure::retry("no route by https://me:hunter2@bank.example/")),
        6 => Err(Failure::fatal("card 4711 has expired")),
        _ => panic!("an amount that nobody has thought of"),
    }
}

const AMOUNTS: std::ops::RangeInclusive<i64> = 1..=7;

/// Runs these payments, one for each answer, and checks what the listeners hear.
fn expect_each_answer_to_be_told(entity: &str, serve: impl FnOnce(Poller<Conn>) -> Poller<Conn>) {
    let bank = Bank::new();
    let ids = bank.enqueue(AMOUNTS);
    let an_hour_ago = Utc::now() - TimeDelta::hours(1);
    let long_due = payments::table.filter(payments::id.le(ids[1]));
    diesel::update(long_due).set(Payment::due_at(an_hour_ago)).execute(&mut bank.connect()).unwrap();
    let (listener, heard) = listener();
    let poller = serve(Poller::new(bank.pool(1))).workers(1).on_event(listener);
    poller.redact(|text| text.replace("4711", "####")).run_until_idle().unwrap();

    let heard: Vec<_> = heard.iter().collect();
    let (first, last) = (heard.first().unwrap(), heard.last().unwrap());
    assert!(matches!(first, Event::PollerStarted { workers: 1, entities, .. } if entities == &[entity]), "{first:?}");
    assert!(matches!(last, Event::PollerStopped { rolled_back: 0, has_left_behind: false, .. }), "{last:?}");
    let told = by_key(heard);
    let ends = ["Succeeded", "Skipped", "Succeeded", "RunsAgain", "WillRetry", "GaveUp", "WillRetry"];
    for ((id, end), amount) in ids.iter().zip(ends).zip(AMOUNTS) {
        let events = &told[&key_of(*id)];
        let mut names = names(events);
        // The messages of a group that was undone run one by one.
        while names.starts_with(&["Begun".to_owned(), "Interrupted".to_owned()]) {
            names.drain(..2);
        }
        assert_eq!(names, ["Begun", end], "{events:#?}");
        let Some(AttemptEvent { try_number, duration, waited, retry_in, error, .. }) = events.last().unwrap().attempt()
        else {
            unreachable!("it has a key")
        };
        assert_eq!(*try_number, 1, "{events:#?}");
        assert!(duration.is_some_and(|duration| duration < PATIENCE), "{events:#?}");
        let hour = Duration::from_secs(3600);
        let waits = if amount <= 2 { hour..hour + PATIENCE } else { Duration::ZERO..PATIENCE };
        // SQLite's claim under a lease writes the end of the lease over the due time, and never reads that.
        match (NAME, entity) {
            ("sqlite", "Charge") => assert_eq!(*waited, None),
            _ => assert!(waited.is_some_and(|waited| waits.contains(&waited)), "{events:#?}"),
        }
        assert_eq!(*retry_in, (end == "WillRetry").then_some(hour), "{events:#?}");
        let text = match amount {
            5 => Some("no route by https://me:***@bank.example/"),
            6 => Some("card #### has expired"),
            7 => Some("an amount that nobody has thought of"),
            _ => None,
        };
        assert_eq!(error.is_some(), text.is_some(), "{events:#?}");
        assert!(error.iter().all(|error| error.contains(text.unwrap())), "{events:#?}");
    }
}

/// The text by which the library knows a row with this key.
fn key_of(id: i64) -> String {
    id.to_string()
}

#[test]
fn the_end_of_each_message_is_told_with_its_key_try_and_times() {
    expect_each_answer_to_be_told("Payment", |poller| {
        poller.serve::<Payment>(|payment: &Payment, _: &mut Message<'_, Conn>| answer(payment.amount_cents))
    });
}

#[test]
fn the_end_of_each_message_of_a_group_is_told_with_its_key_try_and_times() {
    expect_each_answer_to_be_told("Shared", |poller| {
        poller.serve::<Shared>(|row: &Shared, _: &mut Message<'_, Conn>| answer(row.payment().amount_cents))
    });
}

#[test]
fn the_end_of_each_leased_message_is_told_with_its_key_try_and_times() {
    expect_each_answer_to_be_told("Charge", |poller| {
        let call = |_: &Charge, _: &Lease| Ok(());
        let apply = |row: &Charge, _: &(), _: &mut Message<'_, Conn>| answer(row.amount_cents);
        poller.serve::<Charge>((call, apply))
    });
}

#[test]
fn a_failed_call_under_a_lease_is_told() {
    let bank = Bank::new();
    let ids = bank.enqueue([5, 6, 7]);
    let (listener, heard) = listener();
    let call = |row: &Charge, _: &Lease| answer(row.amount_cents).map(drop);
    let apply = |_: &Charge, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    Charge::poller(bank.pool(1), (call, apply)).workers(1).on_event(listener).run_until_idle().unwrap();
    let told = by_key(heard.iter().collect());
    let ends = ids.iter().map(|id| names(&told[&key_of(*id)])[1].clone());
    assert_eq!(ends.collect::<Vec<_>>(), ["WillRetry", "GaveUp", "WillRetry"]);
}

#[test]
fn what_is_not_committed_is_not_told_as_a_success() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 1]);
    bank.connect().batch_execute(&refuse_update_of(ids[0])).unwrap();
    let (listener, heard) = listener();
    let gone = ids[1];
    let handler = move |payment: &Payment, message: &mut Message<'_, Conn>| {
        if payment.id == gone {
            message.connection().batch_execute("ROLLBACK")?;
        }
        Ok(Outcome::Done)
    };
    let handle = bank.poller(handler).on_event(listener).start().unwrap();
    let mut events = Vec::new();
    while !["Refused", "WillRetry"].iter().all(|end| names(&events).contains(&(*end).to_owned())) {
        events.push(heard.recv_timeout(PATIENCE).expect("both ends are told"));
    }
    handle.shutdown(PATIENCE);
    events.extend(heard.iter());
    assert!(!names(&events).contains(&"Succeeded".to_owned()), "{events:#?}");
    let told = by_key(events);
    assert_eq!(names(&told[&key_of(ids[0])])[..2], ["Begun", "Refused"]);
    assert_eq!(names(&told[&key_of(ids[1])]), ["Begun", "WillRetry"]);
}

#[test]
fn a_row_that_another_has_changed_under_its_lease_is_told_as_lost() {
    let bank = Arc::new(Bank::new());
    let id = bank.enqueue([1])[0];
    let (listener, heard) = listener();
    let other = bank.clone();
    let call = move |charge: &Charge, lease: &Lease| {
        if lease.try_number() == 1 {
            let in_an_hour = Instant::from(Utc::now() + TimeDelta::hours(1));
            diesel::update(payments::table.find(charge.id))
                .set((payment_queue::try_count.eq(2), payment_queue::next_attempt_time.eq(in_an_hour)))
                .execute(&mut other.connect())?;
        }
        Ok(())
    };
    let apply = |_: &Charge, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let tally = Charge::poller(bank.pool(1), (call, apply)).workers(1).on_event(listener).run_until_idle().unwrap();
    assert_eq!(tally.lost, 1);
    assert_eq!(names(&by_key(heard.iter().collect())[&key_of(id)]), ["Begun", "LeaseLost"]);
}

#[test]
fn a_handler_past_its_timeout_is_told_before_its_failure() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    let (release, released) = mpsc::channel::<()>();
    let (mut listener, heard) = listener();
    // The handler returns when its listener has heard that it is late.
    let listener = move |event: &Event| {
        listener(event);
        if let Event::TimedOut(attempt) = event {
            assert_eq!(*attempt.key, key_of(id));
            let _ = release.send(());
        }
    };
    let released = Mutex::new(released);
    let handler = move |hasty: &Hasty, _: &mut Message<'_, Conn>| -> HandlerResult {
        assert_eq!(hasty.id, id);
        let _ = released.lock().unwrap().recv_timeout(PATIENCE);
        Ok(Outcome::Done)
    };
    Hasty::poller(bank.pool(1), handler).workers(1).on_event(listener).run_until_idle().unwrap();
    let events = by_key(heard.iter().collect()).remove(&key_of(id)).unwrap();
    let mut names = names(&events);
    // SQLite gives no handler up, because nothing can end its transaction.
    names.retain(|name| name != "WorkerStuck");
    assert_eq!(names, ["Begun", "TimedOut", "WillRetry"]);
    let failed = events.iter().find(|event| matches!(event, Event::WillRetry(_))).unwrap().attempt().unwrap();
    assert!(failed.error.as_ref().unwrap().contains("longer than its timeout of 1s"), "{failed:?}");
    // Of the handler. The timeout has begun with the claim, a little earlier.
    assert!(failed.duration.is_some(), "{failed:?}");
}

#[test]
fn a_call_that_does_not_return_is_told_as_a_stuck_worker() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    let (release, released) = mpsc::channel::<()>();
    let (listener, heard) = listener();
    let released = Mutex::new(released);
    let call = move |hasty: &HastyCall, _: &Lease| -> Result<(), Failure> {
        assert_eq!(hasty.id, id);
        let _ = released.lock().unwrap().recv_timeout(PATIENCE);
        Ok(())
    };
    let apply = |_: &HastyCall, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let handle = HastyCall::poller(bank.pool(1), (call, apply)).workers(1).on_event(listener).start().unwrap();
    let mut names = Vec::new();
    let stuck = loop {
        let event = heard.recv_timeout(PATIENCE).expect("the worker is stuck");
        names.push(name(&event));
        if let Event::WorkerStuck { .. } = event {
            break event;
        }
    };
    assert_eq!(names, ["PollerStarted", "Begun", "TimedOut", "WillRetry", "WorkerStuck"]);
    assert!(matches!(stuck, Event::WorkerStuck { stuck: 1, is_replaced: true, .. }), "{stuck:?}");
    assert_eq!(*stuck.attempt().unwrap().key, key_of(id));
    drop(release);
    handle.shutdown(PATIENCE);
    // The handler's late return is no event of its own.
    assert_eq!(heard.iter().map(|event| name(&event)).collect::<Vec<_>>(), ["PollerStopped"]);
}

#[test]
fn an_interrupted_attempt_is_told_with_its_cause_and_uses_no_try() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    let (listener, heard) = listener();
    let is_first = AtomicBool::new(true);
    let handler = move |_: &Payment, _: &mut Message<'_, Conn>| -> HandlerResult {
        if is_first.swap(false, Ordering::SeqCst) {
            let is_sqlite = NAME == "sqlite";
            let kind = if is_sqlite { DatabaseErrorKind::Unknown } else { DatabaseErrorKind::SerializationFailure };
            return Err(DatabaseError(kind, Box::new("database is locked".to_owned())).into());
        }
        Ok(Outcome::Done)
    };
    let tally = bank.poller(handler).on_event(listener).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.interrupted), (1, 1));
    let events = by_key(heard.iter().collect()).remove(&key_of(id)).unwrap();
    assert_eq!(names(&events), ["Begun", "Interrupted", "Begun", "Succeeded"]);
    assert!(events.iter().all(|event| event.attempt().unwrap().try_number == 1), "{events:#?}");
    let cause = events[1].attempt().unwrap().error.as_deref();
    assert_eq!(cause, Some("database is locked"));
}

#[test]
fn a_shutdown_that_leaves_a_handler_behind_is_told() {
    let bank = Bank::new();
    bank.enqueue([1]);
    let (listener, heard) = listener();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let handler = move |_: &Payment, _: &mut Message<'_, Conn>| -> HandlerResult {
        let _ = released.lock().unwrap().recv_timeout(PATIENCE);
        Ok(Outcome::Done)
    };
    let handle = bank.poller(handler).on_event(listener).start().unwrap();
    await_event(&heard, |event| matches!(event, Event::Begun(_)));
    assert_eq!(handle.shutdown(Duration::ZERO).rolled_back, 1);
    let events: Vec<_> = heard.iter().collect();
    assert!(matches!(&events[..], [Event::PollerStopped { rolled_back: 1, has_left_behind: true, .. }]), "{events:#?}");
    drop(release);
}

#[test]
fn a_panicking_listener_harms_nobody_and_is_logged_once() {
    keep_warnings();
    let bank = Bank::new();
    let ids = bank.enqueue([1, 1, 1]);
    let (listener, heard) = listener();
    let text = format!("the listener of {} panics", bank.database.url());
    let panics = text.clone();
    let poller = bank.poller(|_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done));
    let tally = poller.on_event(move |_| panic!("{panics}")).on_event(listener).run_until_idle().unwrap();
    assert_eq!(tally.succeeded, 3);
    let told = by_key(heard.iter().collect());
    assert!(ids.iter().all(|id| names(&told[&key_of(*id)]) == ["Begun", "Succeeded"]), "{told:#?}");
    assert_eq!(times_told(&["a listener panicked", &text]), 1);
}

#[test]
fn a_listener_that_does_not_return_holds_up_nobody_and_what_it_misses_is_counted() {
    const MESSAGES: u64 = 2_200;
    let bank = Bank::new();
    bank.enqueue(1..=i64::try_from(MESSAGES).unwrap());
    let (release, released) = mpsc::channel::<()>();
    let (mut listener, heard) = listener();
    // However long the messages take.
    let listener = move |event: &Event| {
        let _ = released.recv();
        listener(event);
    };
    let handler = |_: &Shared, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let handle = Shared::poller(bank.pool(1), handler).workers(1).on_event(listener).start().unwrap();
    let (_nobody, pace) = mpsc::channel::<()>();
    while handle.tally().succeeded < MESSAGES {
        let _ = pace.recv_timeout(Duration::from_millis(10));
    }
    drop(release);
    handle.shutdown(PATIENCE);
    let (mut told, mut dropped) = (0, 0);
    for event in heard {
        match event {
            Event::EventsDropped { events, .. } => dropped += events,
            _ => told += 1,
        }
    }
    assert!(dropped > 0);
    // Two for each message, the poller's start and its stop.
    assert_eq!(told + dropped, 2 * MESSAGES + 2);
}

#[test]
fn threads_without_a_connection_are_told_and_so_is_their_return() {
    let bank = Bank::new();
    let pool = bank.pool(2);
    // The poller's own connection and that of one worker are left.
    let of_the_application: Vec<_> = (0..2).map(|_| pool.get().unwrap()).collect();
    let mut settings = PollerSettings::default();
    (settings.workers, settings.pool_timeout) = (2, Duration::from_millis(50));
    let (listener, heard) = listener();
    let handler = |_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let poller = Poller::new(pool).settings(settings).serve::<Payment>(handler).on_event(listener);
    let handle = poller.start().unwrap();
    let lost = await_event(&heard, |event| matches!(event, Event::ConnectionLost { .. }));
    assert!(matches!(&lost, Event::ConnectionLost { error, .. } if !error.is_empty()), "{lost:?}");
    drop(of_the_application);
    await_event(&heard, |event| matches!(event, Event::ConnectionRegained { .. }));
    let deadline = std::time::Instant::now() + PATIENCE;
    while handle.health().threads_without_connection > 0 {
        assert!(std::time::Instant::now() < deadline, "{:#?}", handle.health());
        std::thread::park_timeout(Duration::from_millis(5));
    }
    handle.shutdown(PATIENCE);
    // On a slow machine a thread may be without one again for a while.
    let told: Vec<_> = heard.iter().map(|event| name(&event)).collect();
    let (last, losses) = told.split_last().expect("the poller's end is told");
    assert_eq!(last, "PollerStopped");
    assert!(losses.chunks(2).all(|pair| pair == ["ConnectionLost", "ConnectionRegained"]), "{told:?}");
}

/// Tells when a pool opens a connection, and when somebody has waited for one in vain.
#[derive(Debug)]
struct OfPool(mpsc::Sender<&'static str>);

impl HandleEvent for OfPool {
    fn handle_acquire(&self, _: AcquireEvent) {
        let _ = self.0.send("opened");
    }

    fn handle_timeout(&self, _: TimeoutEvent) {
        let _ = self.0.send("waits");
    }
}

#[test]
fn a_thread_that_waits_gets_the_place_of_a_connection_that_a_pool_without_idle_ones_closes() {
    let bank = Bank::new();
    let (of_pool, told) = mpsc::channel();
    let pool = Pool::builder().max_size(2).min_idle(Some(0)).event_handler(Box::new(OfPool(of_pool)));
    let pool = pool.build(ConnectionManager::<Conn>::new(bank.database.url())).unwrap();
    let mut of_the_application = pool.get().unwrap();
    let mut settings = PollerSettings::default();
    (settings.workers, settings.pool_timeout) = (1, Duration::from_secs(600));
    let (listener, heard) = listener();
    let handler = |_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let poller = Poller::new(pool).settings(settings).serve::<Payment>(handler).on_event(listener);
    // It waits until each of its two threads has tried to connect.
    let start = std::thread::spawn(|| poller.start().unwrap());
    while told.recv_timeout(PATIENCE).expect("one of two threads waits") != "waits" {}
    // The pool closes what comes back with a transaction.
    <Conn as Connection>::TransactionManager::begin_transaction(&mut *of_the_application).unwrap();
    drop(of_the_application);
    while told.recv_timeout(PATIENCE).expect("the pool opens another") != "opened" {}
    start.join().unwrap().shutdown(PATIENCE);
    assert_eq!(heard.iter().map(|event| name(&event)).collect::<Vec<_>>(), ["PollerStarted", "PollerStopped"]);
}

#[test]
fn a_poller_that_does_not_start_tells_nothing_and_lets_its_listener_go() {
    let bank = Bank::new();
    let (listener, heard) = listener();
    let handler = |_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let refused = Payment::poller(bank.pool(1), handler).workers(0).on_event(listener).start();
    assert!(matches!(refused, Err(Error::Setting { setting: "workers", .. })), "{refused:?}");
    assert_eq!(heard.iter().count(), 0);
}
