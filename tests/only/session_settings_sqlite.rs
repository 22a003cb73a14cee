//! What a handler sets on its connection: which statements make the worker look, and what it does about those that no
//! statement takes back.

use diesel::connection::{InstrumentationEvent, SimpleConnection};
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::r2d2::{self, ConnectionManager, CustomizeConnection, Pool};
use diesel::sql_types::{BigInt, Text};
use queueable::{HandlerResult, Message, Outcome, Queueable, Tally};

use crate::db::{self, Conn};
use crate::suite::bank::{Bank, Payment};

/// Takes the settings as they are, and then sets more.
fn set(connection: &mut Conn, statement: &str) -> HandlerResult {
    let found: String = diesel::select(sql::<Text>(&db::settings())).get_result(connection)?;
    connection.batch_execute(&format!("INSERT INTO found VALUES ('{found}')"))?;
    connection.batch_execute(statement)?;
    Ok(Outcome::Done)
}

fn bank() -> Bank {
    let bank = Bank::new();
    bank.connect().batch_execute("CREATE TABLE found (settings TEXT)").unwrap();
    bank.enqueue([1; 6]);
    bank
}

/// Checks that each of the six handlers has found the same.
fn has_found_nothing(bank: &Bank, tally: Tally) {
    assert_eq!((tally.succeeded, tally.retried, tally.failed), (6, 0, 0), "{:?}", bank.state(1));
    let found = sql::<BigInt>("SELECT count(DISTINCT settings) FROM found").get_result::<i64>(&mut bank.connect());
    assert_eq!(found, Ok(1));
    let handled = sql::<BigInt>("SELECT count(*) FROM found").get_result::<i64>(&mut bank.connect());
    assert_eq!(handled, Ok(6));
}

#[test]
fn what_no_statement_takes_back_ends_with_the_connection() {
    for statement in ["ATTACH ':memory:' AS another", "CREATE TEMP TABLE notes (id)"] {
        let bank = bank();
        let handler = move |_: &Payment, message: &mut Message<'_, Conn>| set(message.connection(), statement);
        has_found_nothing(&bank, bank.run(handler));
    }
}

/// Gives each connection an instrumentation of the application's own.
#[derive(Debug)]
struct Instrumented;

impl CustomizeConnection<Conn, r2d2::Error> for Instrumented {
    fn on_acquire(&self, connection: &mut Conn) -> Result<(), r2d2::Error> {
        connection.set_instrumentation(|_: InstrumentationEvent<'_>| {});
        connection.batch_execute("PRAGMA busy_timeout = 5000").map_err(r2d2::Error::QueryError)
    }
}

#[test]
fn a_connection_with_an_instrumentation_of_the_applications_own_is_compared_after_each_handler() {
    let bank = bank();
    let pool = Pool::builder()
        .max_size(4)
        .connection_customizer(Box::new(Instrumented))
        .build(ConnectionManager::new(bank.database.url()))
        .unwrap();
    let handler =
        |_: &Payment, message: &mut Message<'_, Conn>| set(message.connection(), "PRAGMA recursive_triggers = 1");
    has_found_nothing(&bank, Payment::poller(pool, handler).workers(1).run_until_idle().unwrap());
}

#[test]
fn a_handler_that_sets_an_instrumentation_makes_the_worker_compare() {
    let bank = bank();
    let tally = bank.run(|_: &Payment, message: &mut Message<'_, Conn>| {
        message.connection().set_instrumentation(|_: InstrumentationEvent<'_>| {});
        set(message.connection(), "PRAGMA recursive_triggers = 1")
    });
    has_found_nothing(&bank, tally);
}
