//! An application to test: payments, e-mails in groups, and documents that are rendered under a lease.

use std::sync::LazyLock;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{HandlerResult, Message, Migrations, Outcome, Queueable};

use crate::db::{AUTO_KEY, BIGINT, Conn, Database, LONG_TEXT, NAME};

diesel::table! {
    payments (id) {
        id -> BigInt,
        company_id -> BigInt,
        amount_cents -> BigInt,
    }
}

diesel::table! {
    emails (id) {
        id -> BigInt,
        payment_id -> BigInt,
    }
}

diesel::table! {
    documents (id) {
        id -> BigInt,
        title -> Text,
    }
}

diesel::table! {
    ledger (id) {
        id -> BigInt,
        payment_id -> BigInt,
        amount_cents -> BigInt,
    }
}

diesel::allow_tables_to_appear_in_same_query!(payments, emails, documents, ledger);

#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Identifiable, Queueable)]
#[diesel(table_name = payments)]
#[queue(retry = fixed("1h"), max_tries = 3)]
pub(crate) struct Payment {
    pub(crate) id: i64,
    pub(crate) company_id: i64,
    pub(crate) amount_cents: i64,
}

#[derive(Debug, Clone, Queryable, Selectable, Queueable)]
#[diesel(table_name = emails)]
#[queue(group = 10, retry = fixed("10m"))]
pub(crate) struct Email {
    pub(crate) id: i64,
    pub(crate) payment_id: i64,
}

#[derive(Debug, Clone, Queryable, Selectable, Queueable)]
#[diesel(table_name = documents)]
#[queue(lease = "5m", retry = fixed("10m"))]
pub(crate) struct Document {
    pub(crate) id: i64,
    pub(crate) title: String,
}

static SHOP: LazyLock<Database> = LazyLock::new(migrated);

/// Makes a database with the tables of the application.
pub(crate) fn migrated() -> Database {
    let database = Database::new();
    let mut connection = database.connect();
    connection
        .batch_execute(&format!(
            "CREATE TABLE payments (id {AUTO_KEY} NOT NULL, company_id {BIGINT} NOT NULL, amount_cents {BIGINT} NOT NULL);
             CREATE TABLE emails (id {AUTO_KEY} NOT NULL, payment_id {BIGINT} NOT NULL);
             CREATE TABLE documents (id {AUTO_KEY} NOT NULL, title {LONG_TEXT} NOT NULL);
             CREATE TABLE ledger (id {AUTO_KEY} NOT NULL, payment_id {BIGINT} NOT NULL, amount_cents {BIGINT} NOT NULL)"
        ))
        .expect("an empty database");
    let migrations = Migrations::new().entity::<Payment>().entity::<Email>().entity::<Document>();
    connection.run_pending_migrations(migrations).expect("tables as the entities want them");
    database
}

/// A connection in a test transaction, as a user's test has one. On a server all tests share the database; SQLite has one writer
/// per file, so there each test has a file.
pub(crate) struct Shop {
    pub(crate) connection: Conn,
    _own: Option<Database>,
}

impl Shop {
    pub(crate) fn open() -> Self {
        if NAME == "sqlite" { Shop::alone() } else { Shop { connection: in_test(&SHOP), _own: None } }
    }

    /// The same on a database that no other test has, for what a test commits.
    pub(crate) fn alone() -> Self {
        let own = migrated();
        Shop { connection: in_test(&own), _own: Some(own) }
    }

    /// Opens a database of the test's own, in no transaction.
    pub(crate) fn committing() -> Self {
        let own = migrated();
        Shop { connection: own.connect(), _own: Some(own) }
    }

    /// Enqueues a payment of a company. Returns its id.
    pub(crate) fn enqueue(&mut self, company_id: i64, amount_cents: i64) -> i64 {
        let payment = (payments::company_id.eq(company_id), payments::amount_cents.eq(amount_cents));
        diesel::insert_into(payments::table)
            .values((payment, Payment::due_now()))
            .execute(&mut self.connection)
            .expect("a payment");
        payments::table
            .select(diesel::dsl::max(payments::id))
            .get_result::<Option<i64>>(&mut self.connection)
            .unwrap()
            .unwrap()
    }

    /// Returns the payments in the ledger, in order.
    pub(crate) fn booked(&mut self) -> Vec<i64> {
        ledger::table.order(ledger::id).select(ledger::payment_id).load(&mut self.connection).expect("the ledger")
    }
}

/// Opens a connection, and a transaction that is never committed.
fn in_test(database: &Database) -> Conn {
    let mut connection = database.connect();
    if NAME == "mysql" {
        // As the page says: the gaps that REPEATABLE READ locks let tests that run in parallel end in deadlocks.
        connection.batch_execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").expect("a setting");
    }
    connection.begin_test_transaction().expect("no transaction is open");
    connection
}

/// Books a payment, and fails if its amount is negative.
pub(crate) fn charge(payment: &Payment, message: &mut Message<'_, Conn>) -> HandlerResult {
    diesel::insert_into(ledger::table)
        .values((ledger::payment_id.eq(payment.id), ledger::amount_cents.eq(payment.amount_cents)))
        .execute(message.connection())?;
    if payment.amount_cents < 0 {
        return Err(std::io::Error::other("card declined").into());
    }
    Ok(Outcome::Done)
}
