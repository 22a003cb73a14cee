//! The database announces rows, however they become due: nothing here uses the library's own expressions.

use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer, Text};
use diesel_migrations::MigrationHarness;
use queueable::{Error, Failure, Message, Migrations, Outcome, PollerHandle, Queueable};

use crate::db::{Conn, Database};

const PATIENCE: Duration = Duration::from_secs(30);

diesel::table! {
    orders (id) {
        id -> BigInt,
        title -> Text,
    }
}

macro_rules! entity {
    ($name:ident $(, $mode:tt)?) => {
        #[derive(Debug, Queryable, Selectable, Queueable)]
        #[diesel(table_name = orders)]
        #[queue(wake = notify, retry = fixed("5m"), rerun_on_change(title))]
        $(#[queue $mode])?
        struct $name {
            id: i64,
            #[expect(dead_code, reason = "nobody asks for it")]
            title: String,
        }
    };
}

entity!(Order);
entity!(Together, (group = 5, module = together_queue));
entity!(Slow, (lease = "1m", module = slow_queue));

fn database() -> Database {
    let database = Database::new();
    let mut connection = database.connect();
    connection.batch_execute("CREATE TABLE orders (id bigint PRIMARY KEY, title text NOT NULL)").unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Order>()).unwrap();
    database
}

fn insert(ids: &str, due: &str) -> String {
    format!(
        "INSERT INTO orders (id, title, next_attempt_time) SELECT id, 'new', {due} FROM generate_series({ids}) AS id"
    )
}

/// A poller that reports which rows it handles, and polls once in ten minutes.
fn telling(database: &Database) -> (PollerHandle, Receiver<i64>) {
    let (handled, wait) = mpsc::channel();
    let handled = Mutex::new(handled);
    let handler = move |order: &Order, _: &mut Message<'_, Conn>| {
        handled.lock().unwrap().send(order.id)?;
        Ok(Outcome::Done)
    };
    let poller = Order::poller(database.pool(3), handler).workers(1).poll_interval(Duration::from_secs(600));
    (poller.start().unwrap(), wait)
}

#[test]
fn a_row_that_somebody_else_makes_due_is_worked_long_before_the_poll_interval() {
    let database = database();
    let mut connection = database.connect();
    let (handle, wait) = telling(&database);
    for (change, id) in [
        (insert("1, 1", "now()"), 1),
        ("UPDATE orders SET next_attempt_time = now() - interval '1 day' WHERE id = 1".to_owned(), 1),
        // The scout sleeps, and must learn of the new due time.
        (insert("2, 2", "clock_timestamp() + interval '200 milliseconds'"), 2),
        // Here only a trigger writes the time.
        ("UPDATE orders SET title = 'another' WHERE id = 2".to_owned(), 2),
    ] {
        connection.batch_execute(&change).unwrap();
        assert_eq!(wait.recv_timeout(PATIENCE), Ok(id), "{change}");
        until_settled(&mut connection);
    }
    handle.shutdown(PATIENCE);
}

#[test]
fn a_listener_whose_session_is_killed_listens_again() {
    let database = database();
    let mut connection = database.connect();
    let (handle, wait) = telling(&database);
    for id in 1..=3 {
        let others = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() \
                      AND backend_type = 'client backend'";
        let mut killed: Vec<i32> = Vec::new();
        until("opens a session", || {
            killed = sql::<Integer>(others).load(&mut connection).unwrap();
            !killed.is_empty()
        });
        let killed = killed.iter().map(i32::to_string).collect::<Vec<_>>().join(", ");
        let kill = format!("SELECT pg_terminate_backend(pid) FROM unnest(ARRAY[{killed}]) AS pid");
        connection.batch_execute(&kill).unwrap();
        // The listener's new session has looked and found nothing. Only a notification makes it look again before the test ends.
        let rests = format!(
            "SELECT count(*) FROM ({others} AND pid NOT IN ({killed}) AND state = 'idle' AND query LIKE '%orders%' \
             AND state_change < clock_timestamp() - interval '200 milliseconds') AS resting"
        );
        until("looks again", || sql::<BigInt>(&rests).get_result::<i64>(&mut connection).unwrap() > 0);
        connection.batch_execute(&insert(&format!("{id}, {id}"), "now()")).unwrap();
        assert_eq!(wait.recv_timeout(PATIENCE), Ok(id));
        // If the session is killed before its commit, the row is handled again.
        until_settled(&mut connection);
    }
    handle.shutdown(PATIENCE);
}

