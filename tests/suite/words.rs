//! Texts are data: no text of a user passes for a class of errors, or for a mark of the library's own.

use std::sync::atomic::{AtomicU32, Ordering};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queueable::{Failure, HandlerResult, Lease, Message, Outcome, Queueable, Status, Tally};

use crate::db::{Conn, FILL_THE_DISK, MAKE_ROOM, fail_quoting};
use crate::suite::bank::{Bank, Payment, payments};
use crate::suite::group::{Grouped, Optimistic, enqueue_group, run};
use crate::suite::lease::Charge;

/// The texts of the databases and their client libraries about conflicts and lost sessions, and the library's own
/// marks.
const HOSTILE: [&str; 27] = [
    "deadlock detected",
    "canceling statement due to lock timeout",
    "canceling statement due to user request",
    "cached plan must not change result type",
    "terminating connection due to administrator command",
    "server closed the connection unexpectedly",
    "connection to server at localhost failed",
    "the database system is starting up",
    "cannot execute UPDATE during recovery",
    "could not extend file: No space left on device",
    "savepoint queueable_handler does not exist",
    "RELEASE SAVEPOINT can only be used in transaction blocks",
    "queueable: rows changed: 0",
    "queueable: rows locked: 0",
    "queueable: a handler cannot commit its group",
    "queueable: the row is not as it was claimed",
    "Deadlock found when trying to get lock; try restarting transaction",
    "Lock wait timeout exceeded; try restarting transaction",
    "Record has changed since last read in table",
    "Query execution was interrupted",
    "Lost connection to server during query",
    "Server has gone away",
    "Connection was killed",
    "WSREP has not yet prepared node for application use",
    "Too many connections",
    "database is locked",
    "database or disk is full",
];

/// Returns the text for this amount.
fn hostile(amount: i64) -> Option<&'static str> {
    usize::try_from(amount).ok().and_then(|amount| amount.checked_sub(1)).map(|number| HOSTILE[number])
}

/// Runs the statement that fails with the text for this amount.
fn fail(amount: i64, connection: &mut Conn) -> HandlerResult {
    if let Some(text) = hostile(amount) {
        connection.batch_execute(&fail_quoting(text))?;
    }
    Ok(Outcome::Done)
}

fn amounts() -> impl Iterator<Item = i64> {
    (1..).take(HOSTILE.len())
}

/// Shows that every row has failed once, and contains the database's text.
fn each_has_failed(bank: &Bank, ids: &[i64], tally: Tally) {
    for (id, text) in ids.iter().zip(HOSTILE) {
        let state = bank.state(*id);
        assert_eq!((state.status, state.try_count), (Status::Error, 1), "{text}");
        let told = state.last_attempt_error_message.unwrap();
        assert!(told.contains(text), "{told}");
    }
    assert_eq!((tally.retried, tally.interrupted), (HOSTILE.len() as u64, 0));
}

#[test]
fn what_an_error_quotes_is_no_conflict_and_no_lost_session() {
    let bank = Bank::new();
    let ids = bank.enqueue(amounts());
    let tally =
        bank.run(|payment: &Payment, message: &mut Message<'_, Conn>| fail(payment.amount_cents, message.connection()));
    each_has_failed(&bank, &ids, tally);
}

#[test]
fn what_an_error_quotes_undoes_no_group() {
    let bank = Bank::new();
    let ids = enqueue_group(&bank, 8, amounts());
    let tally = run::<Grouped>(&bank, |row: &Grouped, message: &mut Message<'_, Conn>| {
        fail(row.payment().amount_cents, message.connection())
    });
    each_has_failed(&bank, &ids, tally);
    let bank = Bank::new();
    let ids = enqueue_group(&bank, 8, amounts());
    let tally = run::<Optimistic>(&bank, |row: &Optimistic, message: &mut Message<'_, Conn>| {
        fail(row.payment().amount_cents, message.connection())
    });
    each_has_failed(&bank, &ids, tally);
}

#[test]
fn what_an_error_quotes_does_not_keep_a_lease_until_its_end() {
    let bank = Bank::new();
    let ids = bank.enqueue(amounts());
    let handler = (
        |charge: &Charge, _: &Lease| Ok(charge.amount_cents),
        |_: &Charge, amount: &i64, message: &mut Message<'_, Conn>| fail(*amount, message.connection()),
    );
    let tally = Charge::poller(bank.pool(1), handler).workers(1).run_until_idle().unwrap();
    each_has_failed(&bank, &ids, tally);
}

/// Returns a handler's own text as it is written on the row.
const WORDS: [&str; 8] = [
    "stopped",
    "queueable: stopped",
    "the process ended while this message was handled (crash 3 of 3)",
    "queueable: the process ended while this message was handled (crash 3 of 3)",
    "this message is being handled, or the process ended meanwhile (crash 2 of 3); before that: x",
    "queueable: this message is being handled, or the process ended meanwhile (crash 2 of 3); before that: x",
    "in the group 0123",
    "queueable: in the group 0123",
];

