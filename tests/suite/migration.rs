//! Migrations add a queue to a table that is in use, and remove it again.

use std::fs;
use std::path::Path;

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::migration::Migration;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel_migrations::{FileBasedMigrations, MigrationHarness};
use queueable::{Migrations, Queueable, Status};

use crate::db::{self, AUTO_KEY, BIGINT, Conn, Database, LONG_TEXT, SHAPE, TEXT, TIME};
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
    let index = "queueable_payments_3d307857d9304fe5";
    let all = ["status", "next_attempt_time", "try_count", "last_attempt_time", "last_attempt_error_message"];
    for (present, index_on) in [
        (&all[..1], None),
        (&all[..3], None),
        (&all[..], None),
        (&all[1..2], Some("next_attempt_time")),
        (&all[1..2], Some("company_id")),
    ] {
        let bank = Bank::new();
        let mut connection = bank.connect();
        let complete = shape(&mut connection);
        let on = if db::NAME == "mysql" { " ON payments" } else { "" };
        connection.batch_execute(&format!("DROP INDEX {index}{on}")).unwrap();
        for column in all.iter().filter(|column| !present.contains(column)) {
            connection.batch_execute(&format!("ALTER TABLE payments DROP COLUMN {column}")).unwrap();
        }
        if let Some(column) = index_on {
            let partial = complete
                .iter()
                .find(|line| line.contains(" WHERE "))
                .map_or("", |_| "WHERE next_attempt_time IS NOT NULL");
            connection.batch_execute(&format!("CREATE INDEX {index} ON payments ({column}) {partial}")).unwrap();
        }
        connection.batch_execute("DELETE FROM __diesel_schema_migrations").unwrap();
        connection.run_pending_migrations(queue()).unwrap();
        assert_eq!(shape(&mut connection).len(), complete.len(), "{present:?}");
        bank.enqueue([1]);
        assert_eq!(bank.run(book).succeeded, 1, "{present:?}");
    }
}

/// Payments from before the queue, in whose table the application has columns with the names of the queue's.
fn with_own(columns: &[String]) -> Bank {
    let bank = with_history();
    for column in columns {
        bank.connect().batch_execute(&format!("ALTER TABLE payments ADD COLUMN {column}")).unwrap();
    }
    bank
}

/// Columns of the types and defaults that the queue's have.
fn as_the_queues() -> [String; 5] {
    [
        format!("status {TEXT} NOT NULL DEFAULT 'NOT_ATTEMPTED'"),
        format!("next_attempt_time {TIME}"),
        "try_count INTEGER NOT NULL DEFAULT 0".to_owned(),
        format!("last_attempt_time {TIME}"),
        format!("last_attempt_error_message {LONG_TEXT}"),
    ]
}

const PAST: &str = "UPDATE payments SET next_attempt_time = '2026-03-01 00:00:00.000', try_count = 7";

/// Shows that the migration is refused because of this column, and changes nothing.
fn is_refused(bank: &Bank, column: &str, migrations: impl Fn() -> Migrations<Backend>) {
    let mut connection = bank.connect();
    let before = shape(&mut connection);
    let error = connection.run_pending_migrations(migrations()).unwrap_err().to_string();
    assert!(error.contains(&format!("has a column {column} that is not the queue's")), "{error}");
    assert!(error.contains("give the queue names of its own, for example with #[queue(prefix"), "{error}");
    assert!(connection.has_pending_migration(migrations()).unwrap());
    assert_eq!(shape(&mut connection), before);
}

#[test]
fn columns_like_the_queues_that_the_application_has_made_are_not_taken_over() {
    let all = as_the_queues();
    for (own, named) in [
        (vec![all[1].clone(), all[2].clone()], "next_attempt_time"),
        (vec![all[4].clone()], "last_attempt_error_message"),
        (all.to_vec(), "status"),
    ] {
        let bank = with_own(&own);
        if own.len() > 1 {
            bank.connect().batch_execute(PAST).unwrap();
        }
        is_refused(&bank, named, queue);
    }
}

