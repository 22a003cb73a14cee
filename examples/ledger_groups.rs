//! Many small messages, few commits. One handler books payments in groups of up to 50, each in its savepoint, in the
//! order of the account whose balance they share. Another handles a whole group at once, and writes the receipts with
//! one statement.
//!
//! `cargo run --release --example ledger_groups`

use std::time::Instant;

use anyhow::{Result, ensure};
use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::expression::SqlLiteral;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::sql_types::BigInt;
use diesel_migrations::MigrationHarness;
use queueable::{Failure, Group, Handler, HandlerResult, Message, Migrations, Outcome, Queueable};

use self::schema::{accounts, ledger, payments, receipts};

mod schema {
    diesel::table! { accounts (id) { id -> BigInt, balance_cents -> BigInt, } }
    diesel::table! { payments (id) { id -> BigInt, account_id -> BigInt, amount_cents -> BigInt, } }
    diesel::table! { ledger (id) { id -> BigInt, payment_id -> BigInt, amount_cents -> BigInt, } }
    diesel::table! { receipts (id) { id -> BigInt, payment_id -> BigInt, } }
}

const PAYMENTS: i64 = 5_000;
const ACCOUNTS: i64 = 10;

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
// Groups that change the same balances hold each other up, unless all of them go in the order of the account.
#[queue(group = 50, order_in_group = account_id, max_tries = 1, timeout = "30s")]
struct Payment {
    id: i64,
    account_id: i64,
    amount_cents: i64,
}

/// The second queue on the payments, with columns of its own. Its handler fails seldom, so one savepoint will do.
#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(prefix = "receipt_", group(50, optimistic), timeout = "30s")]
struct Receipt {
    id: i64,
}

/// Handles one message at a time. If one fails, only its own writes are undone.
fn book(payment: &Payment, message: &mut Message<'_, SqliteConnection>) -> HandlerResult {
    diesel::update(accounts::table.find(payment.account_id))
        .set(accounts::balance_cents.eq(accounts::balance_cents + payment.amount_cents))
        .execute(message.connection())?;
    diesel::insert_into(ledger::table)
        .values((ledger::payment_id.eq(payment.id), ledger::amount_cents.eq(payment.amount_cents)))
        .execute(message.connection())?;
    if payment.amount_cents % 100 == 13 {
        return Err(Failure::fatal("nobody pays thirteen cents"));
    }
    diesel::update(payments::table.find(payment.id)).set(Receipt::due_now()).execute(message.connection())?;
    Ok(Outcome::Done)
}

struct Write;

impl Handler<Receipt, SqliteConnection> for Write {
    fn handle(&self, receipt: &Receipt, message: &mut Message<'_, SqliteConnection>) -> HandlerResult {
        diesel::insert_into(receipts::table)
            .values(receipts::payment_id.eq(receipt.id))
            .execute(message.connection())?;
        Ok(Outcome::Done)
    }

    /// Handles all messages of a group at once.
    fn handle_group(
        &self,
        group: &[Receipt],
        messages: &mut Group<'_, SqliteConnection>,
    ) -> Option<Vec<HandlerResult>> {
        let rows: Vec<_> = group.iter().map(|receipt| receipts::payment_id.eq(receipt.id)).collect();
        let written = diesel::insert_into(receipts::table).values(&rows).execute(messages.connection());
        Some(match written {
            Ok(_) => group.iter().map(|_| Ok(Outcome::Done)).collect(),
            // The worker undoes the writes, and handles every message alone.
            Err(error) => vec![Err(error.into())],
        })
    }
}

fn main() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let url = directory.path().join("ledger.sqlite").display().to_string();
    let mut connection = SqliteConnection::establish(&url)?;
    prepare(&mut connection)?;

    let started = Instant::now();
    let pool = Pool::builder().max_size(3).build(ConnectionManager::<SqliteConnection>::new(&url))?;
    let tally = Payment::poller(pool, book).serve::<Receipt>(Write).workers(2).run_until_idle()?;
    let rate = tally.succeeded as f64 / started.elapsed().as_secs_f64();
    println!("{} messages, {} of them failed: {rate:.0} a second", tally.succeeded + tally.failed, tally.failed);

    let refused: Vec<i64> =
        Payment::queue().failed().load(&mut connection)?.iter().map(|(payment, _)| payment.id).collect();
    let booked: i64 = ledger::table.count().get_result(&mut connection)?;
    let written: i64 = receipts::table.count().get_result(&mut connection)?;
    let balances: i64 = accounts::table.select(sum("balance_cents")).get_result(&mut connection)?;
    let accepted = payments::table.filter(payments::id.ne_all(&refused));
    let expected: i64 = accepted.select(sum("amount_cents")).get_result(&mut connection)?;
    println!("{booked} booked, {written} receipts, {balances} cents on {ACCOUNTS} accounts");
    ensure!(booked == PAYMENTS - i64::try_from(refused.len())?, "every payment is booked once, or refused");
    ensure!(refused.len() == 50, "one in a hundred is refused, and its neighbours are not");
    ensure!(written == booked, "every booked payment has one receipt");
    ensure!(balances == expected, "the balances are the sums of what was booked: {expected}");
    Ok(())
}

/// Diesel's own sum of 64 bit integers is a decimal number.
fn sum(column: &str) -> SqlLiteral<BigInt> {
    sql(&format!("SUM({column})"))
}

fn prepare(connection: &mut SqliteConnection) -> Result<()> {
    connection.batch_execute(
        "CREATE TABLE accounts (id INTEGER PRIMARY KEY NOT NULL, balance_cents BIGINT NOT NULL DEFAULT 0);
         CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, account_id BIGINT NOT NULL, amount_cents BIGINT NOT NULL);
         CREATE TABLE ledger (id INTEGER PRIMARY KEY NOT NULL, payment_id BIGINT NOT NULL, amount_cents BIGINT NOT NULL);
         CREATE TABLE receipts (id INTEGER PRIMARY KEY NOT NULL, payment_id BIGINT NOT NULL)",
    )?;
    let migrations = Migrations::new().entity::<Payment>().entity::<Receipt>();
    connection.run_pending_migrations(migrations).map_err(anyhow::Error::from_boxed)?;
    connection.transaction(|connection| {
        for account in 1..=ACCOUNTS {
            diesel::insert_into(accounts::table).values(accounts::id.eq(account)).execute(connection)?;
        }
        for number in 0..PAYMENTS {
            let payment = (payments::account_id.eq(1 + number % ACCOUNTS), payments::amount_cents.eq(100 + number));
            diesel::insert_into(payments::table).values((payment, Payment::due_now())).execute(connection)?;
        }
        Ok(())
    })
}
