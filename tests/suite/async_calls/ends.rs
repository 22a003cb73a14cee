//! Async calls that end before their answer: past their timeout, without their lease, in a shutdown.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{AsyncCalls, Event, Lease, Message, Migrations, Queueable, Status};

use super::{Brief, Counted, Gate, Hurried, Inside, PATIENCE, Serial, book, poller, runtime, until, with_status};
use crate::db::Conn;
use crate::suite::bank::{Bank, payments};
use crate::suite::lease::Charge;

/// A payment whose call has less time than its lease, and more than a thread of a busy machine waits for its turn.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = late_queue, lease = "60s", timeout = "3s", retry = fixed("1h"))]
struct Late {
    id: i64,
    amount_cents: i64,
}

#[test]
fn a_call_has_its_whole_time_although_the_runtime_begins_it_late() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2, 3]);
    // Nobody runs it yet.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let calls = calls!(Late, runtime, |late: &Late, _: &Lease| {
        let amount = late.amount_cents;
        Box::pin(async move { Ok(amount) })
    });
    let handle = Late::poller(bank.pool(2), calls).workers(2).start().unwrap();
    until("they are leased", || with_status(&bank, Status::InProgress) == 3);
    let claimed = Instant::now();
    until("their timeout would be over", || claimed.elapsed() > Duration::from_secs(4));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(runtime.block_on(stopped)));
        // Dropped also if they are not settled, or the thread would not end.
        let _stop = stop;
        until("they are settled", || handle.tally().succeeded == 3);
    });
    assert!(ids.iter().all(|id| bank.state(*id).try_count == 1));
    let _ = handle.shutdown(PATIENCE);
}

#[test]
fn a_call_past_its_timeout_is_dropped_and_recorded_also_if_it_never_yields() {
    let (bank, runtime) = (Bank::new(), runtime());
    let ids = bank.enqueue([1, 2]);
    let (inside, let_go) = (Arc::<Inside>::default(), Arc::new(AtomicBool::new(false)));
    let (counts, may_go) = (inside.clone(), let_go.clone());
    let calls = calls!(Hurried, runtime, move |hurried: &Hurried, _: &Lease| {
        let (counted, may_go) = (Counted::new(&counts), may_go.clone());
        Box::pin(async move {
            let _counted = counted;
            if hurried.amount_cents == 1 {
                std::future::pending::<()>().await;
            }
            while !may_go.load(Ordering::SeqCst) {
                std::thread::park_timeout(Duration::from_millis(5));
            }
            Ok(hurried.amount_cents)
        })
    });
    let told = Arc::new(Mutex::new(Vec::new()));
    let tells = told.clone();
    let listener = move |event: &Event| match event {
        Event::Begun(attempt) => tells.lock().unwrap().push((attempt.key.to_string(), "begun")),
        Event::TimedOut(attempt) => tells.lock().unwrap().push((attempt.key.to_string(), "timed out")),
        Event::WillRetry(attempt) => tells.lock().unwrap().push((attempt.key.to_string(), "will retry")),
        _ => {}
    };
    let tally = Hurried::poller(bank.pool(2), calls).workers(2).on_event(listener).run_until_idle().unwrap();
    assert_eq!((tally.retried, tally.succeeded), (2, 0));
    // The end of a poller does not wait for its listeners for ever.
    until("all is told", || told.lock().unwrap().len() >= 6);
    for id in &ids {
        let told = told.lock().unwrap();
        let of_row: Vec<_> = told.iter().filter(|(key, _)| *key == id.to_string()).map(|(_, what)| *what).collect();
        assert_eq!(of_row, ["begun", "timed out", "will retry"]);
    }
    // A future whose time is over before a thread of the runtime first polls it does not run at all.
    until("the future that waits is dropped", || inside.now.load(Ordering::SeqCst) <= 1);
    let_go.store(true, Ordering::SeqCst);
    until("the other one has ended", || inside.now.load(Ordering::SeqCst) == 0);
    for id in ids {
        let state = bank.state(id);
        assert_eq!((state.status, state.try_count), (Status::Error, 1));
        let text = state.last_attempt_error_message.unwrap();
        assert!(text.contains("100ms"), "{text}");
    }
    assert!(bank.booked().is_empty(), "a late answer is discarded");
}

