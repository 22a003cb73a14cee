//! The reports of a queue: errors, statistics, the backlog, and why a row does not run.

mod backlog;
mod backwards;
mod by_name;
mod displays;
mod errors;
mod explain;
mod explain_list;
mod figures;
mod limited;
mod odd_times;
mod pages;
mod report_by;
mod report_index;
mod sql;
mod statistics;
mod texts_of_group;

pub(crate) use self::odd_times::odd as odd_times;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{Migrations, Queueable, Stage};

use crate::db::{AUTO_KEY, BIGINT, Conn, Database, TEXT};

diesel::table! {
    orders (id) {
        id -> BigInt,
        company_id -> Nullable<BigInt>,
        region -> Nullable<Text>,
        approved -> BigInt,
    }
}

/// An order that is processed in one transaction, and whose times are kept.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Queueable)]
#[diesel(table_name = orders)]
#[queue(retry = fixed("1h"), max_tries = 3, timeout = "30s", timestamps(begin, end))]
pub(super) struct Order {
    pub(super) id: i64,
}

/// An order is invoiced when it is approved.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Queueable)]
#[diesel(table_name = orders)]
#[queue(prefix = "invoice_", timeout = "30s", claim_if = "orders::approved.eq(1_i64)")]
pub(super) struct Invoice {
    pub(super) id: i64,
}

/// An order is sent out by a call to the outside world.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Queueable)]
#[diesel(table_name = orders)]
#[queue(prefix = "parcel_", lease = "60s", max_tries = 3)]
pub(super) struct Parcel {
    pub(super) id: i64,
}

/// The stages of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Stage)]
pub(super) enum Step {
    Pack,
    Load,
}

/// An order is delivered in stages, and moves to an archive at its end.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Queueable)]
#[diesel(table_name = orders)]
#[queue(prefix = "delivery_", timeout = "30s", stage = Step, archive(success = orders_done, failed = orders_failed))]
pub(super) struct Delivery {
    pub(super) id: i64,
}

/// Orders are entered into the books one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Queueable)]
#[diesel(table_name = orders)]
#[queue(prefix = "entry_", lease = "60s", exclusive)]
pub(super) struct Entry {
    pub(super) id: i64,
}

/// An order is billed in the morning, and paid after noon.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Queueable)]
#[diesel(table_name = orders)]
#[queue(prefix = "bill_", timeout = "30s", window = "00:00-12:00 UTC")]
pub(super) struct Bill {
    pub(super) id: i64,
}

/// The other half of the day, on the same columns.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Queueable)]
#[diesel(table_name = orders)]
#[queue(prefix = "bill_", timeout = "30s", window = "12:00-24:00 UTC")]
pub(super) struct Payment {
    pub(super) id: i64,
}

/// A database with the orders and their queues.
pub(super) struct Shop(pub(super) Database);

impl Shop {
    pub(super) fn new() -> Self {
        let database = Database::new();
        let mut connection = database.connect();
        connection
            .batch_execute(&format!(
                "CREATE TABLE orders (id {AUTO_KEY} NOT NULL, company_id {BIGINT}, region {TEXT},
                     approved {BIGINT} NOT NULL DEFAULT 0)"
            ))
            .unwrap();
        let migrations = Migrations::new()
            .entity::<Order>()
            .entity::<Invoice>()
            .entity::<Parcel>()
            .entity::<Delivery>()
            .entity::<Entry>()
            .entity::<Bill>();
        connection.run_pending_migrations(migrations).unwrap();
        Shop(database)
    }

    pub(super) fn connect(&self) -> Conn {
        self.0.connect()
    }

    /// Runs SQL of the application's own.
    pub(super) fn execute(&self, sql: &str) {
        self.connect().batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

/// Begins a query that takes numbers from a table `n`: from 0 to 99,999.
pub(super) const NUMBERS: &str = "
    WITH d (i) AS (SELECT 0 UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
        UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9),
    n (n) AS (SELECT a.i + 10 * b.i + 100 * c.i + 1000 * e.i + 10000 * f.i
        FROM d a CROSS JOIN d b CROSS JOIN d c CROSS JOIN d e CROSS JOIN d f)";
