//! Groups on the databases with row locks: PostgreSQL and MySQL.

use std::sync::{Arc, Mutex};

use diesel::connection::TransactionManager;
use diesel::prelude::*;
use queueable::{Failure, Message, Outcome, Queueable, Status};

use crate::db::{Conn, LOCK_WAITS};
use crate::suite::bank::{Bank, Payment, book, companies, payments};
use crate::suite::group::{booked, enqueue_group, entity, run};

entity!(Waiting, waiting_queue, group = 50);
entity!(WaitingOptimistic, waiting_optimistic_queue, group(50, optimistic));

#[test]
fn a_group_that_meets_a_held_row_uses_no_try_and_its_messages_go_on_alone() {
    for optimistic in [false, true] {
        let bank = Bank::new();
        let ids = enqueue_group(&bank, 8, 1..=8);
        let mut holder = bank.connect();
        <Conn as Connection>::TransactionManager::begin_transaction(&mut holder).unwrap();
        diesel::update(companies::table.find(3345)).set(companies::balance_cents.eq(0)).execute(&mut holder).unwrap();
        let (holder, calls) = (Mutex::new(holder), Arc::new(Mutex::new(0)));
        let (counted, waits) = (calls.clone(), ids[4]);
        let wait = move |payment: Payment, message: &mut Message<'_, Conn>| {
            let _ = book(&payment, message)?;
            if payment.id == waits {
                let mut calls = counted.lock().unwrap();
                *calls += 1;
                if *calls == 2 {
                    // Now it runs alone, and would wait longer.
                    <Conn as Connection>::TransactionManager::rollback_transaction(&mut *holder.lock().unwrap())?;
                }
                let held = diesel::update(companies::table.find(3345)).set(companies::balance_cents.eq(*calls));
                held.execute(message.connection())?;
            }
            Ok(Outcome::Done)
        };
        let tally = if optimistic {
            run::<WaitingOptimistic>(&bank, move |row: &WaitingOptimistic, message: &mut Message<'_, Conn>| {
                wait(row.payment(), message)
            })
        } else {
            run::<Waiting>(&bank, move |row: &Waiting, message: &mut Message<'_, Conn>| wait(row.payment(), message))
        };
        assert_eq!((tally.succeeded, tally.interrupted), (7 + 8, 5), "five were handled in vain");
        assert_eq!((booked(&bank), *calls.lock().unwrap()), (ids.clone(), 2));
        assert!(ids.iter().all(|id| (bank.state(*id).status, bank.state(*id).try_count) == (Status::Success, 1)));
        assert_eq!(bank.balance(3345), 2);
    }
}

#[test]
fn only_a_group_is_impatient() {
    let bank = Bank::new();
    let ids = enqueue_group(&bank, 4, 1..=4);
    let (failing, seen) = (ids[3], Arc::new(Mutex::new(Vec::new())));
    let waits = seen.clone();
    run::<WaitingOptimistic>(&bank, move |row: &WaitingOptimistic, message: &mut Message<'_, Conn>| {
        let setting = diesel::dsl::sql::<diesel::sql_types::Text>(LOCK_WAITS[0]);
        let wait: String = diesel::select(setting).get_result(message.connection())?;
        waits.lock().unwrap().push((row.id, wait));
        if row.id == failing { Err(Failure::retry("so that all of them run alone")) } else { Ok(Outcome::Done) }
    });
    let seen = seen.lock().unwrap();
    let of = |id| seen.iter().filter(move |(seen, _)| *seen == id).map(|(_, wait)| wait.as_str()).collect::<Vec<_>>();
    let (first, grouped) = (of(ids[0] - 3), of(ids[3]));
    assert_eq!((grouped.len(), grouped[1]), (2, first[0]), "alone it waits as ever, in the session of the group too");
    assert_ne!(grouped[0], grouped[1]);
}
