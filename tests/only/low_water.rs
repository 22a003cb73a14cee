//! The low-water mark on the servers: rows that somebody else lets go of.

use std::sync::Mutex;
use std::sync::mpsc;
use std::time::Duration;

use diesel::connection::{AnsiTransactionManager, TransactionManager};
use diesel::prelude::*;
use queueable::{Message, Outcome, Queueable};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, payment_queue, payments};
use crate::suite::low_water::due_at;

#[test]
fn a_row_before_the_mark_is_worked_when_its_holder_lets_it_go() {
    let bank = Bank::new();
    let [held, _, _] = [10, 20, 30].map(|at| due_at(&bank, at));
    let mut holder = bank.connect();
    AnsiTransactionManager::begin_transaction(&mut holder).unwrap();
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
    AnsiTransactionManager::rollback_transaction(&mut holder).unwrap();
    assert_eq!(said.recv(), Ok(10));
    assert_eq!(handle.shutdown(Duration::from_secs(60)).tally.succeeded, 3);
}
