//! The application's own code at its worst, around the handler and inside it: it costs its own row a try, and has no
//! effect on other rows.

use std::error::Error;
use std::fmt;
use std::sync::Mutex;
use std::sync::mpsc;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queueable::{Failure, Message, Outcome, Queueable, Status, Tally};

use crate::db::{Conn, KEEP_SEVEN};
use crate::suite::bank::{Bank, Payment, book, payments};

/// How long a test waits for an event before it fails.
const PATIENCE: Duration = Duration::from_secs(300);

/// Returns the text on the first of two rows. The second must not have suffered.
fn text_of_the_first(bank: &Bank, ids: &[i64], tally: Tally) -> String {
    assert_eq!((tally.retried, tally.succeeded), (1, 1));
    assert_eq!(bank.state(ids[1]).status, Status::Success);
    let state = bank.state(ids[0]);
    assert_eq!((state.status, state.try_count), (Status::Error, 1));
    state.last_attempt_error_message.unwrap()
}

#[test]
fn an_entity_that_panics_when_it_is_dropped_fails_alone() {
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(module = explosive_queue, retry = fixed("1h"), timeout = "30s")]
    struct Explosive {
        amount_cents: i64,
        id: i64,
    }

    impl Drop for Explosive {
        fn drop(&mut self) {
            assert_ne!(self.amount_cents, 13, "payment {} goes off", self.id);
        }
    }

    let bank = Bank::new();
    let ids = bank.enqueue([13, 1]);
    let tally = Explosive::poller(bank.pool(1), |_: &Explosive, _: &mut Message<'_, Conn>| Ok(Outcome::Done))
        .workers(1)
        .run_until_idle()
        .unwrap();
    let text = text_of_the_first(&bank, &ids, tally);
    assert!(text.contains("goes off"), "{text}");
}

#[test]
fn an_error_that_panics_when_it_is_asked_for_its_source_or_dropped_fails_alone() {
    #[derive(Debug)]
    struct InSource;

    impl fmt::Display for InSource {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an error")
        }
    }

    impl Error for InSource {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            panic!("in source")
        }
    }

    #[derive(Debug, thiserror::Error)]
    #[error("an error")]
    struct InDrop;

    impl Drop for InDrop {
        fn drop(&mut self) {
            panic!("in drop")
        }
    }

    for (failure, expected) in
        [((|| Failure::retry(InSource)) as fn() -> Failure, "in source"), (|| Failure::retry(InDrop), "in drop")]
    {
        let bank = Bank::new();
        let ids = bank.enqueue([13, 1]);
        let tally = bank.run(
            move |payment: &Payment, message: &mut Message<'_, Conn>| {
                if payment.amount_cents == 13 { Err(failure()) } else { book(payment, message) }
            },
        );
        let text = text_of_the_first(&bank, &ids, tally);
        assert!(text.contains(expected), "{text}");
        assert_eq!(bank.booked(), ids[1..]);
    }
}

#[test]
fn a_row_whose_decoding_panics_fails_alone() {
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(module = superstitious_queue, retry = fixed("1h"), timeout = "30s")]
    #[expect(dead_code, reason = "it is decoded, not read")]
    struct Superstitious {
        id: i64,
        #[diesel(deserialize_as = Lucky)]
        amount_cents: i64,
    }

    struct Lucky(i64);

    impl<DB> Queryable<diesel::sql_types::BigInt, DB> for Lucky
    where
        DB: diesel::backend::Backend,
        i64: diesel::deserialize::FromStaticSqlRow<diesel::sql_types::BigInt, DB>,
    {
        type Row = i64;

        fn build(amount: i64) -> diesel::deserialize::Result<Self> {
            assert_ne!(amount, 13, "not on a Friday");
            Ok(Lucky(amount))
        }
    }

    impl From<Lucky> for i64 {
        fn from(lucky: Lucky) -> i64 {
            lucky.0
        }
    }

    let bank = Bank::new();
    let ids = bank.enqueue([13, 1]);
    let tally = Superstitious::poller(bank.pool(1), |_: &Superstitious, _: &mut Message<'_, Conn>| Ok(Outcome::Done))
        .workers(1)
        .run_until_idle()
        .unwrap();
    let text = text_of_the_first(&bank, &ids, tally);
    assert!(text.starts_with("the row cannot be decoded") && text.contains("not on a Friday"), "{text}");
}

