//! One message, one transaction: the state of the database after every way in which an attempt can end.

use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::TimeDelta;
use diesel::prelude::*;
use queueable::{Failure, HandlerResult, Message, Outcome, QueueState, Queueable, Status};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, book, ledger, payment_queue, payments};
use queue_core::internals::backend::SessionSetup;

/// Books the payment, then fails.
fn book_and_fail(payment: &Payment, message: &mut Message<'_, Conn>) -> HandlerResult {
    let _ = book(payment, message)?;
    Err(Failure::retry("no route to the bank"))
}

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

#[test]
fn a_failed_message_is_rolled_back_alone_and_retried_after_its_backoff() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2, 3]);
    let second = ids[1];
    bank.run(
        move |payment: &Payment, message: &mut Message<'_, Conn>| {
            if payment.id == second { book_and_fail(payment, message) } else { book(payment, message) }
        },
    );
    assert_eq!(bank.booked(), [ids[0], ids[2]]);
    let state = bank.state(second);
    assert_eq!((state.status, state.try_count), (Status::Error, 1));
    assert_eq!(state.last_attempt_error_message.as_deref(), Some("no route to the bank"));
    assert_eq!(backoff(&state), TimeDelta::hours(1));
}

#[test]
fn a_success_clears_the_error_of_the_try_before() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    bank.run(book_and_fail);
    Payment::queue().all_rows().retry_now(&mut bank.connect()).unwrap();
    bank.run(book);
    let state = bank.state(id);
    assert_eq!((state.status, state.try_count), (Status::Success, 2));
    assert_eq!(state.last_attempt_error_message, None);
}

#[test]
fn a_message_fails_for_good_when_its_tries_are_exhausted() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    for tries in 1..=3 {
        bank.run(book_and_fail);
        assert_eq!(bank.state(id).try_count, tries);
        make_due(&bank, id);
    }
    let state = bank.state(id);
    assert_eq!(state.status, Status::Failed);
    assert!(bank.booked().is_empty());
}

#[test]
fn a_fatal_failure_is_never_retried_and_a_named_delay_overrides_the_policy() {
    let bank = Bank::new();
    let ids = bank.enqueue([-1, 1]);
    bank.run(|payment: &Payment, _: &mut Message<'_, Conn>| {
        if payment.amount_cents < 0 {
            return Err(Failure::fatal("the amount is negative"));
        }
        Err(Failure::retry_after(Duration::from_secs(90), "busy"))
    });
    let fatal = bank.state(ids[0]);
    assert_eq!((fatal.status, fatal.try_count, fatal.next_attempt_time), (Status::Failed, 1, None));
    let busy = bank.state(ids[1]);
    assert_eq!((busy.status, backoff(&busy)), (Status::Error, TimeDelta::seconds(90)));
}

#[test]
fn every_outcome_becomes_a_state_of_the_row() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2, 3, 4]);
    let tally = bank.run(|payment: &Payment, message: &mut Message<'_, Conn>| {
        let _ = book(payment, message)?;
        Ok(match payment.amount_cents {
            1 => Outcome::Done,
            2 => Outcome::Delete,
            3 => Outcome::again_in(Duration::from_secs(3600)),
            _ => Outcome::Skip,
        })
    });
    assert_eq!((tally.succeeded, tally.again, tally.skipped), (2, 1, 1));
    assert_eq!(bank.booked(), ids, "the effects of all four are committed");
    let left: Vec<i64> = payments::table.order(payments::id).select(payments::id).load(&mut bank.connect()).unwrap();
    assert_eq!(left, [ids[0], ids[2], ids[3]]);
    let again = bank.state(ids[2]);
    assert_eq!((again.status, again.try_count), (Status::NotAttempted, 0), "no failure is counted");
    assert_eq!(backoff(&again), TimeDelta::hours(1));
    assert_eq!(bank.state(ids[3]).status, Status::Skipped);
}

