//! Migrations add a queue to a table that is in use, and remove it again.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::migration::Migration;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel_migrations::{FileBasedMigrations, MigrationHarness};
use queueable::{Migrations, Queueable, Status};

use crate::db::{AUTO_KEY, BIGINT, Conn, Database, SHAPE, TEXT};
use crate::suite::bank::{Bank, Payment, book, payment_queue, payments};
use crate::suite::stages::InvoiceStage;

type Backend = <Conn as diesel::Connection>::Backend;

fn queue() -> Migrations<Backend> {
    Migrations::new().entity::<Payment>()
}

/// Returns the columns and indexes of the payments from the catalogue.
fn shape(connection: &mut Conn) -> Vec<String> {
    sql::<Text>(&SHAPE.replace("$table", "payments")).load(connection).unwrap()
}

fn domain_rows(connection: &mut Conn) -> Vec<Payment> {
    payments::table.order(payments::id).select(Payment::as_select()).load(connection).unwrap()
}

/// The application's tables, with payments from before the queue.
fn with_history() -> Bank {
    let bank = Bank::before_the_queue();
    bank.connect()
        .batch_execute("INSERT INTO payments (company_id, amount_cents) VALUES (1, 10), (1, 20), (2, 30)")
        .unwrap();
    bank
}

#[test]
fn existing_rows_are_not_queued_and_new_ones_work() {
    let bank = with_history();
    bank.connect().run_pending_migrations(queue()).unwrap();
    assert_eq!(Payment::queue().pending().count(&mut bank.connect()).unwrap(), 0);
    assert_eq!(bank.run(book).succeeded, 0);
    let state = bank.state(1);
    assert_eq!((state.status, state.try_count, state.next_attempt_time), (Status::NotAttempted, 0, None));
    let ids = bank.enqueue([40]);
    assert_eq!(bank.run(book).succeeded, 1);
    assert_eq!(bank.booked(), ids);
}

#[test]
fn reverting_leaves_the_table_and_its_rows_as_they_were() {
    let bank = with_history();
    let mut connection = bank.connect();
    let (before, rows) = (shape(&mut connection), domain_rows(&mut connection));
    connection.run_pending_migrations(queue()).unwrap();
    assert_ne!(shape(&mut connection), before);
    bank.enqueue([40]);
    assert_eq!(bank.run(book).succeeded, 1);
    diesel::delete(payments::table.filter(payment_queue::status.eq(Status::Success))).execute(&mut connection).unwrap();
    connection.revert_last_migration(queue()).unwrap();
    assert_eq!(shape(&mut connection), before);
    assert_eq!(domain_rows(&mut connection), rows);
    assert!(connection.has_pending_migration(queue()).unwrap());
    connection.run_pending_migrations(queue()).unwrap();
    bank.enqueue([40]);
    assert_eq!(bank.run(book).succeeded, 1);
}

#[test]
fn a_second_run_changes_nothing() {
    let bank = with_history();
    let mut connection = bank.connect();
    assert_eq!(connection.run_pending_migrations(queue()).unwrap().len(), 1);
    bank.enqueue([40]);
    let (once, state) = (shape(&mut connection), bank.state(4));
    assert!(!connection.has_pending_migration(queue()).unwrap());
    assert_eq!(connection.run_pending_migrations(queue()).unwrap().len(), 0);
    // Not even if Diesel's record of the first run is lost.
    connection.batch_execute("DELETE FROM __diesel_schema_migrations").unwrap();
    assert_eq!(connection.run_pending_migrations(queue()).unwrap().len(), 1);
    assert_eq!(shape(&mut connection), once);
    assert_eq!(bank.state(4), state);
}

#[test]
fn a_pooled_connection_migrates_too() {
    let bank = with_history();
    let pool = bank.pool(1);
    pool.get().unwrap().run_pending_migrations(queue()).unwrap();
    bank.enqueue([1]);
    assert_eq!(bank.run(book).succeeded, 1);
    pool.get().unwrap().revert_last_migration(queue()).unwrap();
}

#[test]
fn a_run_that_was_cut_short_is_completed() {
    let complete = {
        let bank = Bank::new();
        shape(&mut bank.connect())
    };
    let index = "queueable_payments_3d307857d9304fe5";
    for (present, with_index) in [
        (&["status"][..], None),
        (&["status", "next_attempt_time", "try_count"][..], None),
        (&["status", "next_attempt_time", "try_count", "last_attempt_time", "last_attempt_error_message"][..], None),
        (&["next_attempt_time"][..], Some("next_attempt_time")),
        (&["next_attempt_time"][..], Some("company_id")),
    ] {
        let bank = Bank::new();
        let mut connection = bank.connect();
        connection.revert_last_migration(queue()).unwrap();
        for (column, definition) in definitions() {
            if present.contains(&column) {
                connection.batch_execute(&format!("ALTER TABLE payments ADD COLUMN {column} {definition}")).unwrap();
            }
        }
        if let Some(column) = with_index {
            let partial = complete
                .iter()
                .find(|line| line.contains(" WHERE "))
                .map_or("", |_| "WHERE next_attempt_time IS NOT NULL");
            connection.batch_execute(&format!("CREATE INDEX {index} ON payments ({column}) {partial}")).unwrap();
        }
        connection.run_pending_migrations(queue()).unwrap();
        assert_eq!(shape(&mut connection).len(), complete.len(), "{present:?}");
        bank.enqueue([1]);
        assert_eq!(bank.run(book).succeeded, 1, "{present:?}");
    }
}

