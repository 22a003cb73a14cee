//! The low-water mark on the servers, when another session releases rows.

use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use diesel::connection::TransactionManager;
use diesel::prelude::*;
use queueable::{Message, Outcome, Queueable};

use crate::db::Conn;
use crate::suite::bank::{Bank, NewPayment, Payment, payment_queue, payments};
use crate::suite::low_water::due_at;

#[test]
fn a_row_before_the_mark_is_worked_when_its_holder_lets_it_go() {
    let bank = Bank::new();
    let [held, _, _] = [10, 20, 30].map(|at| due_at(&bank, at));
    let mut holder = bank.connect();
    <Conn as Connection>::TransactionManager::begin_transaction(&mut holder).unwrap();
    diesel::update(payments::table.find(held)).set(payment_queue::try_count.eq(1)).execute(&mut holder).unwrap();
    let (say, said) = mpsc::channel();
    let say = Mutex::new(say);
    let handler = move |payment: &Payment, _: &mut Message<'_, Conn>| {
        say.lock().unwrap().send(payment.amount_cents).unwrap();
        Ok(Outcome::Done)
    };
    let handle = Payment::poller(bank.pool(2), handler).workers(2).low_water_at_once().start().unwrap();
    let mut others = [said.recv().unwrap(), said.recv().unwrap()];
    others.sort_unstable();
    assert_eq!(others, [20, 30]);
    <Conn as Connection>::TransactionManager::rollback_transaction(&mut holder).unwrap();
    assert_eq!(said.recv(), Ok(10));
    assert_eq!(handle.shutdown(Duration::from_secs(60)).tally.succeeded, 3);
}

/// The state that two workers on an endless backlog share.
#[derive(Default)]
struct Relay {
    begun: u32,
    has_met_the_early_one: bool,
}

#[test]
fn a_row_before_the_mark_is_worked_beside_a_backlog_without_an_end_although_rows_are_read_ahead() {
    const EARLY: i64 = -1;
    let bank = Bank::new();
    bank.enqueue(1..=200);
    let given_up = Instant::now() + Duration::from_secs(60);
    let relay = Arc::new((Mutex::new(Relay::default()), Condvar::new()));
    let (say, said) = mpsc::channel();
    let say = Mutex::new(say);
    let handler = {
        let relay = relay.clone();
        move |payment: &Payment, message: &mut Message<'_, Conn>| {
            let (state, changed) = &*relay;
            let mut relay = state.lock().unwrap();
            relay.begun += 1;
            relay.has_met_the_early_one |= payment.amount_cents == EARLY;
            let mine = relay.begun;
            if mine == 50 {
                say.lock().unwrap().send(())?;
            }
            changed.notify_all();
            // A message ends while another is at work: its worker reads ahead the row that the other will lock when it ends.
            let waits = |relay: &mut Relay| relay.begun == mine && !relay.has_met_the_early_one;
            let patience = given_up.saturating_duration_since(Instant::now());
            let goes_on = {
                let (relay, _) = changed.wait_timeout_while(relay, patience, waits).unwrap();
                !relay.has_met_the_early_one && Instant::now() < given_up
            };
            if goes_on {
                let next = (NewPayment { company_id: 1, amount_cents: payment.amount_cents }, Payment::due_now());
                diesel::insert_into(payments::table).values(next).execute(message.connection())?;
            }
            Ok(Outcome::Done)
        }
    };
    let poller = Payment::poller(bank.pool(2), handler).workers(2).low_water_at_once().prefetch_at_once();
    let handle = poller.start().unwrap();
    said.recv_timeout(Duration::from_secs(60)).unwrap();
    let an_hour_ago = chrono::Utc::now() - chrono::TimeDelta::hours(1);
    let early = (NewPayment { company_id: 1, amount_cents: EARLY }, Payment::due_at(an_hour_ago));
    diesel::insert_into(payments::table).values(early).execute(&mut bank.connect()).unwrap();
    let (state, changed) = &*relay;
    let patience = given_up.saturating_duration_since(Instant::now());
    let (relay, _) =
        changed.wait_timeout_while(state.lock().unwrap(), patience, |relay| !relay.has_met_the_early_one).unwrap();
    let is_met = relay.has_met_the_early_one;
    drop(relay);
    handle.shutdown(Duration::from_secs(60));
    assert!(is_met, "the backlog comes first for ever");
}
