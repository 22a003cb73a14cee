//! Prefetched rows that the end of the message before locks: a worker uses nothing that it read before the lock.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::expression::SqlLiteral;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::sql_types::{BigInt, Nullable, Text};
use diesel_migrations::MigrationHarness;
use queueable::{Failure, Message, Migrations, Outcome, Queueable, Status};

use crate::db::{Conn, Database};
use crate::suite::bank::{Bank, Payment, book, payments};
use crate::suite::group_end::ScoutLeaves;
use crate::suite::keyed::erased;

const PATIENCE: Duration = Duration::from_secs(30);

diesel::table! {
    words (word) {
        word -> Text,
        place -> Integer,
    }
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = words, primary_key(word))]
struct Word {
    #[expect(dead_code, reason = "it is the key")]
    word: String,
    place: i32,
}

/// The same entity with a value that is not the row's own.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = words, primary_key(word))]
#[queue(module = counted_queue)]
#[expect(dead_code, reason = "nobody asks for it")]
struct Counted {
    word: String,
    #[diesel(select_expression = sql::<BigInt>("(SELECT count(*) FROM words)"), select_expression_type = SqlLiteral<BigInt>)]
    others: i64,
}

#[test]
fn a_key_that_cannot_stand_in_a_text_keeps_its_turn() {
    let database = Database::new();
    let mut connection = database.connect();
    connection.batch_execute("CREATE TABLE words (word text PRIMARY KEY, place integer NOT NULL)").unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Word>()).unwrap();
    connection
        .batch_execute(
            "INSERT INTO words (word, place, next_attempt_time)
             SELECT CASE WHEN place IN (7, 8, 12) THEN 'it''s ' ELSE 'word-' END || place, place, now() - (60 - place) * interval '1 s'
             FROM generate_series(1, 40) AS place",
        )
        .unwrap();
    let (done, order) = mpsc::channel();
    let done = Mutex::new(done);
    let handler = move |word: &Word, _: &mut Message<'_, Conn>| {
        done.lock().unwrap().send(word.place)?;
        Ok(Outcome::Done)
    };
    let tally = Word::poller(database.pool(3), handler).workers(1).prefetch_at_once().run_until_idle().unwrap();
    assert_eq!(tally.succeeded, 40);
    assert_eq!(order.into_iter().collect::<Vec<i32>>(), (1..=40).collect::<Vec<_>>());
}

#[test]
fn what_is_not_the_rows_own_is_not_read_ahead() {
    let prefetches_rows = (erased::<Word>().prefetches_rows(), erased::<Counted>().prefetches_rows());
    assert_eq!(prefetches_rows, (true, false));
}

/// Waits until a session can lock this many rows: the server releases a lock some time after its client has gone.
fn await_free_rows(bank: &Bank, rows: i64) {
    let free = "SELECT count(*) FROM (SELECT 1 FROM payments FOR UPDATE SKIP LOCKED) AS free";
    let free = || sql::<BigInt>(free).get_result::<i64>(&mut bank.connect()).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let (_nobody, pace) = mpsc::channel::<()>();
    while free() != rows {
        assert!(Instant::now() < deadline, "somebody holds the lock of a row");
        let _ = pace.recv_timeout(Duration::from_millis(5));
    }
}

#[test]
fn the_next_row_is_locked_when_a_message_has_ended_and_no_other() {
    let bank = Bank::new();
    bank.enqueue(1..=5);
    let (locked, wait) = mpsc::channel();
    let seen = Mutex::new((bank.connect(), locked));
    let tally = bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| {
        let (other, locked) = &mut *seen.lock().unwrap();
        let held = "SELECT id FROM payments WHERE id NOT IN (SELECT id FROM payments FOR UPDATE SKIP LOCKED)";
        locked.send((payment.id, sql::<BigInt>(held).load::<i64>(other)?))?;
        book(payment, message)
    });
    assert_eq!(tally.succeeded, 5);
    for (id, held) in wait {
        assert_eq!(held, [id]);
    }
}

