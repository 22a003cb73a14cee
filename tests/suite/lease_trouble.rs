//! Lease mode: rows, values and code that misbehave, and have no effect on others.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{ClaimStyle, Failure, Lease, Message, Migrations, Outcome, Queueable, Status};

use crate::db::{Conn, KEEP_SEVEN};
use crate::suite::bank::{Bank, companies, ledger, payment_queue, payments};
use crate::suite::lease::{Charge, Gate, apply, poller};

const PATIENCE: Duration = Duration::from_secs(60);
const STYLES: [ClaimStyle; 2] = [ClaimStyle::Auto, ClaimStyle::UpdateThenSelect];

/// A company as a message, in a transaction: another queue beside the charges.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = companies)]
#[queue(timeout = "60s")]
struct Company {
    #[allow(dead_code, reason = "the key is selected with it")]
    id: i64,
}

/// A payment that panics when it is dropped if its amount is fourteen.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(lease = "60s", retry = fixed("1h"))]
struct Explosive {
    #[allow(dead_code, reason = "the key is selected with it")]
    id: i64,
    amount_cents: i64,
}

impl Drop for Explosive {
    fn drop(&mut self) {
        assert_ne!(self.amount_cents, 14, "it goes off");
    }
}

fn call(charge: &Charge, _: &Lease) -> Result<i64, Failure> {
    Ok(charge.amount_cents)
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

fn enqueue_companies(bank: &Bank) {
    let mut connection = bank.connect();
    connection.run_pending_migrations(Migrations::new().entity::<Company>()).unwrap();
    diesel::update(companies::table).set(Company::due_now()).execute(&mut connection).unwrap();
}

#[test]
fn a_call_that_comes_back_after_the_shutdown_gives_its_row_back() {
    for style in STYLES {
        let bank = Bank::new();
        let ids = bank.enqueue(1..=6);
        let (begun, calls) = mpsc::channel();
        let call = move |charge: &Charge, lease: &Lease| {
            begun.send(()).unwrap();
            while !lease.lease_lost() {
                std::thread::yield_now();
            }
            if charge.amount_cents % 2 == 0 {
                Ok(charge.amount_cents)
            } else {
                Err(Failure::retry("the lease is lost"))
            }
        };
        let poller = Charge::poller(bank.pool(5), (call, apply)).workers(3).claim_style(style).claim_batch(50);
        let handle = poller.start().unwrap();
        (0..3).for_each(|_| calls.recv_timeout(PATIENCE).unwrap());
        handle.shutdown(Duration::ZERO);
        until("all rows are as they were", || {
            ids.iter().all(|id| {
                let state = bank.state(*id);
                (state.status, state.try_count, state.next_attempt_time.is_some()) == (Status::NotAttempted, 0, true)
            })
        });
    }
}

#[test]
fn a_row_that_nobody_can_claim_holds_up_no_neighbour() {
    for style in STYLES {
        for batch in [1, 4] {
            let bank = Bank::new();
            bank.connect().batch_execute(KEEP_SEVEN).unwrap();
            let ids = bank.enqueue([7, 1, 2, 3]);
            let handle = poller(&bank, (call, apply)).claim_style(style).claim_batch(batch).start().unwrap();
            until("the neighbours' turn comes", || handle.tally().succeeded == 3);
            let tally = handle.shutdown(PATIENCE).tally;
            assert_eq!((tally.succeeded, tally.lost, tally.retried), (3, 0, 0));
            assert_eq!(bank.booked(), ids[1..]);
            assert_eq!((bank.state(ids[0]).status, bank.state(ids[0]).try_count), (Status::NotAttempted, 0));
        }
    }
}

#[test]
fn a_number_of_tries_beyond_all_bounds_holds_up_nobody_and_wastes_no_call() {
    for style in STYLES {
        let bank = Bank::new();
        let ids = bank.enqueue([1, 2, 3]);
        for (id, tries) in [(ids[0], i32::MAX), (ids[1], -5)] {
            let row = diesel::update(payments::table.find(id));
            let state = (payment_queue::try_count.eq(tries), payment_queue::status.eq(Status::Error));
            row.set(state).execute(&mut bank.connect()).unwrap();
        }
        let calls = Arc::new(AtomicU32::new(0));
        let counted = calls.clone();
        let handler = (
            move |charge: &Charge, lease: &Lease| {
                counted.fetch_add(1, Ordering::SeqCst);
                call(charge, lease)
            },
            apply,
        );
        let handle = poller(&bank, handler).claim_style(style).claim_batch(3).start().unwrap();
        until("all three are settled", || {
            let open = payments::table.filter(payment_queue::status.ne(Status::Success)).count();
            open.get_result::<i64>(&mut bank.connect()).unwrap() == 0
        });
        handle.shutdown(PATIENCE);
        assert_eq!(calls.load(Ordering::SeqCst), 3);
        assert_eq!(bank.booked(), ids);
        assert_eq!((bank.state(ids[0]).try_count, bank.state(ids[1]).try_count), (i32::MAX, 1));
    }
}

#[test]
fn an_entity_or_an_answer_that_panics_when_it_is_dropped_changes_nothing_of_what_was_written() {
    struct Answer(i64);

    impl Drop for Answer {
        fn drop(&mut self) {
            assert_ne!(self.0, 13, "it goes off");
        }
    }

    let bank = Bank::new();
    let ids = bank.enqueue([13, 14, 1]);
    let handler = (
        |payment: &Explosive, _: &Lease| Ok(Answer(payment.amount_cents)),
        |_: &Explosive, _: &Answer, _: &mut Message<'_, Conn>| Ok(Outcome::Done),
    );
    let tally = Explosive::poller(bank.pool(1), handler).workers(1).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.lost, tally.interrupted), (3, 0, 0));
    assert!(ids.iter().all(|id| bank.state(*id).status == Status::Success));
}