#[test]
fn the_message_tells_the_try_the_state_and_one_key_for_all_attempts() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..2 {
        let seen = seen.clone();
        bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| {
            let entry =
                (payment.id, message.idempotency_key().to_owned(), message.try_number(), message.queue_state().status);
            seen.lock().unwrap().push(entry);
            Err(Failure::retry("again"))
        });
        Payment::queue().all_rows().retry_now(&mut bank.connect()).unwrap();
    }
    let seen = seen.lock().unwrap();
    let of = |id| {
        seen.iter().filter(move |entry| entry.0 == id).map(|(_, key, tries, status)| (key.as_str(), *tries, *status))
    };
    let key = format!("payments.status:{}", ids[0]);
    assert_eq!(of(ids[0]).collect::<Vec<_>>(), [(key.as_str(), 1, Status::NotAttempted), (&key, 2, Status::Error)]);
    assert_ne!(of(ids[1]).next().unwrap().0, key);
}

#[test]
fn a_swallowed_sql_error_is_never_a_success_without_effects() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    bank.run(|payment: &Payment, message: &mut Message<'_, Conn>| {
        let _ = book(payment, message)?;
        // PostgreSQL aborts the whole transaction, the others undo this statement alone.
        let swallowed = diesel::sql_query("INSERT INTO no_such_table VALUES (1)").execute(message.connection());
        assert!(swallowed.is_err());
        Ok(Outcome::Done)
    });
    let state = bank.state(id);
    match state.status {
        Status::Success => assert_eq!(bank.booked(), [id]),
        status => {
            assert_eq!((status, state.try_count), (Status::Error, 1));
            assert!(bank.booked().is_empty());
            assert!(error_text(&state).contains("the handler ignored the error of one of its statements"), "{state:?}");
        }
    }
}

#[test]
fn a_handler_that_commits_is_found_out() {
    ends_the_transaction("COMMIT");
}

#[test]
fn a_handler_that_rolls_back_is_found_out() {
    ends_the_transaction("ROLLBACK");
}

fn ends_the_transaction(statement: &'static str) {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| {
        use diesel::connection::SimpleConnection;
        let _ = book(payment, message)?;
        message.connection().batch_execute(statement)?;
        Ok(Outcome::Done)
    });
    let state = bank.state(id);
    assert_eq!((state.status, state.try_count), (Status::Error, 1));
    assert!(error_text(&state).contains("the handler ended the message's transaction"), "{state:?}");
    let expected: &[i64] = if statement == "COMMIT" { &[id] } else { &[] };
    assert_eq!(bank.booked(), expected, "what the handler committed itself cannot be undone, but it is reported");
}

#[test]
fn a_handler_that_leaves_its_own_transaction_open_does_not_commit() {
    use diesel::connection::TransactionManager;
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    bank.run(|payment: &Payment, message: &mut Message<'_, Conn>| {
        let connection = message.connection();
        <Conn as Connection>::TransactionManager::begin_transaction(connection)?;
        book(payment, message)
    });
    let state = bank.state(id);
    assert_eq!((state.status, state.try_count), (Status::Error, 1));
    assert!(bank.booked().is_empty());
}

#[test]
fn a_nested_transaction_of_the_handler_rolls_back_alone() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    bank.run(|payment: &Payment, message: &mut Message<'_, Conn>| {
        let nested = message.connection().transaction(|connection| {
            diesel::insert_into(ledger::table)
                .values((ledger::payment_id.eq(-1), ledger::amount_cents.eq(0)))
                .execute(connection)?;
            QueryResult::<()>::Err(diesel::result::Error::RollbackTransaction)
        });
        assert!(nested.is_err());
        book(payment, message)
    });
    assert_eq!(bank.state(id).status, Status::Success);
    assert_eq!(bank.booked(), [id]);
}

