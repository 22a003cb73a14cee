//! Columns whose types change under running workers. PostgreSQL tells Diesel's types apart; MySQL's clients convert between
//! them.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{Event, Message, Migrations, Outcome, Queueable, Status};

use crate::db::{Conn, Database};
use crate::suite::altered_table::{Change, Plain, database_of, no_mode_writes};
use crate::suite::events::{await_event, listener};

const RETYPED: &[Change] = &[
    Change {
        alter: "ALTER TABLE meters ALTER COLUMN id TYPE bigint",
        back: "ALTER TABLE meters ALTER COLUMN id TYPE integer",
        says: "column `id` had the type integer when the poller started, and has bigint now",
    },
    Change {
        alter: "ALTER TABLE meters ALTER COLUMN amount TYPE bigint",
        back: "ALTER TABLE meters ALTER COLUMN amount TYPE integer",
        says: "column `amount` had the type integer when the poller started, and has bigint now",
    },
];

#[test]
fn no_message_pays_for_a_column_of_another_type() {
    no_mode_writes(RETYPED);
}

#[test]
fn a_row_at_fault_fails_although_a_type_has_changed() {
    let database = database_of(Migrations::new().entity::<Plain>());
    let mut connection = database.connect();
    let handler = |_: &Plain, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let handle = Plain::poller(database.pool(3), handler).workers(1).start().unwrap();
    // The struct can read every row but one.
    connection
        .batch_execute(
            "ALTER TABLE meters ALTER COLUMN last_attempt_error_message TYPE varchar(9000), ALTER COLUMN amount DROP NOT NULL;
             INSERT INTO meters (id, amount, next_attempt_time) VALUES (1, NULL, '2026-01-01'), (2, 2, '2026-01-02')",
        )
        .unwrap();
    let mut count = |status| Plain::queue().counts_by_status(&mut connection).unwrap().of(status);
    while count(Status::Error) + count(Status::Success) < 2 {
        std::thread::yield_now();
    }
    assert_eq!((count(Status::Error), count(Status::Success)), (1, 1));
    handle.shutdown(std::time::Duration::from_secs(30));
}

/// A mood, as PostgreSQL's enumeration has it.
#[derive(Debug, Clone, Copy, diesel::deserialize::FromSqlRow)]
struct Calm;

#[derive(Debug, diesel::sql_types::SqlType, diesel::query_builder::QueryId)]
#[diesel(postgres_type(name = "mood"))]
pub struct Mood;

impl diesel::deserialize::FromSql<Mood, diesel::pg::Pg> for Calm {
    fn from_sql(bytes: diesel::pg::PgValue<'_>) -> diesel::deserialize::Result<Self> {
        match bytes.as_bytes() {
            b"calm" => Ok(Calm),
            other => Err(format!("an unknown mood: {}", String::from_utf8_lossy(other)).into()),
        }
    }
}

diesel::table! {
    use diesel::sql_types::Integer;
    use super::Mood;

    days (id) { id -> Integer, mood -> Mood, }
}

#[derive(Queryable, Selectable, Queueable)]
#[queue(retry = fixed("1h"), timeout = "30s")]
#[diesel(table_name = days)]
#[expect(dead_code, reason = "it is decoded, not read")]
struct Day {
    id: i32,
    mood: Calm,
}

#[test]
fn no_message_pays_for_a_value_of_an_enumeration_that_has_another_name() {
    let database = Database::new();
    let mut connection = database.connect();
    connection
        .batch_execute(
            "CREATE TYPE mood AS ENUM ('calm'); CREATE TABLE days (id INTEGER PRIMARY KEY, mood mood NOT NULL)",
        )
        .unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Day>()).unwrap();
    let (listen, heard) = listener();
    let handler = |_: &Day, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let handle = Day::poller(database.pool(5), handler).workers(2).on_event(listen).start().unwrap();
    connection
        .batch_execute(
            "ALTER TYPE mood RENAME VALUE 'calm' TO 'quiet';
             INSERT INTO days (id, mood, next_attempt_time) VALUES (1, 'quiet', now()), (2, 'quiet', now()), (3, 'quiet', now())",
        )
        .unwrap();
    let Event::QueueStalled { error, .. } = await_event(&heard, |event| matches!(event, Event::QueueStalled { .. }))
    else {
        unreachable!("only this was awaited")
    };
    let says = "column `mood` had the type mood calm when the poller started, and has mood quiet now";
    assert!(error.contains(says), "{error}");
    let written = |connection: &mut Conn| Day::queue().counts_by_status(connection).unwrap().of(Status::NotAttempted);
    assert_eq!(written(&mut connection), 3);
    // Between two claims: one that has read the value still looks for the cause.
    connection.batch_execute("BEGIN; LOCK TABLE days; ALTER TYPE mood RENAME VALUE 'quiet' TO 'calm'; COMMIT").unwrap();
    for _ in 0..3 {
        await_event(&heard, |event| matches!(event, Event::Succeeded(_)));
    }
    assert_eq!(handle.health().entities[0].stalled, None);
    handle.shutdown(std::time::Duration::from_secs(30));
}