#[test]
fn the_texts_that_end_messages_are_few_where_a_server_keeps_statistics_of_each() {
    let bank = Bank::new();
    bank.enqueue(1..=30);
    let (say, marks) = mpsc::channel();
    let say = Mutex::new(say);
    let tally = bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| {
        let mark = sql::<Nullable<Text>>("SELECT current_setting('queueable.committed', true)");
        say.lock().unwrap().send(mark.get_result::<Option<String>>(message.connection())?)?;
        // Some fail, with or without an error of the database.
        match payment.amount_cents % 5 {
            0 => Err(Failure::fatal("planned")),
            1 => {
                let _ = message.connection().batch_execute("SELECT 1 / 0");
                book(payment, message)
            }
            _ => book(payment, message),
        }
    });
    assert_eq!((tally.succeeded, tally.failed), (18, 6));
    let marks: HashSet<_> = marks.into_iter().flatten().collect();
    assert!((1..=2).contains(&marks.len()), "{marks:?}");
}

#[test]
fn a_row_that_was_changed_after_it_was_read_is_handled_as_it_is_now() {
    let bank = Bank::new();
    let ids = bank.enqueue(1..=20);
    let handled = AtomicUsize::new(0);
    let last = ids[19];
    let tally = bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| {
        let connection = message.connection();
        let now: i64 = payments::table.find(payment.id).select(payments::amount_cents).get_result(connection)?;
        if now != payment.amount_cents {
            return Err(Failure::fatal(format!("{} was read, and it is {now}", payment.amount_cents)));
        }
        if handled.fetch_add(1, Ordering::Relaxed) == 2 {
            // Once, and twice in one transaction, where both new versions have the same writer.
            let later = diesel::update(payments::table.filter(payments::id.gt(payment.id)));
            later.set(payments::amount_cents.eq(payments::amount_cents + 1000)).execute(connection)?;
            let later = diesel::update(payments::table.find(last));
            later.set(payments::amount_cents.eq(payments::amount_cents + 1000)).execute(connection)?;
        }
        book(payment, message)
    });
    assert_eq!((tally.succeeded, tally.failed), (20, 0));
    assert_eq!(bank.booked(), ids);
    assert_eq!(bank.balance(1), (1..=20).sum::<i64>() + 18 * 1000);
}

#[test]
fn a_row_that_somebody_holds_is_passed_over_and_worked_when_it_is_free() {
    let bank = Bank::new();
    let ids = bank.enqueue(1..=8);
    let held = ids[4];
    let (done, order) = mpsc::channel();
    let holder = Mutex::new((bank.connect(), done));
    let handled = AtomicUsize::new(0);
    let tally = bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| {
        let (holder, done) = &mut *holder.lock().unwrap();
        match handled.fetch_add(1, Ordering::Relaxed) {
            // By now the rows are read.
            1 => holder.batch_execute(&format!("BEGIN; SELECT 1 FROM payments WHERE id = {held} FOR UPDATE"))?,
            6 => holder.batch_execute("COMMIT")?,
            _ => {}
        }
        done.send(payment.id)?;
        book(payment, message)
    });
    assert_eq!((tally.succeeded, tally.interrupted), (8, 0));
    let order: Vec<i64> = order.into_iter().collect();
    assert_eq!(order.last(), Some(&held));
    assert_eq!(bank.booked(), ids);
}

#[test]
fn a_success_that_cannot_be_written_is_told_from_a_next_row_that_cannot_be_locked() {
    let bank = Bank::new();
    bank.connect()
        .batch_execute("ALTER TABLE payments ADD CONSTRAINT never_two CHECK (status <> 'SUCCESS' OR amount_cents <> 2)")
        .unwrap();
    let ids = bank.enqueue(1..=4);
    let tally = bank.run(book);
    assert_eq!((tally.succeeded, tally.retried, tally.interrupted), (3, 1, 0));
    assert_eq!(bank.booked(), [ids[0], ids[2], ids[3]]);
    let state = bank.state(ids[1]);
    assert_eq!((state.status, state.try_count), (Status::Error, 1));
    let text = state.last_attempt_error_message.unwrap();
    assert!(text.contains("never_two"), "{text}");
}