#[test]
fn a_panic_is_a_failure_of_its_row_and_the_worker_lives_on() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2, 3]);
    let tally = bank.run(|payment: &Payment, message: &mut Message<'_, Conn>| {
        let _ = book(payment, message)?;
        assert_ne!(payment.amount_cents, 2, "two is odd");
        Ok(Outcome::Done)
    });
    assert_eq!((tally.succeeded, tally.retried), (2, 1));
    assert_eq!(bank.booked(), [ids[0], ids[2]]);
    let text = bank.state(ids[1]).last_attempt_error_message.unwrap();
    assert!(text.starts_with("the handler panicked: ") && text.contains("two is odd"), "{text}");
}

#[test]
fn a_failure_whose_text_cannot_be_had_or_stored_as_it_is_is_recorded_all_the_same() {
    #[derive(Debug)]
    struct Awkward(i64);

    impl fmt::Display for Awkward {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self.0 {
                1 => panic!("in Display"),
                2 => Err(fmt::Error),
                3 => f.write_str("nul \0 and emoji \u{1f4a5}"),
                _ => (0..20_000_000).try_for_each(|_| f.write_str("x")),
            }
        }
    }

    impl Error for Awkward {}

    let bank = Bank::new();
    let ids = bank.enqueue([1, 2, 3, 4]);
    let tally =
        bank.run(|payment: &Payment, _: &mut Message<'_, Conn>| Err(Failure::retry(Awkward(payment.amount_cents))));
    assert_eq!(tally.retried, 4);
    let texts: Vec<_> = ids.iter().map(|id| bank.state(*id).last_attempt_error_message.unwrap()).collect();
    assert_eq!(texts[0], "the error panicked while it was printed");
    assert_eq!(texts[1], "the error cannot be printed");
    assert_eq!(texts[2], "nul \u{fffd} and emoji \u{1f4a5}");
    assert_eq!(texts[3].len(), 8 * 1024);
}

#[test]
fn a_handler_that_removes_its_row_itself_is_told_to_answer_delete() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    bank.run(|payment: &Payment, message: &mut Message<'_, Conn>| {
        let _ = book(payment, message)?;
        diesel::delete(payments::table.find(payment.id)).execute(message.connection())?;
        Ok(Outcome::Done)
    });
    let state = bank.state(id);
    assert_eq!((state.status, state.try_count), (Status::Error, 1));
    assert!(error_text(&state).contains("answer Outcome::Delete"), "{state:?}");
    assert!(bank.booked().is_empty());
}

#[test]
fn a_handler_that_edits_its_queue_columns_changes_nothing() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    bank.run(|payment: &Payment, message: &mut Message<'_, Conn>| {
        let _ = book(payment, message)?;
        diesel::update(payments::table.find(payment.id))
            .set((payment_queue::try_count.eq(7), payment_queue::status.eq(Status::Success)))
            .execute(message.connection())?;
        Ok(Outcome::Done)
    });
    let state = bank.state(id);
    assert_eq!((state.status, state.try_count), (Status::Error, 1));
    assert!(bank.booked().is_empty());
}

#[test]
fn the_backoff_counts_from_the_end_of_the_attempt() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    let ended = Arc::new(Mutex::new(None));
    let in_handler = ended.clone();
    bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| {
        // Some work for the database, so that the handler ends noticeably later than its transaction began.
        for _ in 0..50 {
            let _ = book(payment, message)?;
        }
        *in_handler.lock().unwrap() = now(message.connection());
        Err(Failure::retry("later"))
    });
    let ended = ended.lock().unwrap().unwrap_or_else(|| panic!("{:?}", bank.state(id)));
    let state = bank.state(id);
    assert!(state.last_attempt_time.unwrap() >= ended, "{state:?}, {ended}");
    assert!(state.next_attempt_time.unwrap() >= ended + TimeDelta::hours(1), "{state:?}, {ended}");
}

