//! Migrating a table that is in use, on the servers: PostgreSQL and MySQL.

use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::{SimpleConnection, TransactionManager};
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_migrations::MigrationHarness;
use queueable::{Migrations, Queueable};

use crate::db::{AT_MOST_TEN_SECONDS, Conn, DDL_WAITS};
use crate::suite::bank::{Bank, NewPayment, Payment, book, payments};

/// A reader's open transaction keeps the DDL from its lock. Later statements would wait behind the waiting DDL, so it must
/// give up its place in the lock queue and try again. Writers with a lock timeout show that it does.
#[test]
fn the_application_goes_on_while_a_migration_waits_for_the_table() {
    let bank = Bank::before_the_queue();
    let mut reader = bank.connect();
    <Conn as Connection>::TransactionManager::begin_transaction(&mut reader).unwrap();
    assert_eq!(payments::table.count().get_result::<i64>(&mut reader), Ok(0));

    let mut application = bank.connect();
    application.batch_execute(AT_MOST_TEN_SECONDS).unwrap();
    let mut migrator = bank.connect();
    let written = thread::scope(|scope| {
        let migration = scope.spawn(move || {
            migrator
                .run_pending_migrations(Migrations::new().entity::<Payment>())
                .map(|versions| versions.len())
                .unwrap()
        });
        let mut written = 0;
        let mut waits_seen = 0;
        let patience = Instant::now() + Duration::from_secs(60);
        while waits_seen < 3 && !migration.is_finished() && Instant::now() < patience {
            let waiting = sql::<BigInt>(DDL_WAITS).get_result::<i64>(&mut application).unwrap();
            let row = NewPayment { company_id: 1, amount_cents: 1 };
            diesel::insert_into(payments::table).values(row).execute(&mut application).unwrap();
            written += 1;
            waits_seen += waiting;
        }
        assert!(!migration.is_finished(), "the reader's transaction is still open");
        assert!(waits_seen > 0, "the migration was never seen to wait");
        <Conn as Connection>::TransactionManager::commit_transaction(&mut reader).unwrap();
        assert_eq!(migration.join().unwrap(), 1);
        written
    });
    assert_eq!(Payment::queue().count(&mut application).unwrap(), written);
    assert_eq!(Payment::queue().pending().count(&mut application).unwrap(), 0);
    bank.enqueue([1]);
    assert_eq!(bank.run(book).succeeded, 1);
}