#[test]
fn enqueues_are_told_of_and_what_attempts_write_is_not() {
    let database = database();
    let mut connection = database.connect();
    // Through libpq, whatever the poller's sessions are.
    let mut listener = PgConnection::establish(database.url()).unwrap();
    let channel: String = sql::<Text>(
        "SELECT DISTINCT substring(prosrc from 'NOTIFY \"([^\"]+)\"') FROM pg_proc WHERE prosrc LIKE '%NOTIFY%' \
         AND proname LIKE 'zz_queueable_%'",
    )
    .get_result(&mut connection)
    .unwrap();
    listener.batch_execute(&format!("LISTEN \"{channel}\"")).unwrap();
    let mut told = |what: &str, change: &mut dyn FnMut()| {
        change();
        // The server delivers the notifications of earlier commits before the result of a statement.
        listener.batch_execute("SELECT 1").unwrap();
        let count = listener.notifications_iter().map(|told| assert_eq!(told.unwrap().channel, channel)).count();
        println!("{what}: {count}");
        count
    };
    let run = |sql: &str| database.connect().batch_execute(sql).unwrap();

    assert_eq!(told("ten rows at once", &mut || run(&insert("1, 10", "now()"))), 1);
    assert_eq!(told("rows that are not enqueued", &mut || run(&insert("11, 20", "NULL"))), 0);
    assert_eq!(told("far in the future", &mut || run(&insert("21, 30", "now() + interval '1 day'"))), 0);
    assert_eq!(told("another column", &mut || run("UPDATE orders SET id = id + 100 WHERE id = 21")), 0);

    let work = |id: i64| match id % 3 {
        0 => Err(Failure::retry("it fails")),
        1 => Err(Failure::fatal("it fails for good")),
        _ => Ok(Outcome::Done),
    };
    let one_by_one = &mut || {
        let pool = database.pool(3);
        Order::poller(pool, move |order: &Order, _: &mut Message<'_, Conn>| work(order.id))
            .workers(1)
            .run_until_idle()
            .unwrap();
    };
    assert_eq!(told("attempts", one_by_one), 0);
    assert_eq!(told("enqueued again", &mut || run("UPDATE orders SET next_attempt_time = now() WHERE id <= 10")), 1);
    let in_groups = &mut || {
        let poller =
            Together::poller(database.pool(3), move |order: &Together, _: &mut Message<'_, Conn>| work(order.id));
        poller.workers(1).run_until_idle().unwrap();
    };
    assert_eq!(told("groups", in_groups), 0);
    assert_eq!(told("enqueued again", &mut || run("UPDATE orders SET next_attempt_time = now() WHERE id <= 10")), 1);
    let under_leases = &mut || {
        let call = |_: &Slow, _: &queueable::Lease| -> Result<(), Failure> { Ok(()) };
        let apply = move |order: &Slow, (): &(), _: &mut Message<'_, Conn>| work(order.id);
        Slow::poller(database.pool(3), (call, apply)).workers(1).run_until_idle().unwrap();
    };
    assert_eq!(told("leases", under_leases), 0);
}

#[test]
fn a_poller_does_not_start_without_the_triggers() {
    let database = database();
    let mut connection = database.connect();
    connection.batch_execute("ALTER TABLE orders DISABLE TRIGGER USER").unwrap();
    let poller =
        || Order::poller(database.pool(3), |_: &Order, _: &mut Message<'_, Conn>| Ok(Outcome::Done)).workers(1);
    let refused = poller().run_until_idle();
    let Err(Error::Unsafe(findings)) = refused else { panic!("{refused:?}") };
    assert_eq!(findings.len(), 3, "{findings:?}");
    assert!(findings.iter().any(|finding| finding.problem.contains("do not find inserted rows")), "{findings:?}");
    findings.iter().for_each(|finding| connection.batch_execute(&finding.mend).unwrap());
    poller().run_until_idle().unwrap();
}

#[test]
fn reverting_takes_the_triggers_and_their_functions() {
    let database = database();
    let mut connection = database.connect();
    let functions = "SELECT count(*) FROM pg_proc WHERE proname LIKE 'zz_queueable_%'";
    assert_eq!(sql::<BigInt>(functions).get_result::<i64>(&mut connection), Ok(3));
    connection.revert_last_migration(Migrations::new().entity::<Order>()).unwrap();
    assert_eq!(sql::<BigInt>(functions).get_result::<i64>(&mut connection), Ok(0));
}

fn until_settled(connection: &mut Conn) {
    until("settled", || sql::<BigInt>("SELECT count(next_attempt_time) FROM orders").get_result(connection) == Ok(0));
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    let (_nobody, pace) = mpsc::channel::<()>();
    while !is_so() {
        assert!(std::time::Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        let _ = pace.recv_timeout(Duration::from_millis(5));
    }
}
