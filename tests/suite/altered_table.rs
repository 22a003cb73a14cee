//! A table that is altered under running workers: no row pays for that, and the queue goes on when the table is as before.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::{Integer, Text};
use diesel_migrations::MigrationHarness;
use queueable::{Event, Lease, Message, Migrations, Outcome, Poller, PollerHandle, Queueable};

use crate::db::{Conn, Database, NAME};
use crate::suite::events::{await_event, listener};

const PATIENCE: Duration = Duration::from_secs(30);

diesel::table! { meters (id) { id -> Integer, amount -> Integer, } }

macro_rules! meter {
    ($name:ident, $module:ident, $($settings:tt)*) => {
        #[derive(Queryable, Selectable, Queueable)]
        #[diesel(table_name = meters)]
        #[queue(module = $module, retry = fixed("1h"), $($settings)*)]
        pub(crate) struct $name {
            id: i32,
            amount: i32,
        }
    };
}

meter!(Plain, plain_queue, timeout = "30s");
meter!(Grouped, grouped_queue, group = 10, timeout = "30s");
meter!(Leased, leased_queue, lease = "60s");
meter!(InTurn, in_turn_queue, exclusive, timeout = "30s");
meter!(Laned, laned_queue, serial_by = amount, timeout = "30s");

/// How a table is altered, and altered back.
pub(crate) struct Change {
    pub(crate) alter: &'static str,
    pub(crate) back: &'static str,
    /// What the queue then says.
    pub(crate) says: &'static str,
}

/// Names that go away.
const RENAMED: &[Change] = &[
    Change {
        alter: "ALTER TABLE meters RENAME TO meters_2",
        back: "ALTER TABLE meters_2 RENAME TO meters",
        says: "meters",
    },
    Change {
        alter: "ALTER TABLE meters RENAME COLUMN amount TO total",
        back: "ALTER TABLE meters RENAME COLUMN total TO amount",
        says: "amount",
    },
];

#[derive(QueryableByName, Debug, PartialEq)]
struct Row {
    #[diesel(sql_type = Text)]
    status: String,
    #[diesel(sql_type = Integer)]
    try_count: i32,
}

fn states(connection: &mut Conn, table: &str, from: i32) -> Vec<(String, i32)> {
    let rows: Vec<Row> =
        diesel::sql_query(format!("SELECT status, try_count FROM {table} WHERE id >= {from} ORDER BY id"))
            .load(connection)
            .unwrap();
    rows.into_iter().map(|row| (row.status, row.try_count)).collect()
}

fn enqueue(connection: &mut Conn, table: &str, ids: std::ops::Range<i32>) {
    for id in ids {
        let insert =
            format!("INSERT INTO {table} VALUES ({id}, {id}, 'NOT_ATTEMPTED', '2026-01-01 00:00:00', 0, NULL, NULL)");
        connection.batch_execute(&insert).unwrap();
    }
}

/// Shows what becomes of rows that are enqueued while the table is altered.
fn assert_nothing_is_written(database: &Database, heard: &Receiver<Event>, handle: &PollerHandle, changes: &[Change]) {
    let mut connection = database.connect();
    let mut first = 1;
    for Change { alter, back, says } in changes {
        let table = if alter.ends_with("meters_2") { "meters_2" } else { "meters" };
        enqueue(&mut connection, "meters", first..first + 3);
        for _ in 0..3 {
            await_event(heard, |event| matches!(event, Event::Succeeded(_)));
        }
        connection.batch_execute(alter).unwrap();
        enqueue(&mut connection, table, first + 3..first + 13);
        let Event::QueueStalled { error, .. } = await_event(heard, |event| matches!(event, Event::QueueStalled { .. }))
        else {
            unreachable!("only this was awaited")
        };
        assert!(error.contains(says), "{alter}: {error}");
        let health = handle.health();
        assert_eq!(health.entities[0].stalled.as_ref(), Some(&error));
        // By now more than one claim, or probe, has been refused. One under a lease gives its rows back a moment later.
        let (before, deadline) = (vec![("NOT_ATTEMPTED".to_owned(), 0); 10], Instant::now() + PATIENCE);
        while states(&mut connection, table, first + 3) != before {
            assert!(Instant::now() < deadline, "{alter}: {:?}", states(&mut connection, table, first + 3));
            std::thread::park_timeout(Duration::from_millis(5));
        }
        connection.batch_execute(back).unwrap();
        await_event(heard, |event| matches!(event, Event::QueueResumed { .. }));
        while states(&mut connection, "meters", first + 3).iter().any(|(status, _)| status != "SUCCESS") {
            std::thread::yield_now();
        }
        assert_eq!(states(&mut connection, "meters", first + 3), vec![("SUCCESS".to_owned(), 1); 10], "{alter}");
        assert_eq!(handle.health().entities[0].stalled, None);
        first += 13;
        while heard.try_recv().is_ok() {}
    }
}