#[test]
fn a_call_whose_row_somebody_else_has_changed_is_dropped_and_writes_nothing() {
    let (bank, runtime, gate) = (Bank::new(), runtime(), Gate::new());
    let id = bank.enqueue([1])[0];
    let pass = gate.pass();
    let calls = calls!(Brief, runtime, move |brief: &Brief, _: &Lease| {
        assert_eq!(brief.amount_cents, 1);
        pass(brief.id)
    });
    let handle = Brief::poller(bank.pool(1), calls).workers(1).start().unwrap();
    gate.entered(1);
    assert_eq!(Brief::queue().filter(payments::id.eq(id)).skip(&mut bank.connect()).unwrap(), 1);
    // The heartbeat finds it.
    until("the future is dropped", || gate.inside() == 0);
    until("the row is given up", || handle.tally().lost == 1);
    assert_eq!(handle.shutdown(PATIENCE).rolled_back, 0);
    assert!(bank.booked().is_empty());
    assert_eq!(bank.state(id).status, Status::Skipped);
}

#[test]
fn a_shutdown_waits_for_the_calls_in_flight_and_leaves_no_row_leased() {
    let (bank, runtime, gate) = (Bank::new(), runtime(), Gate::new());
    bank.enqueue(1..=20);
    let pass = gate.pass();
    let calls = calls!(Charge, runtime, move |charge: &Charge, _: &Lease| pass(charge.id));
    let handle = poller(&bank, calls.in_flight(8)).start().unwrap();
    let mut begun = gate.entered(8);
    begun.sort_unstable();
    let health = handle.health();
    assert_eq!((health.running, health.entities[0].running), (8, 8));
    let shutdown = std::thread::spawn(move || handle.shutdown(PATIENCE));
    gate.let_go(4);
    // These answers may be written before the shutdown has begun, and others begin then.
    until("some answers are written", || with_status(&bank, Status::Success) >= 4);
    gate.open();
    let shutdown = shutdown.join().unwrap();
    assert_eq!(shutdown.rolled_back, 0);
    assert_eq!(with_status(&bank, Status::InProgress), 0);
    let booked = bank.booked();
    assert_eq!(booked.len(), usize::try_from(shutdown.tally.succeeded).unwrap());
    assert!(begun.iter().all(|id| booked.contains(id)));
    assert_eq!(gate.inside(), 0);
}

#[test]
fn calls_that_outlast_the_grace_are_dropped_and_their_rows_given_back() {
    let (bank, runtime, gate) = (Bank::new(), runtime(), Gate::new());
    let ids = bank.enqueue(1..=150);
    let pass = gate.pass();
    let calls = calls!(Charge, runtime, move |charge: &Charge, _: &Lease| pass(charge.id));
    let handle = poller(&bank, calls.in_flight(150)).start().unwrap();
    gate.entered(150);
    let shutdown = handle.shutdown(Duration::ZERO);
    assert_eq!((shutdown.rolled_back, shutdown.tally.interrupted, shutdown.tally.succeeded), (150, 150, 0));
    until("all rows are given back", || with_status(&bank, Status::NotAttempted) == 150);
    assert!(ids.iter().all(|id| bank.state(*id).try_count == 0), "no try is used");
    until("all futures are dropped", || gate.inside() == 0);
    let calls = calls!(Charge, runtime, |charge: &Charge, _: &Lease| {
        let id = charge.id;
        Box::pin(async move { Ok(id) })
    });
    assert_eq!(poller(&bank, calls).run_until_idle().unwrap().succeeded, 150);
    assert_eq!(bank.booked(), ids);
}

#[test]
fn a_dropped_call_leaves_its_place_in_a_limited_queue() {
    let (bank, runtime, gate) = (Bank::new(), runtime(), Gate::new());
    bank.connect().run_pending_migrations(Migrations::new().entity::<Serial>()).unwrap();
    bank.enqueue(1..=2);
    let pass = gate.pass();
    let calls = calls!(Serial, runtime, move |serial: &Serial, _: &Lease| pass(serial.id));
    let handle = Serial::poller(bank.pool(4), calls).workers(2).start().unwrap();
    gate.entered(1);
    assert_eq!(handle.shutdown(Duration::ZERO).rolled_back, 1);
    // Long before the lease ends.
    until("both rows are due", || with_status(&bank, Status::NotAttempted) == 2);
    until("the future is dropped", || gate.inside() == 0);
}
