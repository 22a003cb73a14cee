//! Ills of a database of SQLite, each planted and found.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queueable::Queueable;
use queueable::report::{IllKind, Severity, examine};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment};
use crate::suite::doctor::{found, mend, only};

/// A database as the documentation recommends it.
fn healthy() -> (Bank, Conn) {
    let bank = Bank::new();
    let mut connection = bank.connect();
    connection.batch_execute("PRAGMA journal_mode = WAL").unwrap();
    assert_eq!(examine(&mut connection).unwrap(), []);
    (bank, connection)
}

/// Plants an ill on a connection, finds it, mends it as it says, and sees that the database is healthy again.
fn is_found_and_mended(plant: &str, kind: IllKind, severity: Severity) {
    let (_bank, mut connection) = healthy();
    connection.batch_execute(plant).unwrap();
    let ill = only(examine(&mut connection).unwrap(), kind);
    assert_eq!((ill.severity, &ill.queue), (severity, &None), "{ill}");
    mend(&mut connection, &ill);
    assert_eq!(examine(&mut connection).unwrap(), [], "after {}", ill.mend);
}

#[test]
fn a_journal_without_wal_is_found_and_mended() {
    for mode in ["DELETE", "MEMORY"] {
        is_found_and_mended(&format!("PRAGMA journal_mode = {mode}"), IllKind::JournalMode, Severity::Warning);
    }
}

#[test]
fn commits_that_are_not_forced_to_the_disk_are_found_and_mended() {
    is_found_and_mended("PRAGMA synchronous = OFF", IllKind::Durability, Severity::Error);
}

#[test]
fn a_connection_that_waits_for_nobody_is_found_and_mended() {
    is_found_and_mended("PRAGMA busy_timeout = 0", IllKind::Timeouts, Severity::Warning);
}

#[test]
fn a_connection_that_may_only_read_is_found_and_mended() {
    is_found_and_mended("PRAGMA query_only = 1", IllKind::ReadOnly, Severity::Note);
}

#[test]
fn a_connection_that_keeps_others_out_is_found_and_mended() {
    is_found_and_mended("PRAGMA main.locking_mode = EXCLUSIVE", IllKind::LockingMode, Severity::Error);
}

/// Writes so many bytes into a table.
fn fill(megabytes: u32) -> String {
    format!(
        "CREATE TABLE large (x); WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {megabytes}) \
         INSERT INTO large SELECT zeroblob(1000000) FROM n"
    )
}

#[test]
fn a_log_that_no_checkpoint_resets_is_found_and_mended() {
    let plant = format!("PRAGMA wal_autocheckpoint = 0; {}", fill(70));
    is_found_and_mended(&plant, IllKind::LargeWal, Severity::Warning);
}

#[test]
fn a_file_that_is_mostly_free_is_found_and_mended() {
    is_found_and_mended(&format!("{}; DROP TABLE large", fill(50)), IllKind::FreePages, Severity::Note);
}

#[test]
fn a_database_in_memory_is_found() {
    let mut connection = Conn::establish(":memory:").unwrap();
    assert_eq!(only(examine(&mut connection).unwrap(), IllKind::JournalMode).severity, Severity::Error);
}

#[test]
fn a_trigger_that_each_write_of_the_queue_sets_off_is_found_and_mended() {
    let bank = Bank::new();
    let trigger = "CREATE TRIGGER touched AFTER UPDATE ON payments BEGIN UPDATE companies SET balance_cents = 0; END";
    bank.connect().batch_execute(trigger).unwrap();
    let ill = found(&bank, IllKind::Trigger);
    assert_eq!(ill.severity, Severity::Note);
    bank.connect().batch_execute(&ill.mend).unwrap();
    assert_eq!(Payment::examine(&mut bank.connect()).unwrap(), []);
}
