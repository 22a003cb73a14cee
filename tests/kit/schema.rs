//! The schema in tests: the live table is compared in one line, and a migration that nobody has written is found.

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;

use diesel::Connection;
use queueable::Migrations;
use queueable::testing::{assert_migrations_written, assert_schema};

use super::shop::{Document, Email, Payment, Shop};
use crate::db::Conn;

type Backend = <Conn as Connection>::Backend;

fn payments() -> Migrations<Backend> {
    Migrations::new().entity::<Payment>()
}

/// Returns the text of a panic.
fn panic_of(run: impl FnOnce()) -> String {
    let panic = panic::catch_unwind(AssertUnwindSafe(run)).expect_err("it does not panic");
    *panic.downcast::<String>().expect("a text")
}

fn names(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn the_derive_the_table_and_the_live_table_are_compared_in_one_line() {
    assert_schema!(&mut Shop::open().connection, Payment, Email, Document);
}

#[test]
fn written_migrations_are_enough_also_after_they_were_edited_and_renamed() {
    let directory = tempfile::tempdir().unwrap();
    for (number, folder) in payments().write_to(directory.path()).unwrap().into_iter().enumerate() {
        let sql = fs::read_to_string(folder.join("up.sql")).unwrap();
        fs::write(folder.join("up.sql"), format!("-- ours\n{sql}")).unwrap();
        fs::rename(&folder, directory.path().join(format!("2020-01-0{}-000000_ours", number + 1))).unwrap();
    }
    fs::write(directory.path().join("README"), "of other people").unwrap();
    assert_migrations_written(directory.path(), &payments());
}

#[test]
fn a_migration_that_nobody_has_written_is_named_with_its_sql_and_not_written() {
    let directory = tempfile::tempdir().unwrap();
    payments().write_to(directory.path()).unwrap();
    let before = names(directory.path());
    let more = payments().entity::<Email>();
    let message = panic_of(|| assert_migrations_written(directory.path(), &more));
    let place = directory.path().display().to_string();
    assert!(
        message.starts_with(&format!("{place} lacks migrations of the queues: let `Migrations::write_to`")),
        "{message}"
    );
    assert!(message.contains("_queue_of_emails/up.sql:\n"), "{message}");
    assert!(message.contains("ALTER TABLE") && !message.contains("payments"), "{message}");
    assert_eq!(names(directory.path()), before);
}

#[test]
fn a_directory_that_is_not_there_is_named_and_not_made() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("migrations");
    let message = panic_of(|| assert_migrations_written(&missing, &payments()));
    assert!(message.starts_with(&format!("the migrations in {} cannot be compared", missing.display())), "{message}");
    assert!(!missing.exists());
    let adopted: Migrations<Backend> = Migrations::new().adopt::<Payment>();
    let message = panic_of(|| assert_migrations_written(directory.path(), &adopted));
    assert!(message.contains("are known only when the migration runs"), "{message}");
}
