//! PostgreSQL and SQLite undo DDL with its transaction, so a test transaction may hold a migration.

use diesel::Connection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{Migrations, Queueable};

use crate::suite::bank::{Bank, NewPayment, Payment, payments};

#[test]
fn a_migration_runs_inside_a_test_transaction() {
    let bank = Bank::before_the_queue();
    let mut connection = bank.connect();
    connection.begin_test_transaction().unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Payment>()).unwrap();
    let row = (NewPayment { company_id: 1, amount_cents: 1 }, Payment::due_now());
    diesel::insert_into(payments::table).values(row).execute(&mut connection).unwrap();
    assert_eq!(Payment::queue().all_rows().retry_now(&mut connection).unwrap(), 1);
    connection.revert_last_migration(Migrations::new().entity::<Payment>()).unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Payment>()).unwrap();
    drop(connection);
    assert!(Payment::queue().count(&mut bank.connect()).is_ok());
    assert!(Payment::queue().pending().count(&mut bank.connect()).is_err(), "the columns went with the transaction");
}
