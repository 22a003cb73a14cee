//! The attempt's promises that only MySQL and MariaDB can break.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Pool};
use queue_core::internals::backend::{SessionLimits, SessionSettings, SessionSetup, Transactions};
use queueable::{Failure, Message, Outcome, Queueable, Status};

use crate::db::{Conn, is_mariadb};
use crate::suite::bank::{Bank, NewPayment, Payment, book, companies, payment_queue, payments};

const PATIENCE: Duration = Duration::from_secs(30);

/// Makes a deadlock with another session, which the handler's session loses: it locks company 1 and then wants company 2.
/// The other does the reverse, and has changed more rows, so the server spares it.
fn lose_a_deadlock(message: &mut Message<'_, Conn>, url: &str) -> QueryResult<usize> {
    diesel::update(companies::table.find(1)).set(companies::balance_cents.eq(1)).execute(message.connection())?;
    let (ready, is_ready) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut other = Conn::establish(url).unwrap();
            other
                .batch_execute(
                    "BEGIN; UPDATE companies SET balance_cents = 2 WHERE id = 2; \
                     INSERT INTO ledger (payment_id, amount_cents) \
                     WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 500) \
                     SELECT 0, n FROM numbers",
                )
                .unwrap();
            ready.send(()).unwrap();
            // Waits for the handler's lock; the handler's next statement closes the circle.
            let _ = other.batch_execute("UPDATE companies SET balance_cents = 2 WHERE id = 1");
            let _ = other.batch_execute("ROLLBACK");
        });
        is_ready.recv_timeout(PATIENCE).unwrap();
        // Both may wait until the server reports the deadlock to one of them.
        diesel::update(companies::table.find(2)).set(companies::balance_cents.eq(1)).execute(message.connection())
    })
}

#[test]
fn a_swallowed_deadlock_persists_nothing_of_the_handler() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    let url = bank.database.url().to_owned();
    let first = AtomicBool::new(true);
    bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| {
        assert!(first.swap(false, Ordering::Relaxed), "the failure waits for its backoff");
        let lost = lose_a_deadlock(message, &url);
        assert!(matches!(&lost, Err(error) if error.to_string().contains("Deadlock")), "{lost:?}");
        // With autocommit on, this statement would commit by itself.
        book(payment, message)
    });
    assert!(bank.booked().is_empty());
    let state = bank.state(id);
    assert_eq!((state.status, state.try_count), (Status::Error, 1));
    assert!(state.last_attempt_error_message.unwrap().contains("the handler ended the message's transaction"));
}

#[test]
fn a_deadlock_that_the_handler_reports_costs_no_try() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    let url = bank.database.url().to_owned();
    let first = AtomicBool::new(true);
    let tally = bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| {
        if first.swap(false, Ordering::Relaxed) {
            lose_a_deadlock(message, &url)?;
        }
        book(payment, message)
    });
    assert_eq!((tally.interrupted, tally.succeeded), (1, 1));
    assert_eq!(bank.booked(), [id]);
    assert_eq!(bank.state(id).try_count, 1);
}

#[test]
fn the_application_inserts_while_rows_are_claimed() {
    let bank = Bank::new();
    bank.enqueue(1..=5);
    let application = Mutex::new(bank.connect());
    application.lock().unwrap().batch_execute("SET innodb_lock_wait_timeout = 2").unwrap();
    let tally = bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| {
        // At REPEATABLE READ the claim would lock the gap into which this insert falls.
        diesel::insert_into(payments::table)
            .values(NewPayment { company_id: 2, amount_cents: 0 })
            .execute(&mut *application.lock().unwrap())?;
        book(payment, message)
    });
    assert_eq!(tally.succeeded, 5);
}

