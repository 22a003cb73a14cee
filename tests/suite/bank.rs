//! The application on which the tests show the promises: payments that are booked in a ledger and on a company's
//! balance.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_migrations::MigrationHarness;
use queueable::{HandlerResult, Message, Migrations, Outcome, Poller, QueueState, Queueable, Tally};

use crate::db::{AUTO_KEY, BIGINT, Conn, Database};

diesel::table! {
    companies (id) {
        id -> BigInt,
        balance_cents -> BigInt,
    }
}

diesel::table! {
    payments (id) {
        id -> BigInt,
        company_id -> BigInt,
        amount_cents -> BigInt,
    }
}

diesel::table! {
    // Without a key on the payment, which would hide a double booking.
    ledger (id) {
        id -> BigInt,
        payment_id -> BigInt,
        amount_cents -> BigInt,
    }
}

diesel::joinable!(payments -> companies (company_id));
diesel::allow_tables_to_appear_in_same_query!(companies, payments, ledger);

#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Identifiable, Queueable)]
#[diesel(table_name = payments)]
// The default on SQLite, which has one writer, is one second.
#[queue(retry = fixed("1h"), max_tries = 3, timeout = "30s")]
pub(crate) struct Payment {
    pub(crate) id: i64,
    pub(crate) company_id: i64,
    pub(crate) amount_cents: i64,
}

#[derive(Debug, Clone, Insertable)]
#[diesel(table_name = payments)]
pub(crate) struct NewPayment {
    pub(crate) company_id: i64,
    pub(crate) amount_cents: i64,
}

/// A database with the application's tables, migrated.
pub(crate) struct Bank {
    pub(crate) database: Database,
}

impl Bank {
    pub(crate) fn new() -> Self {
        Bank::in_database(Database::new())
    }

    /// The same in an existing database.
    pub(crate) fn in_database(database: Database) -> Self {
        let bank = Bank::with_tables(database);
        bank.database.connect().run_pending_migrations(Migrations::new().entity::<Payment>()).unwrap();
        bank
    }

    /// The tables of an application that knows nothing of queues.
    pub(crate) fn before_the_queue() -> Self {
        Bank::with_tables(Database::new())
    }

    fn with_tables(database: Database) -> Self {
        database
            .connect()
            .batch_execute(&format!(
                "CREATE TABLE companies (id {BIGINT} PRIMARY KEY NOT NULL, balance_cents {BIGINT} NOT NULL DEFAULT 0);
                 CREATE TABLE payments (id {AUTO_KEY} NOT NULL, company_id {BIGINT} NOT NULL, amount_cents {BIGINT} NOT NULL);
                 CREATE TABLE ledger (id {AUTO_KEY} NOT NULL, payment_id {BIGINT} NOT NULL, amount_cents {BIGINT} NOT NULL);
                 INSERT INTO companies (id) VALUES (1), (2), (3345)"
            ))
            .unwrap();
        Bank { database }
    }

    pub(crate) fn connect(&self) -> Conn {
        self.database.connect()
    }

    pub(crate) fn pool(&self, workers: u32) -> Pool<ConnectionManager<Conn>> {
        self.database.pool(workers + 2)
    }

    /// Enqueues payments of company 1, one for each amount, and returns their ids.
    pub(crate) fn enqueue(&self, amounts: impl IntoIterator<Item = i64>) -> Vec<i64> {
        let mut connection = self.connect();
        let payments: Vec<_> = amounts
            .into_iter()
            .map(|amount_cents| (NewPayment { company_id: 1, amount_cents }, Payment::due_now()))
            .collect();
        let before: Option<i64> =
            payments::table.select(diesel::dsl::max(payments::id)).get_result(&mut connection).unwrap();
        diesel::insert_into(payments::table).values(payments).execute(&mut connection).unwrap();
        payments::table
            .filter(payments::id.gt(before.unwrap_or(0)))
            .order(payments::id)
            .select(payments::id)
            .load(&mut connection)
            .unwrap()
    }

    /// Processes the due payments with one worker.
    pub(crate) fn run(&self, handler: impl queueable::Handler<Payment, Conn> + 'static) -> Tally {
        self.poller(handler).run_until_idle().unwrap()
    }

    pub(crate) fn poller(&self, handler: impl queueable::Handler<Payment, Conn> + 'static) -> Poller<Conn> {
        // A few messages come too slowly to be prefetched, but most messages take this way.
        Payment::poller(self.pool(1), handler).workers(1).prefetch_at_once()
    }

    pub(crate) fn state(&self, id: i64) -> QueueState {
        payments::table.find(id).select(Payment::queue_state()).get_result(&mut self.connect()).unwrap()
    }

    /// Returns the payments in the ledger, in order.
    pub(crate) fn booked(&self) -> Vec<i64> {
        ledger::table.order(ledger::payment_id).select(ledger::payment_id).load(&mut self.connect()).unwrap()
    }

    pub(crate) fn balance(&self, company: i64) -> i64 {
        companies::table.find(company).select(companies::balance_cents).get_result(&mut self.connect()).unwrap()
    }
}

/// Books a payment through the message's transaction: the handler of most tests.
pub(crate) fn book(payment: &Payment, message: &mut Message<'_, Conn>) -> HandlerResult {
    diesel::insert_into(ledger::table)
        .values((ledger::payment_id.eq(payment.id), ledger::amount_cents.eq(payment.amount_cents)))
        .execute(message.connection())?;
    diesel::update(companies::table.find(payment.company_id))
        .set(companies::balance_cents.eq(companies::balance_cents + payment.amount_cents))
        .execute(message.connection())?;
    Ok(Outcome::Done)
}