#[test]
fn a_poller_says_that_a_column_is_not_the_queues_instead_of_adding_the_others() {
    let bank = with_own(&as_the_queues()[1..3]);
    let Err(queueable::Error::Unsafe(found)) = bank.poller(book).run_until_idle() else { panic!("it ran") };
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].problem.ends_with("has no queue, but a column next_attempt_time of its own"), "{found:?}");
    assert!(found[0].mend.contains("#[queue(prefix = "), "{found:?}");
    // Nor does it offer to turn the application's status into the queue's.
    let bank = with_own(&["status INTEGER".to_owned()]);
    let Err(queueable::Error::Unsafe(found)) = bank.poller(book).run_until_idle() else { panic!("it ran") };
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].problem.ends_with("has no queue, but a column status of its own"), "{found:?}");
    assert!(found[0].mend.contains("Migrations::adopt::<Payment>()"), "{found:?}");
}

/// The queue of the payments, with another name for a column that an option asks for.
#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = timed_queue, timestamps(begin), begin_time = "begun_by_hand")]
struct Timed {
    #[allow(dead_code)]
    id: i64,
}

#[test]
fn a_poller_warns_of_a_column_beside_the_queues_that_no_migration_has_added() {
    crate::suite::warnings::keep_warnings();
    let bank = Bank::new();
    bank.connect().batch_execute(&format!("ALTER TABLE payments ADD COLUMN begun_by_hand {TIME}")).unwrap();
    let done = |_: &Timed, _: &mut queueable::Message<'_, Conn>| Ok(queueable::Outcome::Done);
    Timed::poller(bank.pool(1), done).workers(1).run_until_idle().unwrap();
    crate::suite::warnings::await_warning(&["no migration of it has added: begun_by_hand;", "prefix"]);
}

/// The queue of the payments under other names.
#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(prefix = "renamed_", timeout = "30s")]
struct Renamed {
    #[allow(dead_code)]
    id: i64,
}

#[test]
fn a_column_that_is_renamed_stays_the_queues() {
    let bank = Bank::new();
    let mut connection = bank.connect();
    for column in ["status", "next_attempt_time", "try_count", "last_attempt_time", "last_attempt_error_message"] {
        connection.batch_execute(&format!("ALTER TABLE payments RENAME COLUMN {column} TO renamed_{column}")).unwrap();
    }
    let renamed = || Migrations::<Backend>::new().entity::<Renamed>();
    connection.run_pending_migrations(renamed()).unwrap();
    diesel::insert_into(payments::table)
        .values((payments::company_id.eq(1), payments::amount_cents.eq(1), Renamed::due_now()))
        .execute(&mut connection)
        .unwrap();
    let done = |_: &Renamed, _: &mut queueable::Message<'_, Conn>| Ok(queueable::Outcome::Done);
    assert_eq!(Renamed::poller(bank.pool(1), done).workers(1).run_until_idle().unwrap().succeeded, 1);
}

#[test]
fn columns_that_were_made_for_the_queue_are_adopted_by_a_word() {
    let adopted = || Migrations::<Backend>::new().adopt::<Payment>();
    for own in [&as_the_queues()[1..3], &as_the_queues()[..]] {
        let bank = with_own(own);
        bank.connect().batch_execute(&format!("{PAST} WHERE id = 2")).unwrap();
        bank.connect().run_pending_migrations(adopted()).unwrap();
        // The row that its owner has made due.
        assert_eq!(bank.run(book).succeeded, 1);
        assert_eq!(bank.booked(), [2]);
        assert_eq!(bank.state(2).try_count, 8);
        bank.connect().revert_last_migration(adopted()).unwrap();
        assert_eq!(shape(&mut bank.connect()), shape(&mut with_history().connect()));
    }
}