pub(crate) fn database_of(migrations: Migrations<<Conn as diesel::Connection>::Backend>) -> Database {
    let database = Database::new();
    let mut connection = database.connect();
    connection.batch_execute("CREATE TABLE meters (id INTEGER NOT NULL PRIMARY KEY, amount INTEGER NOT NULL)").unwrap();
    connection.run_pending_migrations(migrations).unwrap();
    database
}

fn run(database: &Database, poller: Poller<Conn>, changes: &[Change]) {
    let (listen, heard) = listener();
    let handle = poller.workers(2).on_event(listen).start().unwrap();
    assert_nothing_is_written(database, &heard, &handle, changes);
    handle.shutdown(PATIENCE);
}

/// Shows it in all modes.
pub(crate) fn no_mode_writes(changes: &[Change]) {
    macro_rules! stalls {
        ($entity:ident) => {{
            let database = database_of(Migrations::new().entity::<$entity>());
            let handler = |entity: &$entity, _: &mut Message<'_, Conn>| {
                assert_eq!(entity.id, entity.amount);
                Ok(Outcome::Done)
            };
            run(&database, $entity::poller(database.pool(5), handler), changes);
        }};
    }
    stalls!(Plain);
    stalls!(Grouped);
    stalls!(InTurn);
    stalls!(Laned);
    let database = database_of(Migrations::new().entity::<Leased>());
    let handler = (
        |entity: &Leased, _: &Lease| {
            assert_eq!(entity.id, entity.amount);
            Ok(())
        },
        |_: &Leased, (): &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done),
    );
    run(&database, Leased::poller(database.pool(5), handler), changes);
}

#[test]
fn no_message_pays_for_a_name_that_is_gone() {
    no_mode_writes(RENAMED);
}

/// Where a column can be altered, no claim shows it, only what is written at the end.
#[test]
fn no_message_pays_for_a_column_that_cannot_hold_what_is_written() {
    let change = match NAME {
        "mysql" => Change {
            alter: "ALTER TABLE meters MODIFY COLUMN last_attempt_time DATETIME COMMENT 'queueable: a column of the queue'",
            back: "ALTER TABLE meters MODIFY COLUMN last_attempt_time DATETIME(6) COMMENT 'queueable: a column of the queue'",
            says: "last_attempt_time",
        },
        "postgres" => Change {
            alter: "ALTER TABLE meters ALTER COLUMN last_attempt_error_message SET NOT NULL",
            back: "ALTER TABLE meters ALTER COLUMN last_attempt_error_message DROP NOT NULL",
            says: "last_attempt_error_message",
        },
        // SQLite alters no column, and renames one.
        _ => Change {
            alter: "ALTER TABLE meters RENAME COLUMN last_attempt_error_message TO text",
            back: "ALTER TABLE meters RENAME COLUMN text TO last_attempt_error_message",
            says: "last_attempt_error_message",
        },
    };
    let database = database_of(Migrations::new().entity::<Leased>());
    let (listen, heard) = listener();
    let handler = (|_: &Leased, _: &Lease| Ok(()), |_: &Leased, (): &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done));
    let handle = Leased::poller(database.pool(5), handler).workers(2).on_event(listen).start().unwrap();
    let mut connection = database.connect();
    connection.batch_execute(change.alter).unwrap();
    let Event::QueueStalled { error, .. } = await_event(&heard, |event| matches!(event, Event::QueueStalled { .. }))
    else {
        unreachable!("only this was awaited")
    };
    assert!(error.contains(change.says), "{error}");
    connection.batch_execute(change.back).unwrap();
    await_event(&heard, |event| matches!(event, Event::QueueResumed { .. }));
    enqueue(&mut connection, "meters", 1..2);
    await_event(&heard, |event| matches!(event, Event::Succeeded(_)));
    let tries: Vec<_> = states(&mut connection, "meters", 1).into_iter().map(|(_, tries)| tries).collect();
    assert!(tries.iter().all(|tries| *tries <= 1), "{tries:?}");
    handle.shutdown(PATIENCE);
}