fn definitions() -> [(&'static str, String); 5] {
    use crate::db::{LONG_TEXT, TIME};
    [
        ("status", format!("{TEXT} NOT NULL DEFAULT 'NOT_ATTEMPTED'")),
        ("next_attempt_time", TIME.to_owned()),
        ("try_count", "INTEGER NOT NULL DEFAULT 0".to_owned()),
        ("last_attempt_time", TIME.to_owned()),
        ("last_attempt_error_message", LONG_TEXT.to_owned()),
    ]
}

#[test]
fn a_column_of_the_applications_own_is_neither_used_nor_dropped() {
    for own in [format!("status {TEXT} NOT NULL DEFAULT 'active'"), "try_count CHAR(10)".to_owned()] {
        let bank = with_history();
        let mut connection = bank.connect();
        connection.batch_execute(&format!("ALTER TABLE payments ADD COLUMN {own}")).unwrap();
        let before = shape(&mut connection);
        let error = connection.run_pending_migrations(queue()).unwrap_err().to_string();
        assert!(error.contains("that is not the queue's: give the queue names of its own"), "{error}");
        assert!(connection.has_pending_migration(queue()).unwrap());
        assert_eq!(shape(&mut connection), before);
        // With a prefix the queue fits beside the other columns.
        connection.run_pending_migrations(Migrations::new().entity::<Mailed>()).unwrap();
        connection.revert_last_migration(Migrations::new().entity::<Mailed>()).unwrap();
        assert_eq!(shape(&mut connection), before);
    }
}

/// A queue with columns whose names are ordinary words, and the same without them.
#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = worded_queue, stage = InvoiceStage, priority, timestamps(begin))]
struct Worded {
    #[allow(dead_code)]
    id: i64,
}

#[test]
fn a_column_of_the_applications_own_is_not_taken_for_one_that_an_option_asks_for() {
    let worded = || Migrations::new().entity::<Worded>();
    let zero = "priority INTEGER NOT NULL DEFAULT 0".to_owned();
    let stage = format!("stage {TEXT} NOT NULL DEFAULT 'RENDER'");
    let begin = format!("begin_time {}", crate::db::TIME);
    for own in [zero, stage, begin] {
        let bank = with_history();
        let mut connection = bank.connect();
        connection.batch_execute(&format!("ALTER TABLE payments ADD COLUMN {own}")).unwrap();
        let before = shape(&mut connection);
        let error = connection.run_pending_migrations(worded()).unwrap_err().to_string();
        assert!(error.contains("that is not the queue's: give the queue names of its own"), "{error}");
        assert_eq!(shape(&mut connection), before);
    }
    // Beside a queue, a column with another default belongs to the application too.
    let three = "priority INTEGER NOT NULL DEFAULT 3".to_owned();
    let draft = format!("stage {TEXT} NOT NULL DEFAULT 'draft'");
    for own in [three, draft] {
        let bank = with_history();
        let mut connection = bank.connect();
        connection.run_pending_migrations(queue()).unwrap();
        connection.batch_execute(&format!("ALTER TABLE payments ADD COLUMN {own}")).unwrap();
        let before = shape(&mut connection);
        let error = connection.run_pending_migrations(worded()).unwrap_err().to_string();
        assert!(error.contains("that is not the queue's: give the queue names of its own"), "{error}");
        assert_eq!(shape(&mut connection), before);
    }
    // A column that an earlier run has added belongs to the queue.
    let bank = with_history();
    let mut connection = bank.connect();
    connection.run_pending_migrations(queue()).unwrap();
    connection.run_pending_migrations(worded()).unwrap();
    let complete = shape(&mut connection);
    connection.batch_execute("DELETE FROM __diesel_schema_migrations").unwrap();
    connection.run_pending_migrations(worded()).unwrap();
    assert_eq!(shape(&mut connection), complete);
}

/// A second queue on the payments.
#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(prefix = "mail_")]
struct Mailed {
    #[allow(dead_code)]
    id: i64,
}

#[test]
fn two_queues_of_one_table_are_migrated_and_reverted_apart() {
    let bank = with_history();
    let mut connection = bank.connect();
    let both = || queue().entity::<Mailed>();
    let before = shape(&mut connection);
    assert_eq!(connection.run_pending_migrations(queue()).unwrap().len(), 1);
    let with_one = shape(&mut connection);
    // As if an attribute had changed: a further migration is pending.
    assert_eq!(connection.run_pending_migrations(both()).unwrap().len(), 1);
    assert_eq!(shape(&mut connection).len(), with_one.len() + 6);
    connection.revert_all_migrations(both()).unwrap();
    assert_eq!(shape(&mut connection), before);
}

/// Writes a migration of the application's own.
fn write_migration(directory: &Path, name: &str, up: &str, down: &str) {
    let folder = directory.join(name);
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("up.sql"), up).unwrap();
    fs::write(folder.join("down.sql"), down).unwrap();
}

