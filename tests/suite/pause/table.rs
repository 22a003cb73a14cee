//! The control table: how it comes and goes, and who needs it.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::{FileBasedMigrations, MigrationHarness};
use queueable::{Error, Message, Migrations, Outcome, Pause, PollerHandle, Queueable};

use super::{BY, Mode, Note, await_company, await_successes, bank, pause, serve, with_companies};
use crate::db::{Conn, Database};
use crate::suite::bank::{Bank, Payment};
use crate::suite::warnings::{await_warning, keep_warnings};

#[test]
fn what_is_paused_stays_paused_when_the_table_is_gone() {
    keep_warnings();
    let bank = bank();
    let note = Note::default();
    let (poller, handled) = with_companies(serve(&bank, Mode::Transaction, note.clone()));
    let handle = poller.start().unwrap();
    pause(&bank, "before the table goes");
    await_warning(&["INFO", "paused", "before the table goes"]);
    bank.connect().batch_execute("ALTER TABLE queueable_control RENAME TO taken_away").unwrap();
    await_warning(&["WARN", "the control table cannot be read, paused queues stay paused"]);
    bank.enqueue([1]);
    await_company(&bank, &handled);
    assert_eq!(note.begun(), Vec::<i64>::new());
    let mut connection = bank.connect();
    connection.batch_execute("ALTER TABLE taken_away RENAME TO queueable_control").unwrap();
    Payment::unpause(&mut connection).unwrap();
    await_successes(&bank, 1);
    await_warning(&["INFO", "no longer paused", "before the table goes"]);
    await_warning(&["INFO", "the control table can be read again"]);
    drop(handle);
}

fn refusal(started: Result<PollerHandle, Error>) -> String {
    match started {
        Err(Error::Unsafe(findings)) => findings.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_the_table_a_poller_that_asks_for_it_is_refused_and_others_know_nothing_of_it() {
    let bank = Bank::new();
    bank.enqueue([1]);
    let poller =
        || Payment::poller(bank.pool(1), |_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done)).workers(1);
    let refused = refusal(poller().control().start());
    assert!(refused.contains("there is no table queueable_control"), "{refused}");
    assert!(refused.contains("`Migrations::new().control()`"), "{refused}");
    let mut connection = bank.connect();
    for error in [
        Payment::pause(&mut connection, Pause::new("bank down", BY)).unwrap_err(),
        Payment::unpause(&mut connection).unwrap_err(),
        queueable::pauses(&mut connection).unwrap_err(),
    ] {
        assert!(matches!(&error, Error::Control(text) if text.contains("Migrations::new().control()")), "{error:?}");
    }
    assert_eq!(Payment::queue().backlog(&mut connection).unwrap().paused, []);
    assert_eq!(poller().run_until_idle().unwrap().succeeded, 1);
}

#[test]
fn a_poller_without_control_heeds_no_pause() {
    let bank = bank();
    bank.enqueue([1]);
    pause(&bank, "not heeded");
    let tally = bank.run(|_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done));
    assert_eq!(tally.succeeded, 1);
}

#[test]
fn a_pause_belongs_to_the_callers_transaction() {
    let bank = bank();
    let mut connection = bank.connect();
    let rolled_back = connection.transaction(|connection| {
        Payment::pause(connection, Pause::new("never mind", BY)).unwrap();
        Err::<(), _>(diesel::result::Error::RollbackTransaction)
    });
    assert!(rolled_back.is_err());
    assert_eq!(queueable::pauses(&mut connection).unwrap(), []);
}

#[test]
fn the_migration_adds_the_table_once_and_takes_it_away() {
    let database = Database::new();
    let mut connection = database.connect();
    let source = || Migrations::<<Conn as diesel::Connection>::Backend>::new().control();
    connection.run_pending_migrations(source()).unwrap();
    assert!(!connection.has_pending_migration(source()).unwrap());
    // The table may be there although the migration is not known, as after an interruption.
    connection.batch_execute("DELETE FROM __diesel_schema_migrations").unwrap();
    connection.run_pending_migrations(source()).unwrap();
    assert_eq!(queueable::pauses(&mut connection).unwrap(), []);
    connection.revert_last_migration(source()).unwrap();
    assert!(matches!(queueable::pauses(&mut connection), Err(Error::Control(_))));
    connection.batch_execute("CREATE TABLE queueable_control (queue VARCHAR(20), scope VARCHAR(20))").unwrap();
    let refused = connection.run_pending_migrations(source()).unwrap_err().to_string();
    assert!(refused.contains("there is a table queueable_control that is not the queue's"), "{refused}");
    assert!(refused.contains("no column paused_at, paused_until"), "{refused}");
}

#[test]
fn the_table_can_be_added_by_files() {
    let directory = tempfile::tempdir().unwrap();
    let source = || Migrations::<<Conn as diesel::Connection>::Backend>::new().control();
    let written = source().write_to(directory.path()).unwrap();
    assert_eq!(written.len(), 1);
    assert!(written[0].to_string_lossy().ends_with("_queue_control_of_queueable_control"), "{written:?}");
    assert!(source().write_to(directory.path()).unwrap().is_empty());
    let database = Database::new();
    let mut connection = database.connect();
    let files = || FileBasedMigrations::from_path(directory.path()).unwrap();
    connection.run_pending_migrations(files()).unwrap();
    assert_eq!(queueable::pauses(&mut connection).unwrap(), []);
    connection.revert_last_migration(files()).unwrap();
    assert!(matches!(queueable::pauses(&mut connection), Err(Error::Control(_))));
}