#[test]
fn a_failure_in_the_words_of_a_mark_is_a_failure_like_others() {
    let bank = Bank::new();
    let ids = bank.enqueue(0..8);
    let say = |payment: &Payment, _: &mut Message<'_, Conn>| -> HandlerResult {
        Err(Failure::retry(WORDS[payment.amount_cents as usize]))
    };
    for tries in 1..=2 {
        let tally = bank.run(say);
        assert_eq!((tally.retried, tally.failed, tally.interrupted), (8, 0, 0));
        for (id, words) in ids.iter().zip(WORDS) {
            let state = bank.state(*id);
            assert_eq!((state.status, state.try_count), (Status::Error, tries), "{words}");
            let told = state.last_attempt_error_message.unwrap();
            assert!(told.ends_with(words), "{told}");
        }
        Payment::queue().all_rows().retry_now(&mut bank.connect()).unwrap();
    }
    let report = Payment::queue().errors(&mut bank.connect()).unwrap();
    assert_eq!(report.groups.iter().map(|group| group.rows).sum::<i64>(), 8, "{report}");
}

#[test]
fn a_row_that_failed_in_the_words_of_a_mark_shares_a_group_with_others() {
    let bank = Bank::new();
    enqueue_group(&bank, 8, 0..8);
    run::<Grouped>(&bank, |row: &Grouped, _: &mut Message<'_, Conn>| -> HandlerResult {
        Err(Failure::retry(WORDS[row.payment().amount_cents as usize % 8]))
    });
    diesel::update(payments::table).set(Payment::due_now()).execute(&mut bank.connect()).unwrap();
    let tally = run::<Grouped>(&bank, |_: &Grouped, _: &mut Message<'_, Conn>| Ok(Outcome::Done));
    assert_eq!((tally.succeeded, tally.failed, tally.interrupted), (15, 0, 0));
}

#[test]
fn a_full_disk_costs_no_try() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    let runs = AtomicU32::new(0);
    let tally = bank.run(move |_: &Payment, message: &mut Message<'_, Conn>| {
        if runs.fetch_add(1, Ordering::SeqCst) == 0 {
            message.connection().batch_execute(FILL_THE_DISK)?;
        }
        Ok(message.connection().batch_execute(MAKE_ROOM).map(|()| Outcome::Done)?)
    });
    assert_eq!((tally.succeeded, tally.retried, tally.interrupted), (1, 0, 1));
    assert_eq!(bank.state(id).try_count, 1, "the success alone is counted");
}

const SECRET: &str = "card 4711 of postgres://me:hunter2@db/app";

const REDACTED: &str = "card #### of postgres://me:***@db/app";

fn is_redacted(bank: &Bank, ids: &[i64]) {
    for id in ids {
        let text = bank.state(*id).last_attempt_error_message;
        assert_eq!(text.as_deref(), Some(REDACTED));
    }
}

#[test]
fn failures_are_stored_as_the_application_redacts_them_in_all_modes() {
    let redact = |text: &str| text.replace("4711", "####");
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2]);
    let fails = |_: &Payment, _: &mut Message<'_, Conn>| -> HandlerResult { Err(Failure::retry(SECRET)) };
    bank.poller(fails).redact(redact).run_until_idle().unwrap();
    is_redacted(&bank, &ids);
    let bank = Bank::new();
    let ids = enqueue_group(&bank, 8, 0..8);
    let fails = |_: &Grouped, _: &mut Message<'_, Conn>| -> HandlerResult { Err(Failure::retry(SECRET)) };
    Grouped::poller(bank.pool(1), fails).workers(1).redact(redact).run_until_idle().unwrap();
    is_redacted(&bank, &ids);
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2]);
    let handler = (
        |charge: &Charge, _: &Lease| if charge.amount_cents == 1 { Err(Failure::retry(SECRET)) } else { Ok(()) },
        |_: &Charge, _: &(), _: &mut Message<'_, Conn>| -> HandlerResult { Err(Failure::fatal(SECRET)) },
    );
    Charge::poller(bank.pool(1), handler).workers(1).redact(redact).run_until_idle().unwrap();
    is_redacted(&bank, &ids);
}

#[test]
fn a_redaction_that_writes_a_mark_writes_none() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    let fails = |_: &Payment, _: &mut Message<'_, Conn>| -> HandlerResult { Err(Failure::retry("x")) };
    bank.poller(fails).redact(|_| "queueable: stopped".to_owned()).run_until_idle().unwrap();
    assert_eq!(bank.state(id).last_attempt_error_message.as_deref(), Some("failure: queueable: stopped"));
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    bank.poller(fails).redact(|_| panic!("in redact")).run_until_idle().unwrap();
    let text = bank.state(id).last_attempt_error_message;
    assert_eq!(text.as_deref(), Some("the text is not shown: its redaction panicked"));
}
