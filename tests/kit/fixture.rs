//! The SQLite file of each test.

use std::panic;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::sql_types::Text;
use diesel_migrations::{FileBasedMigrations, MigrationHarness};
use queueable::testing::{self, SqliteDatabase, SqliteTemplate, TestQueue, assert_schema, hours};
use queueable::{Migrations, Queueable};

use super::kit::shop::{Payment, charge, payments};

const TABLES: &str =
    "CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, company_id BIGINT NOT NULL, amount_cents BIGINT NOT NULL);
    CREATE TABLE ledger (id INTEGER PRIMARY KEY NOT NULL, payment_id BIGINT NOT NULL, amount_cents BIGINT NOT NULL)";

static SHOP: SqliteTemplate = SqliteTemplate::new(|connection| {
    connection.batch_execute(TABLES)?;
    connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
    Ok(())
});

fn enqueue(shop: &mut SqliteDatabase, amount_cents: i64) {
    let payment = (payments::company_id.eq(1), payments::amount_cents.eq(amount_cents), Payment::due_now());
    diesel::insert_into(payments::table).values(payment).execute(&mut shop.connection).unwrap();
}

fn count(connection: &mut SqliteConnection) -> i64 {
    payments::table.count().get_result(connection).unwrap()
}

#[test]
fn each_test_has_a_database_of_its_own_that_goes_with_it() {
    let (mut one, mut other) = (SHOP.open(), SHOP.open());
    assert_schema!(&mut one.connection, Payment);
    enqueue(&mut one, 100);
    assert_eq!((count(&mut one.connection), count(&mut one.connect()), count(&mut other.connection)), (1, 1, 0));
    let file = Path::new(one.url()).to_owned();
    assert!(file.is_file());
    drop(one);
    assert!(!file.parent().unwrap().exists(), "{} is still there", file.display());
}

#[test]
fn the_migrations_run_once_in_the_process() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    static COUNTED: SqliteTemplate = SqliteTemplate::new(|connection| {
        RUNS.fetch_add(1, Ordering::Relaxed);
        Ok(connection.batch_execute(TABLES)?)
    });
    let tests: Vec<_> = (0..8).map(|_| thread::spawn(|| drop(COUNTED.open()))).collect();
    tests.into_iter().for_each(|test| test.join().unwrap());
    assert_eq!(RUNS.load(Ordering::Relaxed), 1);
}

#[test]
fn a_poller_works_in_the_file_through_a_pool() {
    let mut shop = SHOP.open();
    enqueue(&mut shop, 100);
    let pool = Pool::builder().max_size(2).build(ConnectionManager::<SqliteConnection>::new(shop.url())).unwrap();
    assert_eq!(Payment::poller(pool, charge).workers(1).run_until_idle().unwrap().succeeded, 1);
}

#[test]
fn in_a_begun_database_the_clock_stays_and_nothing_is_committed() {
    let mut shop = SHOP.begin();
    enqueue(&mut shop, -1);
    let before = testing::now(&mut shop.connection).unwrap();
    assert_eq!(Payment::drain_until_idle(&mut shop.connection, &charge).unwrap().failed(), 1);
    assert!(testing::now(&mut shop.connection).unwrap() - before >= hours(2));
    assert_eq!(count(&mut shop.connect()), 0);
}

#[test]
fn the_applications_migrations_and_the_settings_of_the_file_are_in_each_copy() {
    static LOGGED: SqliteTemplate = SqliteTemplate::new(|connection| {
        connection.batch_execute("PRAGMA journal_mode = WAL")?;
        let directory = tempfile::tempdir()?;
        for (folder, up) in
            [("2020-01-01-000000_tables", TABLES), ("2020-01-02-000000_row", "INSERT INTO payments VALUES (1, 2, 3)")]
        {
            let folder = directory.path().join(folder);
            std::fs::create_dir(&folder)?;
            std::fs::write(folder.join("up.sql"), up)?;
            std::fs::write(folder.join("down.sql"), "SELECT 1")?;
        }
        let own = FileBasedMigrations::from_path(directory.path())?;
        connection.run_pending_migrations(Migrations::new().and(own).entity::<Payment>())?;
        Ok(())
    });
    let mut shop = LOGGED.open();
    let mode = sql::<Text>("PRAGMA journal_mode").get_result::<String>(&mut shop.connection);
    assert_eq!((mode, count(&mut shop.connection)), (Ok("wal".to_owned()), 1));
}

#[test]
fn a_template_that_cannot_be_made_says_why() {
    static REFUSED: SqliteTemplate = SqliteTemplate::new(|connection| Ok(connection.batch_execute("CREATE NONSENSE")?));
    static OPEN: SqliteTemplate = SqliteTemplate::new(|connection| Ok(connection.begin_test_transaction()?));
    for (template, expected) in [
        (&REFUSED, "the tables of the tests cannot be made: near \"NONSENSE\": syntax error"),
        (&OPEN, "the closure of the template has to commit what it writes, and to leave no transaction open"),
    ] {
        let panic = panic::catch_unwind(|| template.open()).expect_err("it does not panic");
        let message = panic.downcast::<String>().expect("a text");
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn an_empty_template_makes_empty_databases() {
    static EMPTY: SqliteTemplate = SqliteTemplate::new(|_| Ok(()));
    let tables = sql::<diesel::sql_types::BigInt>("SELECT count(*) FROM sqlite_schema");
    assert_eq!(tables.get_result::<i64>(&mut EMPTY.open().connection), Ok(0));
}