#[test]
fn a_column_that_the_queue_could_not_use_is_not_adopted() {
    let adopted = || Migrations::<Backend>::new().adopt::<Payment>();
    let kept = if db::NAME == "sqlite" { "VIRTUAL" } else { "STORED" };
    for (own, problem) in [
        ("try_count CHAR(10)".to_owned(), "the column try_count is of type char"),
        (format!("status {TEXT} NOT NULL DEFAULT 'active'"), "another default than NOT_ATTEMPTED"),
        (format!("next_attempt_time {TIME} NOT NULL DEFAULT '2026-03-01 00:00:00.000'"), "null means `not queued`"),
        (format!("try_count INTEGER GENERATED ALWAYS AS (1) {kept}"), "the column try_count is generated"),
    ] {
        let bank = with_own(&[own]);
        let mut connection = bank.connect();
        let before = shape(&mut connection);
        let error = connection.run_pending_migrations(adopted()).unwrap_err().to_string();
        assert!(error.contains("is not ready for its queue") && error.contains(problem), "{error}");
        assert_eq!(shape(&mut connection), before);
    }
    let directory = tempfile::tempdir().unwrap();
    let error = adopted().write_to(directory.path()).unwrap_err().to_string();
    assert!(error.contains("only when the migration runs"), "{error}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_revert_does_not_drop_a_column_that_the_application_has_put_in_the_queues_place() {
    let bank = Bank::new();
    let mut connection = bank.connect();
    connection.batch_execute("ALTER TABLE payments DROP COLUMN try_count").unwrap();
    connection.batch_execute("ALTER TABLE payments ADD COLUMN try_count INTEGER NOT NULL DEFAULT 0").unwrap();
    let before = shape(&mut connection);
    let error = connection.revert_last_migration(queue()).unwrap_err().to_string();
    assert!(error.contains("has a column try_count that is not the queue's"), "{error}");
    assert_eq!(shape(&mut connection), before);
}

#[test]
fn a_restored_copy_still_knows_which_columns_are_the_queues() {
    let bank = Bank::new();
    let copy = db::dumped_and_restored(&bank.database);
    let mut connection = copy.connect();
    let complete = shape(&mut connection);
    connection.batch_execute("ALTER TABLE payments DROP COLUMN last_attempt_time").unwrap();
    connection.batch_execute("DELETE FROM __diesel_schema_migrations").unwrap();
    connection.run_pending_migrations(queue()).unwrap();
    assert_eq!(shape(&mut connection).len(), complete.len());
    connection.revert_last_migration(queue()).unwrap();
    assert_eq!(shape(&mut connection), shape(&mut Bank::before_the_queue().connect()));
}

#[test]
fn a_column_of_the_applications_own_is_neither_used_nor_dropped() {
    for own in [format!("status {TEXT} NOT NULL DEFAULT 'active'"), "try_count CHAR(10)".to_owned()] {
        let bank = with_history();
        let mut connection = bank.connect();
        connection.batch_execute(&format!("ALTER TABLE payments ADD COLUMN {own}")).unwrap();
        let before = shape(&mut connection);
        is_refused(&bank, own.split(' ').next().unwrap(), queue);
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
    let begin = format!("begin_time {TIME}");
    for own in [zero, stage, begin] {
        let column = own.split(' ').next().unwrap().to_owned();
        let bank = with_own(&[own]);
        is_refused(&bank, &column, worded);
        // Beside a queue as well, whose columns are known.
        bank.connect().run_pending_migrations(Migrations::new().entity::<Mailed>()).unwrap();
        is_refused(&bank, &column, worded);
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

/// Queues of the payments with indexes and computed columns that the plain one has not.
#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = laned_queue, order_by = amount_cents, serial_by(company_id, strict), report_index = company_id)]
struct Laned {
    #[allow(dead_code)]
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = alone_queue, order_by = amount_cents, exclusive)]
struct Alone {
    #[allow(dead_code)]
    id: i64,
}

/// Their records are deleted first, as the FAQ says, because the program no longer knows them. Another queue of the table stays.
#[test]
fn a_revert_takes_what_options_of_before_have_added() {
    let bank = with_history();
    let mut connection = bank.connect();
    connection.run_pending_migrations(Migrations::new().entity::<Mailed>()).unwrap();
    let before = shape(&mut connection);
    for with_options in [Migrations::<Backend>::new().entity::<Laned>(), Migrations::new().entity::<Alone>()] {
        connection.run_pending_migrations(with_options).unwrap();
        connection.batch_execute("DELETE FROM __diesel_schema_migrations").unwrap();
        connection.run_pending_migrations(queue()).unwrap();
        connection.revert_last_migration(queue()).unwrap();
        assert_eq!(shape(&mut connection), before);
    }
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