fn files(directory: &Path) -> FileBasedMigrations {
    FileBasedMigrations::from_path(directory).unwrap()
}

fn create_payments() -> String {
    format!(
        "CREATE TABLE payments (id {AUTO_KEY} NOT NULL, company_id {BIGINT} NOT NULL, amount_cents {BIGINT} NOT NULL);"
    )
}

#[test]
fn the_applications_own_migrations_go_around_it_in_one_source() {
    let directory = tempfile::tempdir().unwrap();
    write_migration(directory.path(), "2026-01-01-000000_payments", &create_payments(), "DROP TABLE payments;");
    let source = || queue().and(files(directory.path()));
    let database = Database::new();
    let mut connection = database.connect();
    let versions = connection.run_pending_migrations(source()).unwrap();
    let versions: Vec<_> = versions.into_iter().map(|version| version.to_string()).collect();
    assert_eq!(versions[0], "20260101000000");
    assert!(versions[1].starts_with("queueable_payments_"), "{versions:?}");

    write_migration(
        directory.path(),
        "2026-02-01-000000_notes",
        &format!("CREATE TABLE notes (id {AUTO_KEY});"),
        "DROP TABLE notes;",
    );
    assert!(connection.has_pending_migration(source()).unwrap());
    assert_eq!(connection.run_pending_migrations(source()).unwrap().len(), 1);
    assert_eq!(connection.pending_migrations(source()).unwrap().len(), 0);
    assert_eq!(connection.revert_all_migrations(source()).unwrap().len(), 3);
    assert_eq!(shape(&mut connection), [""; 0]);
}

#[test]
fn the_applications_own_migrations_may_be_run_separately() {
    let directory = tempfile::tempdir().unwrap();
    write_migration(directory.path(), "2026-01-01-000000_payments", &create_payments(), "DROP TABLE payments;");
    let database = Database::new();
    let mut connection = database.connect();
    assert!(connection.run_pending_migrations(queue()).is_err(), "there is no table yet");
    connection.run_pending_migrations(files(directory.path())).unwrap();
    let before = shape(&mut connection);
    connection.run_pending_migrations(queue()).unwrap();
    assert!(!connection.has_pending_migration(files(directory.path())).unwrap());
    connection.revert_last_migration(queue()).unwrap();
    assert_eq!(shape(&mut connection), before);
    connection.revert_last_migration(files(directory.path())).unwrap();
}

#[test]
fn written_folders_do_the_same_and_are_written_once() {
    let directory = tempfile::tempdir().unwrap();
    let written = queue().write_to(directory.path()).unwrap();
    assert_eq!(written.len(), 2);
    assert!(written.iter().all(|folder| folder.join("up.sql").exists() && folder.join("down.sql").exists()));
    assert_eq!(queue().write_to(directory.path()).unwrap().len(), 0);
    assert_eq!(queue().entity::<Mailed>().write_to(directory.path()).unwrap().len(), 2);
    // Migrations of the same second also have versions of their own.
    let folders =
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let versions: BTreeSet<_> = folders.map(|folder| folder.split('_').next().unwrap().to_owned()).collect();
    assert_eq!(versions.len(), 4, "{versions:?}");

    let bank = with_history();
    let mut connection = bank.connect();
    let before = shape(&mut connection);
    connection.run_pending_migrations(files(directory.path())).unwrap();
    bank.enqueue([1]);
    assert_eq!(bank.run(book).succeeded, 1);
    connection.revert_all_migrations(files(directory.path())).unwrap();
    assert_eq!(shape(&mut connection), before);
}

#[test]
fn written_folders_and_a_direct_run_make_the_same_table() {
    let direct = shape(&mut Bank::new().connect());
    let directory = tempfile::tempdir().unwrap();
    queue().write_to(directory.path()).unwrap();
    let bank = Bank::before_the_queue();
    bank.connect().run_pending_migrations(files(directory.path())).unwrap();
    assert_eq!(shape(&mut bank.connect()), direct);
    // So the direct run finds nothing to do.
    bank.connect().run_pending_migrations(queue()).unwrap();
    assert_eq!(shape(&mut bank.connect()), direct);
}

diesel::table! {
    #[sql_name = "a table with a name that is longer than 63 bytes, \u{e4}"]
    long_names (id) { id -> BigInt, }
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = long_names)]
struct LongName {
    #[allow(dead_code)]
    id: i64,
}

#[test]
fn a_version_fits_into_diesels_own_table() {
    use diesel::migration::MigrationSource;
    let source = Migrations::<Backend>::new().entity::<LongName>().entity::<Mailed>();
    let migrations: Vec<Box<dyn Migration<Backend>>> = source.migrations().unwrap();
    let versions: Vec<_> = migrations.iter().map(|migration| migration.name().version().to_string()).collect();
    assert!(versions.iter().all(|version| version.chars().count() <= 50), "{versions:?}");
    assert_ne!(versions[0], versions[1]);
}