#[test]
fn rows_are_given_back_at_shutdown_although_their_entities_panic_when_they_are_dropped() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 14, 14, 14]);
    let (enter, entered) = mpsc::channel();
    let (open, gate) = mpsc::channel::<()>();
    let (enter, gate) = (Mutex::new(enter), Mutex::new(gate));
    let handler = (
        move |_: &Explosive, _: &Lease| {
            enter.lock().unwrap().send(())?;
            let _ = gate.lock().unwrap().recv_timeout(PATIENCE);
            Ok(())
        },
        |_: &Explosive, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done),
    );
    let handle = Explosive::poller(bank.pool(1), handler).workers(1).claim_batch(4).start().unwrap();
    entered.recv_timeout(PATIENCE).unwrap();
    let shutdown = std::thread::spawn(move || handle.shutdown(PATIENCE));
    until("they are given back", || ids[1..].iter().all(|id| bank.state(*id).status == Status::NotAttempted));
    open.send(()).unwrap();
    assert_eq!(shutdown.join().unwrap().tally.succeeded, 1);
}

#[test]
fn a_row_that_is_stopped_and_restarted_while_its_lease_is_held_stays_with_its_worker() {
    let bank = Arc::new(Bank::new());
    let id = bank.enqueue([1])[0];
    let operator = bank.clone();
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let handler = (
        move |charge: &Charge, lease: &Lease| {
            counted.fetch_add(1, Ordering::SeqCst);
            let queue = || Charge::queue().filter(payments::id.eq(charge.id));
            assert_eq!(queue().stop(&mut operator.connect())?, 1);
            assert_eq!(queue().restart(&mut operator.connect())?, 1);
            assert!(operator.state(charge.id).next_attempt_time.unwrap() > chrono::Utc::now());
            assert!(!lease.lease_lost());
            call(charge, lease)
        },
        apply,
    );
    let tally = Charge::poller(bank.pool(2), handler).workers(2).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.retried, tally.lost), (1, 0, 0));
    assert_eq!((calls.load(Ordering::SeqCst), bank.booked()), (1, vec![id]));
}

