//! Who has changed what, and why: changes that name their author leave a row in a table of the library's own.

mod batches;
mod calls;
mod filters;
mod pages;
mod pauses;
mod table;

use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::control::{Audit, Audited};
use queueable::{Migrations, Queueable};

use crate::db::{Conn, NAME};
use crate::suite::bank::{Bank, companies};

const BY: &str = "ops@example.org";
const REASON: &str = "ticket 812";

/// Another queue in the same database.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = companies)]
#[expect(dead_code, reason = "it is decoded, not read")]
struct Company {
    id: i64,
}

fn add_table(connection: &mut Conn) {
    connection.run_pending_migrations(Migrations::new().audit()).unwrap();
}

/// A bank with a table of the audit.
fn bank() -> Bank {
    let bank = Bank::new();
    add_table(&mut bank.connect());
    bank
}

/// Reads all rows, the oldest first.
fn rows(connection: &mut Conn) -> Vec<Audited> {
    let page = queueable::control::audit(connection, &Audit::new().limit(1_000)).unwrap();
    assert_eq!(page.next, None);
    page.rows.into_iter().rev().collect()
}

/// Reads the only row's action, filter and number of rows.
fn only_row(connection: &mut Conn) -> (String, String, usize) {
    let mut rows = rows(connection);
    assert_eq!(rows.len(), 1, "{rows:?}");
    let Audited { action, filter, rows, .. } = rows.remove(0);
    (action, filter, rows)
}

/// A name as the database's statements write it.
fn quoted(name: &str) -> String {
    let quote = if NAME == "postgres" { '"' } else { '`' };
    name.split('.').map(|name| format!("{quote}{name}{quote}")).collect::<Vec<_>>().join(".")
}
