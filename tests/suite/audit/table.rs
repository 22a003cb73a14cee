//! The table of the audit: how it comes and goes, and what is refused without it.

use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::{FileBasedMigrations, MigrationHarness};
use queueable::control::Audit;
use queueable::{Error, Migrations, Pause, Queueable};

use super::{BY, REASON, bank, rows};
use crate::db::{BIGINT, Conn, Database, NAME, TEXT, TIME};
use crate::suite::bank::{Bank, Payment, payments};

/// Checks that calls with an author are refused, and that they change nothing.
fn expect_refusals(bank: &Bank, why: &str) {
    let ids = bank.enqueue([1]);
    let connection = &mut bank.connect();
    let queue = Payment::queue().all_rows().by(BY, REASON);
    let in_a_transaction = connection.transaction(|connection| Ok::<_, diesel::result::Error>(queue.skip(connection)));
    for refused in [
        queue.skip(connection),
        queue.delete(connection),
        queue.purge(connection, Duration::ZERO),
        queue.clone().enqueue_existing().run(connection, |_| {}),
        in_a_transaction.unwrap(),
    ] {
        let Err(Error::Control(text)) = refused else { panic!("{refused:?}") };
        assert!(text.contains(why), "{text}");
        assert!(text.contains("`Migrations::new().audit()`"), "{text}");
        assert!(!text.contains("poller"), "{text}");
    }
    let state = bank.state(ids[0]);
    assert!(state.next_attempt_time.is_some());
    let unread = queueable::control::audit(connection, &Audit::new());
    assert!(matches!(&unread, Err(Error::Control(text)) if text.contains("Migrations::new().audit()")), "{unread:?}");
    // Nobody else notices.
    connection.run_pending_migrations(Migrations::new().control()).unwrap();
    Payment::pause(connection, Pause::new("bank down", BY)).unwrap();
    assert!(Payment::unpause_by(connection, BY, "bank up").unwrap());
    assert_eq!(Payment::queue().all_rows().skip(connection).unwrap(), 1);
}

#[test]
fn without_the_table_a_call_with_an_author_is_refused_before_it_changes_anything() {
    expect_refusals(&Bank::new(), "there is no table queueable_audit");
}

#[test]
fn a_table_of_an_older_version_is_as_good_as_none() {
    let bank = bank();
    bank.connect().batch_execute("ALTER TABLE queueable_audit DROP COLUMN filter").unwrap();
    expect_refusals(&bank, "the table queueable_audit lacks the columns filter");
}

/// Makes a table that refuses rows whose number is not below this one.
fn with_numbers_below(bank: &Bank, number: usize) {
    bank.connect()
        .batch_execute(&format!(
            "DROP TABLE queueable_audit;
             CREATE TABLE queueable_audit (changed_at {TIME} NOT NULL, id {BIGINT} NOT NULL, changed_by {TEXT} NOT NULL,
                 reason {TEXT} NOT NULL, queue {TEXT} NOT NULL, action {TEXT} NOT NULL, filter {TEXT} NOT NULL,
                 row_count {BIGINT} NOT NULL, of_others {TEXT}, CHECK (row_count < {number}))"
        ))
        .unwrap();
}

#[test]
fn a_row_that_cannot_be_written_any_more_undoes_the_change() {
    let bank = bank();
    with_numbers_below(&bank, 1);
    let ids = bank.enqueue([1]);
    let connection = &mut bank.connect();
    let refused = Payment::queue().all_rows().by(BY, REASON).skip(connection);
    assert!(matches!(refused, Err(Error::Database(_))), "{refused:?}");
    assert!(bank.state(ids[0]).next_attempt_time.is_some());
    assert_eq!(rows(connection), []);
}

#[test]
fn a_batch_whose_number_cannot_be_written_is_undone_and_those_before_it_stay() {
    let bank = bank();
    with_numbers_below(&bank, 25);
    bank.enqueue(0..45);
    let connection = &mut bank.connect();
    connection.batch_execute("UPDATE payments SET next_attempt_time = NULL").unwrap();
    let back_fill = Payment::queue().all_rows().by(BY, REASON).enqueue_existing().batch(10);
    let stopped = back_fill.run(connection, |_| {});
    let Err(Error::Interrupted { rows: 20, source }) = stopped else { panic!("{stopped:?}") };
    assert!(matches!(*source, Error::Database(_)), "{source:?}");
    assert_eq!(Payment::queue().pending().count(connection).unwrap(), 20);
    assert_eq!(rows(connection).iter().map(|row| row.rows).collect::<Vec<_>>(), [20]);
}

#[test]
fn no_author_waits_for_another() {
    let bank = bank();
    let ids = bank.enqueue([1, 2]);
    let (holder, other) = (&mut bank.connect(), &mut bank.connect());
    let skip = |connection: &mut Conn, id: i64| {
        let queue = Payment::queue().filter(payments::id.eq(id)).by(BY, REASON);
        queue.wait(Duration::from_secs(1)).skip(connection)
    };
    let done = holder.transaction(|holder| {
        assert_eq!(skip(holder, ids[0]).unwrap(), 1);
        Ok::<_, diesel::result::Error>(skip(other, ids[1]))
    });
    match done.unwrap() {
        // It has one writer at a time.
        Err(Error::Held(_)) if NAME == "sqlite" => {}
        done => assert_eq!(done.unwrap(), 1),
    }
}

#[test]
fn the_migration_adds_the_table_once_and_takes_it_away() {
    let database = Database::new();
    let mut connection = database.connect();
    let source = || Migrations::<<Conn as diesel::Connection>::Backend>::new().audit();
    connection.run_pending_migrations(source()).unwrap();
    assert!(!connection.has_pending_migration(source()).unwrap());
    // The table may be there although the migration is not known, as after an interruption.
    connection.batch_execute("DELETE FROM __diesel_schema_migrations").unwrap();
    connection.run_pending_migrations(source()).unwrap();
    assert_eq!(rows(&mut connection), []);
    connection.revert_last_migration(source()).unwrap();
    assert!(matches!(queueable::control::audit(&mut connection, &Audit::new()), Err(Error::Control(_))));
    connection.batch_execute("CREATE TABLE queueable_audit (queue VARCHAR(20), reason VARCHAR(20))").unwrap();
    let refused = connection.run_pending_migrations(source()).unwrap_err().to_string();
    assert!(refused.contains("there is a table queueable_audit that is not the queue's"), "{refused}");
    assert!(refused.contains("no column changed_at, id, changed_by"), "{refused}");
}

#[test]
fn the_table_can_be_added_by_files() {
    let directory = tempfile::tempdir().unwrap();
    let source = || Migrations::<<Conn as diesel::Connection>::Backend>::new().audit();
    let written = source().write_to(directory.path()).unwrap();
    assert_eq!(written.len(), 1);
    assert!(written[0].to_string_lossy().ends_with("_queue_audit_of_queueable_audit"), "{written:?}");
    assert!(source().write_to(directory.path()).unwrap().is_empty());
    let database = Database::new();
    let mut connection = database.connect();
    let files = || FileBasedMigrations::from_path(directory.path()).unwrap();
    connection.run_pending_migrations(files()).unwrap();
    assert_eq!(rows(&mut connection), []);
    connection.revert_last_migration(files()).unwrap();
    assert!(matches!(queueable::control::audit(&mut connection, &Audit::new()), Err(Error::Control(_))));
}
