//! The calls that are repeated after a crash, for which the server ends a session. SQLite has no sessions.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use diesel::prelude::*;
use queueable::{HandlerResult, Message, Outcome, Queueable, Status};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, payment_queue, payments};
use crate::suite::modes::Grouped;
use queue_core::internals::backend::SessionSetup;

type Call = Box<dyn Fn(i64, &mut Message<'_, Conn>) -> HandlerResult + Send + Sync>;

/// Runs 40 messages, the 30th of which loses its session in its first call, and returns the number of messages for each
/// number of calls.
fn calls_with_a_crash(run: impl FnOnce(&Bank, Call)) -> BTreeMap<u32, usize> {
    let bank = Bank::new();
    let crashing = bank.enqueue(1..=40)[29];
    let killer = Mutex::new(bank.connect());
    let calls = Arc::new(Mutex::new(BTreeMap::<i64, u32>::new()));
    let (counted, crashed) = (calls.clone(), AtomicBool::new(false));
    let call: Call = Box::new(move |id, message| {
        *counted.lock().unwrap().entry(id).or_default() += 1;
        if id == crashing && !crashed.swap(true, Ordering::SeqCst) {
            let session = message.connection().session_id()?.expect("a server's session has a number");
            killer.lock().unwrap().end_session(session)?;
        }
        Ok(Outcome::Done)
    });
    run(&bank, call);
    let successes = payments::table.filter(payment_queue::status.eq(Status::Success)).count();
    assert_eq!(successes.get_result::<i64>(&mut bank.connect()), Ok(40));
    let mut histogram = BTreeMap::new();
    for calls in calls.lock().unwrap().values() {
        *histogram.entry(*calls).or_insert(0) += 1;
    }
    histogram
}

#[test]
fn in_transaction_mode_a_crash_repeats_the_calls_of_its_message_only() {
    let calls = calls_with_a_crash(|bank, call| {
        bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| call(payment.id, message));
    });
    assert_eq!(calls, BTreeMap::from([(1, 39), (2, 1)]));
}

#[test]
fn in_group_mode_a_crash_repeats_the_calls_of_its_group() {
    let calls = calls_with_a_crash(|bank, call| {
        let handler = move |row: &Grouped, message: &mut Message<'_, Conn>| call(row.id, message);
        Grouped::poller(bank.pool(1), handler).workers(1).run_until_idle().unwrap();
    });
    assert!(calls[&2] > 1, "the neighbours are called again: {calls:?}");
    assert!(calls[&2] <= 10, "those of other groups are not: {calls:?}");
}