#[test]
fn a_message_is_a_success_although_the_lock_of_the_next_row_runs_into_a_timeout() {
    let bank = Bank::new();
    let ids = bank.enqueue(1..=4);
    let lockers = Mutex::new(Some((bank.connect(), bank.connect())));
    let handler = move |payment: &Payment, message: &mut Message<'_, Conn>| {
        if payment.amount_cents == 2 {
            let (mut locker, mut watcher) = lockers.lock().unwrap().take().unwrap();
            std::thread::spawn(move || {
                // It gets the lock when this message is committed, before the same round trip asks for the table again.
                locker.batch_execute("BEGIN; LOCK TABLE payments IN EXCLUSIVE MODE").unwrap();
                until(&mut locker, "query LIKE 'RELEASE%'");
                // The round trip has failed, and the worker asks whether the message is committed.
                until(&mut locker, "query NOT LIKE 'RELEASE%'");
                locker.batch_execute("COMMIT").unwrap();
            });
            until(&mut watcher, "query LIKE '%LOCK TABLE%'");
        }
        book(payment, message)
    };
    let tally = bank.poller(handler).lock_timeout(Duration::from_secs(5)).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.interrupted, tally.lost), (4, 0, 0));
    assert_eq!(bank.booked(), ids);
}

/// Waits until a session that meets the condition waits for a lock.
fn until(connection: &mut Conn, session: &str) {
    let waits = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND {session}"
    );
    let deadline = Instant::now() + PATIENCE;
    let (_nobody, pace) = mpsc::channel::<()>();
    while sql::<BigInt>(&waits).get_result::<i64>(connection) == Ok(0) {
        // Within a transaction, PostgreSQL would show the statistics of its first query again.
        connection.batch_execute("SELECT pg_stat_clear_snapshot()").unwrap();
        assert!(Instant::now() < deadline, "nobody waits: {session}");
        let _ = pace.recv_timeout(Duration::from_millis(5));
    }
}

#[test]
fn what_was_read_and_locked_ahead_is_free_and_due_after_a_shutdown() {
    let bank = Bank::new();
    bank.enqueue(1..=50);
    let (begun, wait) = mpsc::channel();
    let (go_on, told) = mpsc::channel::<()>();
    let channels = Mutex::new((begun, told));
    let (leaving, scout_left) = mpsc::channel();
    let pool = Pool::builder()
        .max_size(3)
        .connection_customizer(Box::new(ScoutLeaves(Mutex::new(leaving))))
        .build(ConnectionManager::<Conn>::new(bank.database.url()))
        .unwrap();
    let poller = Payment::poller(pool, move |payment: &Payment, message: &mut Message<'_, Conn>| {
        if payment.amount_cents == 10 {
            let (begun, told) = &*channels.lock().unwrap();
            begun.send(())?;
            told.recv_timeout(PATIENCE)?;
        }
        book(payment, message)
    });
    let handle = poller.workers(1).prefetch_at_once().start().unwrap();
    wait.recv_timeout(PATIENCE).unwrap();
    let stopper = std::thread::spawn(move || handle.shutdown(PATIENCE).tally);
    // The scout ends when it sees that the poller stops.
    scout_left.recv_timeout(PATIENCE).unwrap();
    go_on.send(()).unwrap();
    let tally = stopper.join().unwrap();
    let settled = i64::try_from(tally.succeeded).unwrap();
    assert!((10..50).contains(&settled), "{settled}");
    await_free_rows(&bank, 50);
    let due =
        "SELECT count(*) FROM payments WHERE status = 'NOT_ATTEMPTED' AND try_count = 0 AND next_attempt_time <= now()";
    assert_eq!(sql::<BigInt>(due).get_result(&mut bank.connect()), Ok(50 - settled));
    assert_eq!(Payment::queue().pending().count(&mut bank.connect()).unwrap(), 50 - settled);
}
