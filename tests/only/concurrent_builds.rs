//! Why each index that is built `CONCURRENTLY` has a folder of its own: the server refuses it in a text of several
//! statements, which is how Diesel sends an `up.sql`.

use diesel::connection::SimpleConnection;
use diesel_migrations::{FileBasedMigrations, MigrationHarness};
use queueable::{Migrations, assert_schema};

use crate::suite::bank::{Bank, Payment};

#[test]
fn the_server_takes_a_concurrent_build_only_as_a_text_of_its_own() {
    let bank = Bank::new();
    let mut connection = bank.connect();
    let build = |name: &str| format!("CREATE INDEX CONCURRENTLY {name} ON payments (amount_cents)");
    for text in [
        format!("{}; {}", build("first"), build("second")),
        format!("{}; COMMIT; {}", build("first"), build("second")),
        format!("COMMIT; {}; COMMIT", build("first")),
        format!("DO $$ BEGIN {}; END $$", build("first")),
    ] {
        let refused = connection.batch_execute(&text).unwrap_err().to_string();
        assert!(refused.contains("CREATE INDEX CONCURRENTLY cannot "), "{text}: {refused}");
    }
    connection.batch_execute(&format!("-- a comment\n{};\n", build("first"))).unwrap();
}

/// It leaves an index that is not valid, which the next try drops and builds again.
#[test]
fn a_build_that_fails_each_time_ends_the_migration() {
    let bank = Bank::before_the_queue();
    let (mut connection, mut other) = (bank.connect(), bank.connect());
    // The build waits until nobody has an older snapshot.
    other.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id()").unwrap();
    connection.batch_execute("SET statement_timeout = '500ms'").unwrap();
    let refused = connection.run_pending_migrations(Migrations::new().entity::<Payment>()).unwrap_err();
    assert!(refused.to_string().contains("statement timeout"), "{refused}");
    other.batch_execute("COMMIT").unwrap();
    connection.batch_execute("RESET statement_timeout").unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Payment>()).unwrap();
    let connection = &mut connection;
    assert_schema!(connection, Payment);
}

#[test]
fn a_partitioned_table_is_migrated_by_a_folder_that_blocks_writers() {
    let directory = tempfile::tempdir().unwrap();
    let migrations: Migrations<diesel::pg::Pg> = Migrations::new().entity::<Payment>().block_writers();
    assert_eq!(migrations.write_to(directory.path()).unwrap().len(), 2);
    let bank = Bank::before_the_queue();
    let connection = &mut bank.connect();
    connection
        .batch_execute(
            "DROP TABLE payments; \
             CREATE TABLE payments (id BIGSERIAL, company_id BIGINT NOT NULL, amount_cents BIGINT NOT NULL, PRIMARY KEY (id)) \
             PARTITION BY HASH (id); \
             CREATE TABLE payments_0 PARTITION OF payments FOR VALUES WITH (MODULUS 2, REMAINDER 0); \
             CREATE TABLE payments_1 PARTITION OF payments FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
        )
        .unwrap();
    let files = || FileBasedMigrations::from_path(directory.path()).unwrap();
    connection.run_pending_migrations(files()).unwrap();
    assert_schema!(connection, Payment);
    connection.revert_all_migrations(files()).unwrap();
}