#[test]
fn a_second_worker_gets_the_next_row_and_not_nothing() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2]);
    let pool = bank.pool(1);
    let (first, second) = (ids[0], ids[1]);
    let tally = bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| {
        if payment.id == first {
            // While this row is locked, another process's worker finds the other one.
            let inner = queueable::Poller::new(pool.clone())
                .serve::<Payment>(move |other: &Payment, _: &mut Message<'_, Conn>| {
                    if other.id == second { Ok(Outcome::Skip) } else { Err(Failure::fatal("the wrong row")) }
                })
                .workers(1)
                .start()?;
            let mut connection = pool.get()?;
            let skipped = (0..3000).any(|_| {
                let (_keep, pause) = mpsc::channel::<()>();
                let _ = pause.recv_timeout(Duration::from_millis(10));
                let state: queueable::QueueState = payments::table
                    .find(second)
                    .select(<Payment as queueable::Queueable>::queue_state())
                    .first(&mut connection)
                    .expect("the row is there");
                state.status == Status::Skipped
            });
            inner.shutdown(PATIENCE);
            assert!(skipped, "the second worker saw nothing");
        }
        book(payment, message)
    });
    assert_eq!(tally.succeeded, 1);
}

#[test]
fn a_statement_that_commits_is_found_out() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    bank.run(|payment: &Payment, message: &mut Message<'_, Conn>| {
        let _ = book(payment, message)?;
        message.connection().batch_execute("CREATE TABLE surprise (id INT)")?;
        Ok(Outcome::Done)
    });
    let state = bank.state(id);
    assert_eq!((state.status, state.try_count), (Status::Error, 1));
    assert!(state.last_attempt_error_message.unwrap().contains("what it committed itself is not undone"));
}

#[test]
fn a_status_that_only_looks_like_one_of_ours_is_never_claimed_and_stops_nothing() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2]);
    // A collation that pads with blanks takes it for equal to ours.
    diesel::update(payments::table.find(ids[0]))
        .set(payment_queue::status.eq("ERROR "))
        .execute(&mut bank.connect())
        .unwrap();
    assert_eq!(bank.run(book).succeeded, 1);
    assert_eq!(bank.booked(), ids[1..]);
}

#[test]
fn a_statement_over_the_servers_limit_is_the_handlers_failure() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    let again = AtomicBool::new(false);
    bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| {
        if !again.swap(true, Ordering::Relaxed) {
            let connection = message.connection();
            // MySQL limits only what reads.
            let (limit, long) = match is_mariadb() {
                true => (
                    "max_statement_time = 0.05",
                    "UPDATE companies SET balance_cents = BENCHMARK(1000000000, MD5('x'))",
                ),
                false => (
                    "max_execution_time = 50",
                    "SELECT count(*) FROM information_schema.columns a, information_schema.columns b, \
                     information_schema.columns c",
                ),
            };
            connection.batch_execute(&format!("SET SESSION {limit}"))?;
            diesel::sql_query(long).execute(connection)?;
        }
        book(payment, message)
    });
    let state = bank.state(id);
    assert_eq!((state.status, state.try_count), (Status::Error, 1));
    assert!(state.last_attempt_error_message.unwrap().contains(if is_mariadb() {
        "max_statement_time"
    } else {
        "maximum statement execution time"
    }));
}

/// A server with German error messages.
#[derive(Debug)]
struct German;

impl CustomizeConnection<Conn, diesel::r2d2::Error> for German {
    fn on_acquire(&self, connection: &mut Conn) -> Result<(), diesel::r2d2::Error> {
        connection.batch_execute("SET SESSION lc_messages = 'de_DE'").map_err(diesel::r2d2::Error::QueryError)
    }
}

