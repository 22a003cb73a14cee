//! Whose database this is: a poller of another environment refuses to run.

use diesel::Connection;
use diesel::connection::SimpleConnection;
use queueable::{Error, Message, Outcome, Poller, PollerHandle};

use super::{BY, PATIENCE, bank};
use crate::db::Conn;
use crate::suite::bank::{Bank, Payment};
use crate::suite::warnings::{await_warning, keep_warnings};

fn poller(bank: &Bank, environment: &str) -> Poller<Conn> {
    bank.poller(|_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done)).environment(environment)
}

fn refusal<T: std::fmt::Debug>(started: Result<T, Error>) -> String {
    match started {
        Err(Error::Unsafe(findings)) => findings.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_poller_names_the_environment_and_those_of_others_are_refused_until_it_is_adopted() {
    let bank = bank();
    bank.enqueue([1]);
    let mut connection = bank.connect();
    assert_eq!(queueable::control::environment(&mut connection).unwrap(), None);
    assert_eq!(poller(&bank, "production").run_until_idle().unwrap().succeeded, 1);
    assert_eq!(queueable::control::environment(&mut connection).unwrap().as_deref(), Some("production"));
    bank.enqueue([2]);
    let refused = refusal(poller(&bank, "staging").run_until_idle());
    assert!(
        refused.contains("belongs to the environment `production`, and the poller is one of `staging`"),
        "{refused}"
    );
    assert!(refused.contains("adopt_environment(.., \"staging\", ..)"), "{refused}");
    assert_eq!(
        queueable::control::adopt_environment(&mut connection, "staging", BY, "a copy").unwrap().as_deref(),
        Some("production")
    );
    assert!(refusal(poller(&bank, "production").start()).contains("belongs to the environment `staging`"));
    assert_eq!(poller(&bank, "staging").run_until_idle().unwrap().succeeded, 1);
}

#[test]
fn a_poller_that_names_no_environment_asks_for_none() {
    let bank = bank();
    bank.enqueue([1]);
    queueable::control::adopt_environment(&mut bank.connect(), "production", BY, "a copy").unwrap();
    assert_eq!(bank.run(|_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done)).succeeded, 1);
}

#[test]
fn a_running_poller_stops_when_its_database_is_given_to_another_environment() {
    keep_warnings();
    let bank = bank();
    let name = "the one that is given away";
    let handle: PollerHandle = poller(&bank, name).control().start().unwrap();
    queueable::control::adopt_environment(&mut bank.connect(), "given <b>away</b>\u{202e}", BY, "a copy").unwrap();
    await_warning(&["ERROR", "the database belongs to the environment `given <b>away</b>", "now: the poller stops"]);
    let ids = bank.enqueue([1]);
    handle.shutdown(PATIENCE);
    assert_eq!(bank.state(ids[0]).try_count, 0);
}

#[test]
fn two_pollers_that_start_at_once_agree_on_the_environment() {
    let bank = bank();
    let started: Vec<_> = std::thread::scope(|scope| {
        let start = |name| {
            scope.spawn({
                let bank = &bank;
                move || poller(bank, name).start()
            })
        };
        let threads: Vec<_> = ["one", "other", "one", "other"].into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let name = queueable::control::environment(&mut bank.connect()).unwrap().unwrap();
    for (of, started) in ["one", "other", "one", "other"].into_iter().zip(started) {
        assert_eq!(started.is_ok(), of == name, "{name} {of}: {started:?}");
    }
}

#[test]
fn a_name_that_is_none_is_refused_and_so_is_a_database_without_the_table() {
    let bank = bank();
    let mut connection = bank.connect();
    for name in ["", "  ", "two\nlines", &"x".repeat(256)] {
        let adopted = queueable::control::adopt_environment(&mut connection, name, BY, "a copy");
        assert!(matches!(adopted, Err(Error::Setting { setting: "the environment", .. })), "{adopted:?}");
        let started = poller(&bank, name).start();
        assert!(matches!(started, Err(Error::Setting { setting: "environment", .. })), "{started:?}");
    }
    assert_eq!(queueable::control::environment(&mut connection).unwrap(), None);
    connection.batch_execute("DROP TABLE queueable_control").unwrap();
    let refused = refusal(poller(&bank, "production").start());
    assert!(refused.contains("no table queueable_control"), "{refused}");
    assert!(refused.contains("`environment` needs it"), "{refused}");
    let adopted = queueable::control::adopt_environment(&mut connection, "production", BY, "a copy");
    assert!(matches!(adopted, Err(Error::Control(_))), "{adopted:?}");
}

#[test]
fn a_table_of_an_older_version_is_refused_with_what_it_lacks() {
    let bank = bank();
    let mut connection = bank.connect();
    connection.batch_execute("DROP TABLE queueable_control").unwrap();
    connection
        .batch_execute(
            "CREATE TABLE queueable_control (queue VARCHAR(100) NOT NULL, scope VARCHAR(100) NOT NULL, paused_at VARCHAR(30), \
             paused_until VARCHAR(30), paused_by VARCHAR(30), pause_reason VARCHAR(30), PRIMARY KEY (queue, scope))",
        )
        .unwrap();
    let refused = refusal(poller(&bank, "production").start());
    assert!(refused.contains("lacks the columns paused_value, workers, at_most"), "{refused}");
    assert!(refused.contains("another release made it"), "{refused}");
    let Err(Error::Control(text)) = queueable::pauses(&mut connection) else { panic!("it is refused") };
    assert!(text.contains("lacks the columns paused_value"), "{text}");
}

#[test]
fn the_name_stays_although_the_connection_is_the_pollers_own() {
    let bank = bank();
    let url = bank.database.url().to_owned();
    let connect = move || Conn::establish(&url);
    let handler = |_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let poller = Poller::with_own_connections(connect).workers(1).serve::<Payment>(handler).environment("production");
    poller.run_until_idle().unwrap();
    assert_eq!(queueable::control::environment(&mut bank.connect()).unwrap().as_deref(), Some("production"));
}

#[test]
fn a_row_without_a_name_gets_one() {
    let bank = bank();
    bank.connect().batch_execute("INSERT INTO queueable_control (queue, scope) VALUES ('queueable', '')").unwrap();
    poller(&bank, "production").run_until_idle().unwrap();
    assert_eq!(queueable::control::environment(&mut bank.connect()).unwrap().as_deref(), Some("production"));
    assert!(refusal(poller(&bank, "staging").start()).contains("belongs to the environment `production`"));
}