#[test]
fn a_row_that_is_enqueued_anew_while_its_lease_is_held_is_written_by_its_new_worker_alone() {
    let bank = Arc::new(Bank::new());
    let id = bank.enqueue([1])[0];
    let application = bank.clone();
    let (enter, second) = mpsc::channel();
    let (open, gate) = mpsc::channel::<()>();
    let (enter, second, gate) = (Mutex::new(enter), Mutex::new(second), Mutex::new(gate));
    let handler = (
        move |charge: &Charge, lease: &Lease| {
            assert_eq!(lease.try_number(), 1);
            if charge.amount_cents == 1 {
                diesel::update(payments::table.find(charge.id))
                    .set((payments::amount_cents.eq(2), Charge::due_now()))
                    .execute(&mut application.connect())?;
                second.lock().unwrap().recv_timeout(PATIENCE)?;
            } else {
                enter.lock().unwrap().send(())?;
                let _ = gate.lock().unwrap().recv_timeout(PATIENCE);
            }
            call(charge, lease)
        },
        apply,
    );
    let handle = Charge::poller(bank.pool(2), handler).workers(2).start().unwrap();
    until("the first attempt has ended", || handle.tally().lost + handle.tally().succeeded == 1);
    open.send(()).unwrap();
    until("the second attempt has ended", || handle.tally().lost + handle.tally().succeeded == 2);
    let tally = handle.shutdown(PATIENCE).tally;
    assert_eq!((tally.succeeded, tally.lost), (1, 1));
    let booked: Vec<(i64, i64)> =
        ledger::table.select((ledger::payment_id, ledger::amount_cents)).load(&mut bank.connect()).unwrap();
    assert_eq!(booked, [(id, 2)], "what was enqueued last");
}

#[test]
fn a_shutdown_counts_what_it_rolled_back_in_every_mode() {
    let bank = Bank::new();
    enqueue_companies(&bank);
    diesel::update(companies::table)
        .set(company_queue::next_attempt_time.eq(None::<queueable::columns::Instant>))
        .execute(&mut bank.connect())
        .unwrap();
    bank.enqueue([1]);
    let (gate, leased) = Gate::new();
    let (enter, entered) = mpsc::channel();
    let (open, opened) = mpsc::channel::<()>();
    let (enter, opened) = (Mutex::new(enter), Mutex::new(opened));
    let handle = Charge::poller(bank.pool(2), (leased, apply))
        .serve::<Company>(move |_: &Company, _: &mut Message<'_, Conn>| {
            enter.lock().unwrap().send(())?;
            let _ = opened.lock().unwrap().recv_timeout(PATIENCE);
            Ok(Outcome::Done)
        })
        .workers(2)
        .start()
        .unwrap();
    gate.entered();
    diesel::update(companies::table.find(1)).set(Company::due_now()).execute(&mut bank.connect()).unwrap();
    entered.recv_timeout(PATIENCE).unwrap();
    let shutdown = handle.shutdown(Duration::ZERO);
    assert_eq!(shutdown.rolled_back, 2);
    gate.open();
    open.send(()).unwrap();
}

#[test]
fn a_lease_is_extended_although_another_queue_of_the_poller_writes_all_the_time() {
    #[derive(Debug, Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(module = brief_queue, lease = "16s", retry = fixed("1h"))]
    struct Brief {
        #[allow(dead_code, reason = "the key is selected with it")]
        id: i64,
    }

    let bank = Bank::new();
    enqueue_companies(&bank);
    bank.enqueue([1]);
    let handler = (
        |_: &Brief, lease: &Lease| {
            lease.extend(PATIENCE)?;
            let begun = Instant::now();
            until("half a lease has passed", || lease.lease_lost() || begun.elapsed() > Duration::from_secs(10));
            assert!(!lease.lease_lost());
            Ok(())
        },
        |_: &Brief, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done),
    );
    let handle = Brief::poller(bank.pool(4), handler)
        .serve::<Company>(|_: &Company, message: &mut Message<'_, Conn>| {
            diesel::update(companies::table).set(companies::balance_cents.eq(1)).execute(message.connection())?;
            let begun = Instant::now();
            until("a while has passed", || begun.elapsed() > Duration::from_millis(20));
            Ok(Outcome::again_in(Duration::ZERO))
        })
        .workers(4)
        .start()
        .unwrap();
    until("the call has ended", || handle.tally().succeeded + handle.tally().retried + handle.tally().lost > 0);
    let tally = handle.shutdown(PATIENCE).tally;
    assert_eq!((tally.succeeded, tally.retried, tally.lost), (1, 0, 0));
}
