//! A poller refuses to start with an archive that cannot take every row, and its finding gives the SQL that mends it.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{Error, Finding, Migrations, Queueable};

use super::{Mode, Moved, bank, done, execute, failed, ids};
use crate::db::{BIGINT, TEXT};
use crate::suite::bank::{Bank, payments};

fn findings(bank: &Bank) -> Vec<Finding> {
    match Mode::Transaction.poller(bank).run_until_idle() {
        Ok(_) => Vec::new(),
        Err(Error::Unsafe(findings)) => findings,
        Err(error) => panic!("{error}"),
    }
}

/// Spoils the archive of the successes, expects one finding with this text, runs its SQL, and processes rows.
fn is_found_and_mended(spoil: &[&str], problem: &str) {
    let bank = bank();
    for sql in spoil {
        execute(&bank, sql);
    }
    let found = findings(&bank);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].problem.contains(problem), "{}", found[0].problem);
    for statement in found[0].mend.split("; ") {
        let mended = bank.connect().batch_execute(statement);
        mended.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    assert_eq!(findings(&bank), []);
    let rows = bank.enqueue([5, -1]);
    assert_eq!(Mode::Transaction.run(&bank).succeeded, 1);
    assert_eq!((ids(&done(&bank)), ids(&failed(&bank))), (vec![rows[0]], vec![rows[1]]));
}

#[test]
fn a_missing_archive_is_created() {
    is_found_and_mended(&["DROP TABLE payments_done"], "there is no archive");
}

#[test]
fn a_column_that_the_archive_lacks_is_added() {
    is_found_and_mended(&["ALTER TABLE payments_done DROP COLUMN note"], "has no column note");
    let add = format!("ALTER TABLE payments ADD COLUMN reference {BIGINT} NOT NULL DEFAULT 7");
    let other = "ALTER TABLE payments_failed ADD COLUMN reference INT";
    let same = "ALTER TABLE payments_failed DROP COLUMN reference";
    let again = format!("ALTER TABLE payments_failed ADD COLUMN reference {BIGINT}");
    is_found_and_mended(&[&add, other, same, &again], "has no column reference");
}

#[test]
fn a_column_of_another_type_is_changed() {
    let spoil = ["ALTER TABLE payments_done DROP COLUMN note", "ALTER TABLE payments_done ADD COLUMN note INTEGER"];
    is_found_and_mended(&spoil, "the column note of the archive");
}

#[test]
fn a_column_that_must_not_be_null_may_be() {
    let column = format!("ALTER TABLE payments_done ADD COLUMN note {TEXT} NOT NULL DEFAULT 'none'");
    is_found_and_mended(&["ALTER TABLE payments_done DROP COLUMN note", &column], "is NOT NULL, its rows' may be null");
}

#[test]
fn a_column_of_the_archives_own_needs_no_value() {
    let bank = bank();
    execute(&bank, "ALTER TABLE payments_done ADD COLUMN archived_by VARCHAR(20) NOT NULL DEFAULT 'queue'");
    execute(&bank, "ALTER TABLE payments_failed ADD COLUMN remark VARCHAR(20)");
    assert_eq!(findings(&bank), []);
    execute(&bank, "DROP TABLE payments_done");
    let columns = "id BIGINT NOT NULL PRIMARY KEY, own VARCHAR(20) NOT NULL";
    execute(&bank, &format!("CREATE TABLE payments_done ({columns})"));
    let found = findings(&bank);
    assert!(found.iter().any(|finding| finding.problem.contains("the column own")), "{found:?}");
    for statement in found.iter().flat_map(|finding| finding.mend.split("; ")) {
        execute(&bank, statement);
    }
    assert_eq!(findings(&bank), []);
    let row = bank.enqueue([5])[0];
    assert_eq!(Mode::Transaction.run(&bank).succeeded, 1);
    assert_eq!(ids(&done(&bank)), [row]);
}

#[test]
fn a_unique_index_that_may_refuse_a_row_is_dropped() {
    is_found_and_mended(
        &["CREATE UNIQUE INDEX once ON payments_done (amount_cents)"],
        "the unique index once of the archive",
    );
    // An index that contains the key does no harm.
    let bank = bank();
    execute(&bank, "CREATE UNIQUE INDEX once ON payments_done (amount_cents, id)");
    assert_eq!(findings(&bank), []);
}

#[test]
fn a_table_is_not_its_own_archive() {
    #[derive(Debug, Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(module = circular_queue, archive(success = payments))]
    struct Circular {
        #[expect(dead_code, reason = "it is never claimed")]
        id: i64,
    }

    let bank = bank();
    let handler = |_: &Circular, _: &mut queueable::Message<'_, crate::db::Conn>| Ok(queueable::Outcome::Done);
    let refused = Circular::poller(bank.pool(1), handler).workers(1).run_until_idle().unwrap_err();
    assert!(refused.to_string().contains("cannot be its own archive"), "{refused}");
}

#[test]
fn a_migration_creates_archives_once_and_its_revert_leaves_them() {
    let bank = bank();
    let mut connection = bank.connect();
    let rows = bank.enqueue([5, -1]);
    Mode::Transaction.run(&bank);
    connection.run_pending_migrations(Migrations::new().entity::<Moved>()).unwrap();
    connection.revert_last_migration(Migrations::new().entity::<Moved>()).unwrap();
    assert_eq!((ids(&done(&bank)), ids(&failed(&bank))), (vec![rows[0]], vec![rows[1]]));
    connection.run_pending_migrations(Migrations::new().entity::<Moved>()).unwrap();
    let later = bank.enqueue([6])[0];
    assert_eq!(Mode::Transaction.run(&bank).succeeded, 1);
    assert_eq!(ids(&done(&bank)), [rows[0], later]);
}

#[test]
fn the_sql_files_create_archives_that_will_do() {
    use diesel_migrations::FileBasedMigrations;
    let bank = Bank::before_the_queue();
    execute(&bank, &format!("ALTER TABLE payments ADD COLUMN note {TEXT}"));
    execute(&bank, "CREATE UNIQUE INDEX once ON payments (amount_cents)");
    let directory = tempfile::tempdir().unwrap();
    Migrations::<<crate::db::Conn as diesel::Connection>::Backend>::new()
        .entity::<Moved>()
        .write_to(directory.path())
        .unwrap();
    let source = || FileBasedMigrations::from_path(directory.path()).unwrap();
    let mut connection = bank.connect();
    connection.run_pending_migrations(source()).unwrap();
    assert_eq!(findings(&bank), []);
    let rows = bank.enqueue([5, -1]);
    assert_eq!(Mode::Transaction.run(&bank).succeeded, 1);
    // A value that is unique among the live rows comes again.
    execute(&bank, "INSERT INTO payments (company_id, amount_cents) VALUES (1, 5)");
    connection.revert_all_migrations(source()).unwrap();
    assert_eq!((ids(&done(&bank)), ids(&failed(&bank))), (vec![rows[0]], vec![rows[1]]));
}