#[test]
fn a_conflict_is_known_in_the_servers_own_language() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    let mut holder = bank.connect();
    holder.batch_execute("BEGIN; UPDATE companies SET balance_cents = 0 WHERE id = 1").unwrap();
    let (holder, again) = (Mutex::new(holder), AtomicBool::new(false));
    let pool = Pool::builder()
        .max_size(3)
        .connection_customizer(Box::new(German))
        .build(ConnectionManager::<Conn>::new(bank.database.url()))
        .unwrap();
    let tally = Payment::poller(pool, move |payment: &Payment, message: &mut Message<'_, Conn>| {
        if again.swap(true, Ordering::Relaxed) {
            holder.lock().unwrap().batch_execute("ROLLBACK")?;
        }
        book(payment, message)
    })
    .workers(1)
    .lock_timeout(Duration::from_secs(1))
    .run_until_idle()
    .unwrap();
    assert_eq!((tally.interrupted, tally.succeeded), (1, 1));
    assert_eq!(bank.state(id).try_count, 1);
}

#[test]
fn a_worker_that_is_frozen_in_its_transaction_does_not_hold_its_row_for_hours() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    let mut frozen = bank.connect();
    let timeout = Duration::from_secs(5);
    let limits = SessionLimits { lock_timeout: PATIENCE, timeout, statement_timeout: timeout, attempts: true };
    frozen.prepare_session(limits).unwrap();
    let settings = frozen.read_settings().unwrap();
    frozen.limit_idleness(&settings, Some(timeout)).unwrap();
    frozen.begin().unwrap();
    diesel::update(payments::table.find(id)).set(payments::amount_cents.eq(2)).execute(&mut frozen).unwrap();
    let mut other = bank.connect();
    other.batch_execute("SET innodb_lock_wait_timeout = 20").unwrap();
    assert_eq!(diesel::delete(payments::table.find(id)).execute(&mut other), Ok(1));
}

#[test]
fn a_row_that_is_no_longer_due_when_its_turn_comes_is_not_locked_while_another_is_handled() {
    let bank = Bank::new();
    let ids = bank.enqueue(0..16);
    // Its key was read by then.
    let (postponed, next) = (ids[5], ids[6]);
    let url = bank.database.url().to_owned();
    let tally = bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| {
        if payment.id == ids[2] {
            diesel::update(payments::table.find(postponed))
                .set(payment_queue::next_attempt_time.eq(None::<queueable::columns::Instant>))
                .execute(message.connection())?;
        }
        if payment.id == next {
            let mut application = Conn::establish(&url)?;
            let row = payments::table.find(postponed).select(payments::id);
            let free: Vec<i64> = row.for_update().skip_locked().load(&mut application)?;
            assert_eq!(free, [postponed]);
        }
        book(payment, message)
    });
    assert_eq!((tally.succeeded, tally.retried), (15, 0));
}

#[test]
fn rows_that_the_application_locks_for_a_while_hold_up_no_other_and_run_afterwards() {
    let bank = Bank::new();
    let ids = bank.enqueue(0..64);
    let mut holder = bank.connect();
    holder.batch_execute("BEGIN").unwrap();
    let (held, free): (Vec<i64>, Vec<i64>) = ids.into_iter().partition(|id| id % 3 == 0);
    // One by one, by their keys: an update of several rows would lock every row that it reads.
    for id in &held {
        diesel::update(payments::table.find(id)).set(payments::amount_cents.eq(1)).execute(&mut holder).unwrap();
    }
    let (done, order) = mpsc::channel();
    let handler = move |payment: &Payment, _: &mut Message<'_, Conn>| {
        done.send(payment.id).unwrap();
        Ok(Outcome::Done)
    };
    let poll = Duration::from_millis(20);
    let poller = Payment::poller(bank.pool(4), handler).workers(4).poll_interval(poll).start().unwrap();
    let mut handled: Vec<i64> = free.iter().map(|_| order.recv_timeout(PATIENCE).unwrap()).collect();
    handled.sort_unstable();
    assert_eq!(handled, free);
    holder.batch_execute("COMMIT").unwrap();
    let mut handled: Vec<i64> = held.iter().map(|_| order.recv_timeout(PATIENCE).unwrap()).collect();
    handled.sort_unstable();
    assert_eq!(handled, held);
    assert_eq!(poller.shutdown(PATIENCE).tally.succeeded, 64);
}
