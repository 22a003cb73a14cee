//! One message, one transaction: what stands after every way in which an attempt can end.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queueable::{Failure, HandlerResult, Message, Outcome, Queueable, Status};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, book, ledger, payment_queue, payments};

#[test]
fn a_success_commits_the_effects_and_the_state_together() {
    let bank = Bank::new();
    let ids = bank.enqueue([100, 200, 300]);
    let tally = bank.run(book);
    assert_eq!(tally.succeeded, 3);
    assert_eq!(bank.booked(), ids);
    assert_eq!(bank.balance(1), 600);
    let state = bank.state(ids[0]);
    assert_eq!((state.status, state.try_count, state.next_attempt_time), (Status::Success, 1, None));
    assert!(state.last_attempt_time.is_some());
}
