//! A foreign session that holds the lock with which an exclusive queue takes turns. SQLite has no such lock.

use std::time::Duration;

use diesel::connection::TransactionManager;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{Explanation, Message, Migrations, Outcome, Queueable, Status};

use crate::db::Conn;
use crate::suite::bank::{Bank, payments};
use crate::suite::keyed::erased;
use crate::suite::warnings::{await_warning, keep_warnings};
use queue_core::internals::backend::SessionSetup;

/// Payments that are worked one after the other.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = turn_queue, exclusive)]
#[expect(dead_code, reason = "it is decoded, not read")]
struct InTurn {
    id: i64,
}

fn in_turn_bank() -> Bank {
    let bank = Bank::before_the_queue();
    bank.connect().run_pending_migrations(Migrations::new().entity::<InTurn>()).unwrap();
    bank
}

fn explained(bank: &Bank, id: i64) -> Explanation {
    InTurn::explain(&mut bank.connect(), &id).unwrap()
}

#[test]
fn whoever_keeps_the_queue_from_going_on_is_named() {
    let bank = in_turn_bank();
    let ids = bank.enqueue([1, 2]);
    assert_eq!(explained(&bank, ids[0]), Explanation::Due);
    let mut foreign = bank.connect();
    <Conn as Connection>::TransactionManager::begin_transaction(&mut foreign).unwrap();
    assert!(erased::<InTurn>().exclude(&mut foreign).unwrap());
    let session = foreign.session_id().unwrap().unwrap().to_string();
    let explanation = explained(&bank, ids[0]);
    assert!(matches!(explanation, Explanation::TurnHeld { .. }), "{explanation:?}");
    assert!(explanation.to_string().contains(&session), "{explanation}, {session}");
    // The second row does not wait for the lock but for its turn.
    assert_eq!(explained(&bank, ids[1]), Explanation::BehindHead);
    <Conn as Connection>::TransactionManager::rollback_transaction(&mut foreign).unwrap();
    erased::<InTurn>().end_exclusion(&mut foreign).unwrap();
    assert_eq!(explained(&bank, ids[0]), Explanation::Due);
}

#[test]
fn whoever_keeps_the_queue_from_going_on_is_told_in_the_log() {
    keep_warnings();
    let bank = in_turn_bank();
    let ids = bank.enqueue([1]);
    let mut foreign = bank.connect();
    <Conn as Connection>::TransactionManager::begin_transaction(&mut foreign).unwrap();
    assert!(erased::<InTurn>().exclude(&mut foreign).unwrap());
    let session = foreign.session_id().unwrap().unwrap().to_string();
    let handler = |_: &InTurn, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let handle = InTurn::poller(bank.pool(1), handler).workers(1).start().unwrap();
    await_warning(&["InTurn", "no message is processed: the lock", &session]);
    assert_eq!(bank.state(ids[0]).status, Status::NotAttempted);
    <Conn as Connection>::TransactionManager::rollback_transaction(&mut foreign).unwrap();
    erased::<InTurn>().end_exclusion(&mut foreign).unwrap();
    while bank.state(ids[0]).status != Status::Success {
        handle.wake();
        std::thread::park_timeout(Duration::from_millis(5));
    }
    handle.shutdown(Duration::from_secs(60));
}

#[test]
fn a_worker_that_works_the_row_is_no_such_holder() {
    let bank = in_turn_bank();
    let ids = bank.enqueue([1]);
    let (entered, waits) = std::sync::mpsc::channel();
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let handler = move |_: &InTurn, _: &mut Message<'_, Conn>| {
        entered.send(()).unwrap();
        let _ = gate.lock().unwrap().recv();
        Ok(Outcome::Done)
    };
    let handle = InTurn::poller(bank.pool(1), handler).workers(1).start().unwrap();
    waits.recv().unwrap();
    assert_eq!(explained(&bank, ids[0]), Explanation::Held { since: None, by: None });
    drop(open);
    handle.shutdown(Duration::from_secs(60));
    assert_eq!(bank.state(ids[0]).status, Status::Success);
}