#[test]
fn a_session_killed_in_mid_handler_costs_no_try() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    let mut killer = bank.connect();
    let attempts = Arc::new(AtomicU32::new(0));
    let counted = attempts.clone();
    let killer = Mutex::new(std::mem::replace(&mut killer, bank.connect()));
    let tally = bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| {
        let first = counted.fetch_add(1, Ordering::Relaxed) == 0;
        let _ = book(payment, message)?;
        if let (true, Some(session)) = (first, message.connection().session_id()?) {
            killer.lock().unwrap().end_session(session)?;
        }
        book_nothing(message)?;
        Ok(Outcome::Done)
    });
    let state = bank.state(id);
    assert_eq!((state.status, state.try_count), (Status::Success, 1));
    assert_eq!(bank.booked(), [id]);
    assert_eq!(u64::from(attempts.load(Ordering::Relaxed)), 1 + tally.interrupted);
}

#[test]
fn a_finished_row_that_the_application_makes_due_begins_anew() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    bank.run(book);
    make_due(&bank, id);
    let tries = Arc::new(AtomicU32::new(0));
    let seen = tries.clone();
    bank.run(move |_: &Payment, message: &mut Message<'_, Conn>| {
        seen.store(message.try_number(), Ordering::Relaxed);
        Err(Failure::retry("no"))
    });
    assert_eq!(tries.load(Ordering::Relaxed), 1);
    assert_eq!((bank.state(id).status, bank.state(id).try_count), (Status::Error, 1));
}

#[test]
fn a_row_with_an_unknown_status_is_never_claimed() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2]);
    diesel::update(payments::table.find(ids[0]))
        .set(payment_queue::status.eq("PARKED"))
        .execute(&mut bank.connect())
        .unwrap();
    assert_eq!(bank.run(book).succeeded, 1);
    assert_eq!(bank.booked(), [ids[1]]);
}

#[test]
fn a_handler_past_its_timeout_commits_nothing_and_its_failure_says_so() {
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(module = hurried_queue, timeout = "500ms", retry = fixed("1h"))]
    struct Hurried {
        id: i64,
    }

    let bank = Bank::new();
    let ids = bank.enqueue([1]);
    let (stopped, wait) = std::sync::mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let poller = Hurried::poller(bank.pool(1), move |hurried: &Hurried, message: &mut Message<'_, Conn>| {
        diesel::insert_into(ledger::table)
            .values((ledger::payment_id.eq(hurried.id), ledger::amount_cents.eq(0)))
            .execute(message.connection())?;
        // Nobody ever sends, so this handler hangs for longer than its timeout.
        let _ = wait.lock().unwrap().recv_timeout(Duration::from_secs(2));
        Ok(Outcome::Done)
    });
    poller.workers(1).run_until_idle().unwrap();
    drop(stopped);
    assert!(bank.booked().is_empty());
    let state = bank.state(ids[0]);
    assert_eq!((state.status, state.try_count), (Status::Error, 1));
    assert!(error_text(&state).contains("longer than its timeout of 500ms"), "{state:?}");
}

fn book_nothing(message: &mut Message<'_, Conn>) -> QueryResult<usize> {
    diesel::delete(ledger::table.filter(ledger::id.lt(0))).execute(message.connection())
}

/// Makes a row due like an application that knows only this column.
fn make_due(bank: &Bank, id: i64) {
    diesel::update(payments::table.find(id))
        .set(payment_queue::next_attempt_time.eq(queueable::columns::Now))
        .execute(&mut bank.connect())
        .unwrap();
}

fn now(connection: &mut Conn) -> Option<chrono::DateTime<chrono::Utc>> {
    diesel::select(queueable::columns::Now)
        .get_result::<Option<queueable::columns::Instant>>(connection)
        .unwrap()
        .map(Into::into)
}

/// Returns the time from the last attempt's end to the next attempt, in whole seconds.
pub(crate) fn backoff(state: &QueueState) -> TimeDelta {
    let backoff = state.next_attempt_time.unwrap() - state.last_attempt_time.unwrap();
    TimeDelta::seconds((backoff.num_milliseconds() + 500) / 1000)
}

fn error_text(state: &QueueState) -> &str {
    state.last_attempt_error_message.as_deref().unwrap_or("no text")
}
