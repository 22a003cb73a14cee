//! What only a session through mysql_async can break.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel::sql_types::BigInt;
use diesel_async::{AsyncConnection, RunQueryDsl, SimpleAsyncConnection};
use queueable::{HandlerResult, Message, Outcome, Status, Tally};

use crate::async_handlers::{polled, run, session};
use crate::db::{AsyncConn, Conn, WAITS};
use crate::suite::bank::{Bank, Payment, companies, ledger, payments};

const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn an_update_counts_the_rows_that_it_finds_and_not_those_that_it_changes() {
    let bank = Bank::new();
    let id = bank.enqueue([7])[0];
    let update = diesel::update(payments::table.find(id)).set(payments::amount_cents.eq(7));
    assert_eq!(diesel::RunQueryDsl::execute(update, &mut bank.connect()), Ok(1));
}

/// Waits until a session waits for a row.
async fn await_wait(other: &mut AsyncConn) {
    let deadline = Instant::now() + PATIENCE;
    while sql::<BigInt>(WAITS).get_result::<i64>(other).await.expect("the server has a list of its sessions") == 0 {
        assert!(Instant::now() < deadline, "nobody waits");
        // The server shows a new list only to those who have not just read it.
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
}

/// Handles a payment whose session meets a harm in its first attempt: while it waits for the row of company 1, another
/// session runs this statement. `$session` stands for its number.
fn harmed(harm: &'static str) -> (Bank, Tally) {
    let bank = Bank::new();
    bank.enqueue([1]);
    let url = bank.database.url().to_owned();
    let first = AtomicBool::new(true);
    let tally = bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| -> HandlerResult {
        message.connection().run(async |connection| {
            let booking = (ledger::payment_id.eq(payment.id), ledger::amount_cents.eq(payment.amount_cents));
            diesel::insert_into(ledger::table).values(booking).execute(connection).await?;
            if first.swap(false, Ordering::Relaxed) {
                let on = session(connection).await?;
                // A kill comes while the session waits, on a slow machine too.
                let is_killed = harm.starts_with("KILL");
                let wait = if is_killed { 20 } else { 1 };
                connection.batch_execute(&format!("SET SESSION innodb_lock_wait_timeout = {wait}")).await?;
                let mut holder = AsyncConn::establish(&url).await?;
                let mut other = AsyncConn::establish(&url).await?;
                holder.batch_execute("BEGIN; UPDATE companies SET balance_cents = 1 WHERE id = 1").await?;
                let waits = diesel::update(companies::table.find(1)).set(companies::balance_cents.eq(2));
                let (waited, harmed) = tokio::join!(waits.execute(connection), async {
                    if is_killed {
                        await_wait(&mut other).await;
                    }
                    other.batch_execute(&harm.replace("$session", &on.to_string())).await
                });
                harmed?;
                waited?;
            }
            Ok(Outcome::Done)
        })
    });
    (bank, tally)
}

#[test]
fn a_killed_query_a_killed_session_and_a_row_that_is_never_free_cost_no_try() {
    for harm in ["KILL QUERY $session", "KILL CONNECTION $session", "DO 'nothing'"] {
        let (bank, tally) = harmed(harm);
        assert_eq!((tally.interrupted, tally.succeeded), (1, 1), "{harm}");
        let [id] = bank.booked()[..] else { panic!("it is booked once after {harm}: {:?}", bank.booked()) };
        assert_eq!((bank.state(id).status, bank.state(id).try_count), (Status::Success, 1), "{harm}");
    }
}

#[test]
fn an_answer_that_is_left_behind_is_believed_by_nobody() {
    let bank = Bank::new();
    let ids = bank.enqueue(1..=6);
    let interrupted = Mutex::new(HashSet::new());
    let sessions = Arc::new(Mutex::new(HashSet::new()));
    let seen = sessions.clone();
    let tally = run(&bank, async move |payment: &Payment, message: &mut Message<'_, AsyncConn>| {
        let on = session(message.connection()).await?;
        seen.lock().unwrap().insert(on);
        // Another text each time, which is prepared anew.
        let text = format!("INSERT INTO ledger (payment_id, amount_cents) VALUES ({}, 0)", payment.id);
        let is_first = interrupted.lock().unwrap().insert(payment.id);
        let polls = if is_first { payment.amount_cents } else { i64::MAX };
        polled(polls, diesel::sql_query(text).execute(message.connection())).await;
        Ok(Outcome::Done)
    });
    assert_eq!((tally.succeeded, tally.retried, bank.booked()), (6, 0, ids));
    // It is polled a third time at most: for the answer to its preparation, and for its own.
    assert!((1..=3).contains(&tally.interrupted), "{tally:?}");
    let closed = usize::try_from(tally.interrupted).unwrap();
    assert_eq!(sessions.lock().unwrap().len(), 1 + closed, "each of them is closed");
}

/// diesel-async does not know a deadlock on MySQL: it asks for the savepoint, which is gone with the transaction.
#[test]
fn a_deadlock_in_a_nested_async_transaction_leaves_nothing_and_is_tried_again() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    let url = bank.database.url().to_owned();
    let tally = bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| -> HandlerResult {
        message.connection().run(async |connection| {
            let booking = (ledger::payment_id.eq(payment.id), ledger::amount_cents.eq(payment.amount_cents));
            diesel::insert_into(ledger::table).values(booking).execute(connection).await?;
            let mut other = AsyncConn::establish(&url).await?;
            other
                .batch_execute(
                    "BEGIN; UPDATE companies SET balance_cents = 2 WHERE id = 2; \
                     INSERT INTO ledger (payment_id, amount_cents) \
                     WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 500) \
                     SELECT 0, n FROM numbers",
                )
                .await?;
            let nested = connection.transaction(async move |connection| {
                let first = diesel::update(companies::table.find(1)).set(companies::balance_cents.eq(1));
                first.execute(connection).await?;
                // The other session waits for the lock on company 1, and the next statement closes the circle.
                let closing = diesel::update(companies::table.find(2)).set(companies::balance_cents.eq(1));
                let (lost, waited) = tokio::join!(
                    closing.execute(connection),
                    other.batch_execute("UPDATE companies SET balance_cents = 2 WHERE id = 1")
                );
                waited?;
                lost
            });
            let lost = nested.await;
            assert!(matches!(&lost, Err(DieselError::DatabaseError(..))), "{lost:?}");
            lost?;
            Ok(Outcome::Done)
        })
    });
    assert_eq!((tally.retried, bank.booked()), (1, vec![]));
    assert_eq!((bank.state(id).status, bank.state(id).try_count), (Status::Error, 1));
}