#[test]
fn a_panic_in_a_nested_transaction_is_reported_as_a_panic() {
    let bank = Bank::new();
    let ids = bank.enqueue([13, 1]);
    let tally = bank.run(|payment: &Payment, message: &mut Message<'_, Conn>| {
        let amount = payment.amount_cents;
        // Diesel does not catch the panic, so its savepoint stays open.
        message.connection().transaction(|_| {
            assert_ne!(amount, 13, "in a nested transaction");
            QueryResult::Ok(())
        })?;
        book(payment, message)
    });
    let text = text_of_the_first(&bank, &ids, tally);
    assert!(text.starts_with("the handler panicked") && text.contains("in a nested transaction"), "{text}");
}

#[test]
fn a_fatal_failure_is_fatal_although_the_handlers_own_transaction_is_left_open() {
    use diesel::connection::TransactionManager;
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    let tally = bank.run(|_: &Payment, message: &mut Message<'_, Conn>| {
        <Conn as Connection>::TransactionManager::begin_transaction(message.connection())?;
        Err(Failure::fatal("for good"))
    });
    assert_eq!(tally.failed, 1);
    let state = bank.state(id);
    assert_eq!((state.status, state.try_count, state.next_attempt_time), (Status::Failed, 1, None));
    assert_eq!(state.last_attempt_error_message.as_deref(), Some("for good"));
}

#[test]
fn a_row_that_nobody_can_write_neither_commits_nor_spins_nor_holds_up_its_neighbours() {
    let bank = Bank::new();
    bank.connect().batch_execute(KEEP_SEVEN).unwrap();
    let ids = bank.enqueue([7, 1, 2, 3]);
    let (tried, wait) = mpsc::channel();
    let tried = Mutex::new(tried);
    let handle = bank
        .poller(move |payment: &Payment, message: &mut Message<'_, Conn>| {
            let _ = tried.lock().unwrap().send(payment.id);
            book(payment, message)
        })
        .start()
        .unwrap();
    let mut seen = Vec::new();
    // If a neighbour's turn comes late, the kept row may have run twice by then.
    while !ids.iter().all(|id| seen.contains(id)) {
        seen.push(wait.recv_timeout(PATIENCE).expect("everybody's turn comes"));
    }
    handle.shutdown(PATIENCE);
    seen.extend(wait.try_iter());
    // Each neighbour runs once. The kept row runs first, and again after pauses of ten seconds and more.
    assert!(ids[1..].iter().all(|id| seen.iter().filter(|tried| *tried == id).count() == 1), "{seen:?}");
    assert_eq!(seen[0], ids[0]);
    assert!(seen.len() < 7, "{seen:?}");
    assert_eq!(bank.booked(), ids[1..]);
    assert_eq!((bank.state(ids[0]).status, bank.state(ids[0]).try_count), (Status::NotAttempted, 0));
}

#[test]
fn a_row_whose_handler_commits_other_queue_columns_each_time_does_not_keep_others_from_their_turn() {
    let bank = Bank::new();
    let ids = bank.enqueue([7, 1, 2, 3]);
    let (tried, wait) = mpsc::channel();
    let tried = Mutex::new(tried);
    let (changed, others) = (ids[0], ids[1..].to_vec());
    let handle = bank
        .poller(move |payment: &Payment, message: &mut Message<'_, Conn>| {
            let _ = tried.lock().unwrap().send(payment.id);
            if payment.id == changed {
                let change = format!("UPDATE payments SET try_count = try_count + 1 WHERE id = {changed}; COMMIT");
                message.connection().batch_execute(&change)?;
            }
            book(payment, message)
        })
        .workers(1)
        .start()
        .unwrap();
    let mut seen: Vec<i64> = Vec::new();
    while !others.iter().all(|id| seen.contains(id)) && seen.len() < 100 {
        seen.push(wait.recv_timeout(PATIENCE).expect("everybody's turn comes"));
    }
    handle.shutdown(PATIENCE);
    // Each further pause of the first row is twice as long as the one before.
    assert!(seen.len() < 100, "{seen:?}");
    assert_eq!(seen[0], changed);
}
