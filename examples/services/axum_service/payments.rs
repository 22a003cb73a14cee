//! The payments: their tables, and how one is charged.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queueable::{Failure, Handler, HandlerResult, Message, Outcome, Queueable};

pub(crate) use self::schema::{ledger, payments};

mod schema {
    diesel::table! {
        payments (id) {
            id -> BigInt,
            company_id -> BigInt,
            amount_cents -> BigInt,
        }
    }

    diesel::table! {
        ledger (payment_id) {
            payment_id -> BigInt,
            amount_cents -> BigInt,
        }
    }
}

/// The largest amount that is charged without asking.
const LIMIT_CENTS: i64 = 1_000_000;

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(retry = exponential("1s", max = "1h"), max_tries = 10)]
pub(crate) struct Payment {
    pub(crate) id: i64,
    pub(crate) company_id: i64,
    pub(crate) amount_cents: i64,
}

/// Books each payment in the ledger, in the transaction in which it leaves the queue.
pub(crate) struct Charge;

impl Handler<Payment, SqliteConnection> for Charge {
    fn handle(&self, payment: &Payment, message: &mut Message<'_, SqliteConnection>) -> HandlerResult {
        if payment.amount_cents > LIMIT_CENTS {
            return Err(Failure::fatal(format!("more than {LIMIT_CENTS} cents are charged by hand")));
        }
        diesel::insert_into(ledger::table)
            .values((ledger::payment_id.eq(payment.id), ledger::amount_cents.eq(payment.amount_cents)))
            .execute(message.connection())?;
        Ok(Outcome::Done)
    }
}

/// Creates the application's own tables, if they are not there.
pub(crate) fn create_tables(connection: &mut SqliteConnection) -> QueryResult<()> {
    connection.batch_execute(
        "PRAGMA journal_mode = WAL;
         CREATE TABLE IF NOT EXISTS payments (
             id INTEGER PRIMARY KEY NOT NULL, company_id BIGINT NOT NULL, amount_cents BIGINT NOT NULL);
         CREATE TABLE IF NOT EXISTS ledger (payment_id BIGINT PRIMARY KEY NOT NULL, amount_cents BIGINT NOT NULL)",
    )
}
