//! One message at a time, whatever operators do to the message whose call is running.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{ClaimStyle, Failure, Lease, Message, Migrations, Outcome, QueueState, Queueable, Status};

use crate::db::{AUTO_KEY, BIGINT, Conn, Database};

diesel::table! {
    letters (id) {
        id -> BigInt,
        revision -> Nullable<BigInt>,
    }
}

#[derive(Debug, Clone, Queryable, Selectable, Queueable)]
#[diesel(table_name = letters)]
#[queue(exclusive, version = revision, lease = "60s", retry = fixed("1h"), max_tries = 3)]
#[expect(dead_code, reason = "it is enqueued by it")]
struct Letter {
    id: i64,
    revision: Option<i64>,
}

/// The same queue, with many calls at once.
#[derive(Debug, Clone, Queryable, Selectable, Queueable)]
#[diesel(table_name = letters)]
#[queue(lease = "60s", retry = fixed("1h"), max_tries = 3, module = called_queue)]
struct Called {
    id: i64,
}

fn letters(number: u32) -> Arc<Database> {
    let database = Database::new();
    let mut connection = database.connect();
    connection.batch_execute(&format!("CREATE TABLE letters (id {AUTO_KEY} NOT NULL, revision {BIGINT})")).unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Letter>()).unwrap();
    for _ in 0..number {
        let row = (letters::revision.eq(1_i64), Letter::due_now());
        diesel::insert_into(letters::table).values(row).execute(&mut connection).unwrap();
    }
    Arc::new(database)
}

fn state(database: &Database, id: i64) -> QueueState {
    letters::table.find(id).select(Letter::queue_state()).get_result(&mut database.connect()).unwrap()
}

type Calls = Arc<Mutex<Vec<i64>>>;

/// Processes the rows that may run, like another process.
fn call_in_another_process(database: &Database, calls: &Calls) {
    let calls = calls.clone();
    let handler = (
        move |letter: &Letter, _: &Lease| {
            calls.lock().unwrap().push(letter.id);
            Ok::<_, Failure>(())
        },
        |_: &Letter, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done),
    );
    Letter::poller(database.pool(3), handler).workers(1).run_until_idle().unwrap();
}

/// An operation on the first letter.
type Operation = fn(&mut Conn) -> usize;

const OPERATIONS: [(&str, Operation); 6] = [
    ("enqueue_if_newer", |connection| usize::from(Letter::enqueue_if_newer(connection, &1, 2_i64).unwrap())),
    ("skip", |connection| Letter::queue().filter(letters::id.eq(1)).skip(connection).unwrap()),
    ("delete", |connection| Letter::queue().filter(letters::id.eq(1)).delete(connection).unwrap()),
    ("rerun", |connection| Letter::queue().filter(letters::id.eq(1)).rerun(connection).unwrap()),
    ("retry_now", |connection| Letter::queue().filter(letters::id.eq(1)).retry_now(connection).unwrap()),
    ("stop", |connection| Letter::queue().filter(letters::id.eq(1)).stop(connection).unwrap()),
];

#[test]
fn whatever_is_done_to_the_letter_that_is_being_called_no_other_call_begins() {
    for (name, operation) in OPERATIONS {
        let database = letters(2);
        let (others, changed) = (Calls::default(), Arc::new(Mutex::new(None)));
        let (outside, seen, set) = (database.clone(), others.clone(), changed.clone());
        let handler = (
            move |letter: &Letter, _: &Lease| {
                if letter.id == 1 && set.lock().unwrap().is_none() {
                    *set.lock().unwrap() = Some(operation(&mut outside.connect()));
                    call_in_another_process(&outside, &seen);
                }
                Ok::<_, Failure>(())
            },
            |_: &Letter, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done),
        );
        Letter::poller(database.pool(3), handler).workers(1).run_until_idle().unwrap();
        assert!(others.lock().unwrap().is_empty(), "{name}: two calls ran at once");
        let is_news = name == "enqueue_if_newer";
        assert_eq!(*changed.lock().unwrap(), Some(usize::from(is_news)), "{name}");
        if is_news {
            // The call was for the old version, so its answer is not written. The row is due when its lease would have
            // ended.
            let now = state(&database, 1);
            assert_eq!((now.status, now.try_count), (Status::InProgress, 0));
            diesel::update(letters::table.find(1))
                .set(letter_queue::next_attempt_time.eq(queueable::columns::Now))
                .execute(&mut database.connect())
                .unwrap();
            call_in_another_process(&database, &others);
            assert_eq!(*others.lock().unwrap(), [1, 2], "{name}");
            assert_eq!(state(&database, 1).last_attempt_error_message, None, "{name}");
        }
        assert_eq!(
            (state(&database, 1).status, state(&database, 2).status),
            (Status::Success, Status::Success),
            "{name}"
        );
    }
}

#[test]
fn a_run_until_idle_does_not_wait_behind_the_lease_of_somebody_else() {
    let database = letters(2);
    // Another process holds the second letter for an hour, and never answers.
    let mut connection = database.connect();
    let in_an_hour = Letter::due_in(Duration::from_secs(3600));
    diesel::update(letters::table.find(2)).set(in_an_hour).execute(&mut connection).unwrap();
    connection.batch_execute("UPDATE letters SET status = 'IN_PROGRESS', try_count = 1 WHERE id = 2").unwrap();
    let calls = Calls::default();
    let began = Instant::now();
    call_in_another_process(&database, &calls);
    assert!(began.elapsed() < Duration::from_secs(600));
    assert!(calls.lock().unwrap().is_empty());
    assert_eq!(state(&database, 1).status, Status::NotAttempted);
}

#[test]
fn a_call_is_told_the_same_of_its_row_whatever_claimed_it() {
    let told = [ClaimStyle::Auto, ClaimStyle::UpdateThenSelect].map(|style| {
        let database = letters(1);
        database
            .connect()
            .batch_execute(
                "UPDATE letters SET status = 'ERROR', try_count = 1, last_attempt_error_message = 'no stamp', \
                 last_attempt_time = '2026-01-01 00:00:00.000'",
            )
            .unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let push = seen.clone();
        let outside = database.clone();
        let handler = (
            move |called: &Called, lease: &Lease| {
                let row = state(&outside, called.id);
                push.lock().unwrap().push((lease.queue_state().clone(), row.last_attempt_time));
                Ok::<_, Failure>(())
            },
            |_: &Called, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done),
        );
        Called::poller(database.pool(3), handler).workers(1).claim_style(style).run_until_idle().unwrap();
        seen.lock().unwrap().pop().unwrap()
    });
    for (state, began) in told {
        assert_eq!(state.last_attempt_time, began, "when the attempt began, as the row says");
        assert_eq!((state.status, state.try_count, state.next_attempt_time), (Status::InProgress, 2, None));
        assert_eq!(state.last_attempt_error_message.as_deref(), Some("no stamp"));
    }
}
