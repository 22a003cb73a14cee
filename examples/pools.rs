//! Three pools: payments wait in one table, finished payments are in a second and refused payments in a third. The
//! transaction that books a row also moves the whole row, so it is in one pool at any time, even after `kill -9`. When
//! the cause is fixed, an operator sends the refused payments back by domain filter.
//!
//! `cargo run --example pools`

use std::fmt;

use anyhow::{Result, ensure};
use diesel::connection::SimpleConnection;
use diesel::dsl::{count_star, sql};
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::sql_types::{BigInt, Bool};
use diesel_migrations::MigrationHarness;
use queueable::{Failure, HandlerResult, Message, Migrations, Outcome, Queueable, Tally};

use self::schema::{accounts, ledger, payments, payments_finished, payments_refused};

mod schema {
    diesel::table! { accounts (id) { id -> BigInt, closed -> Bool, balance_cents -> BigInt, } }
    diesel::table! { ledger (id) { id -> BigInt, payment_id -> BigInt, amount_cents -> BigInt, } }
    diesel::table! { payments (id) { id -> BigInt, account_id -> BigInt, amount_cents -> BigInt, } }

    // The other two pools have the columns of the first, and those of the queue.
    diesel::table! { payments_finished (id) { id -> BigInt, account_id -> BigInt, amount_cents -> BigInt, } }
    diesel::table! {
        payments_refused (id) {
            id -> BigInt,
            account_id -> BigInt,
            amount_cents -> BigInt,
            last_attempt_error_message -> Nullable<Text>,
        }
    }
    diesel::allow_tables_to_appear_in_same_query!(accounts, payments);
}

const PAYMENTS: i64 = 1_000;
const ACCOUNTS: i64 = 20;

/// Two of the accounts are closed, one of them by mistake.
const CLOSED: [i64; 2] = [7, 13];
const CLOSED_BY_MISTAKE: i64 = 7;

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
// The migration creates both tables.
#[queue(archive(success = payments_finished, failed = payments_refused), timeout = "30s")]
struct Payment {
    id: i64,
    account_id: i64,
    amount_cents: i64,
}

fn book(payment: &Payment, message: &mut Message<'_, SqliteConnection>) -> HandlerResult {
    let account = accounts::table.find(payment.account_id);
    if account.select(accounts::closed).get_result(message.connection())? {
        return Err(Failure::fatal(format!("account {} is closed", payment.account_id)));
    }
    diesel::update(account)
        .set(accounts::balance_cents.eq(accounts::balance_cents + payment.amount_cents))
        .execute(message.connection())?;
    diesel::insert_into(ledger::table)
        .values((ledger::payment_id.eq(payment.id), ledger::amount_cents.eq(payment.amount_cents)))
        .execute(message.connection())?;
    Ok(Outcome::Done)
}

fn main() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let url = directory.path().join("pools.sqlite").display().to_string();
    let pool = Pool::builder().max_size(6).build(ConnectionManager::<SqliteConnection>::new(&url))?;
    let mut connection = SqliteConnection::establish(&url)?;
    connection.batch_execute("PRAGMA busy_timeout = 5000")?;
    prepare(&mut connection)?;
    let work = || -> Result<Tally> { Ok(Payment::poller(pool.clone(), book).workers(2).run_until_idle()?) };

    let expected = Pools { waiting: PAYMENTS, finished: 0, refused: 0 };
    check(&mut connection, "to begin with", expected)?;
    let tally = work()?;
    let refused = PAYMENTS / ACCOUNTS * 2;
    ensure!(i64::try_from(tally.failed)? == refused, "the payments of two accounts are refused: {tally:?}");
    check(&mut connection, "all are worked", Pools { waiting: 0, finished: PAYMENTS - refused, refused })?;
    for (text, payments) in refusals(&mut connection)? {
        println!("    {payments} refused: {text}");
    }

    // The cause is fixed for one account, and only its payments go back to the queue.
    diesel::update(accounts::table.find(CLOSED_BY_MISTAKE)).set(accounts::closed.eq(false)).execute(&mut connection)?;
    let mended = Payment::queue().filter(payments::account_id.eq(CLOSED_BY_MISTAKE));
    println!(
        "account {CLOSED_BY_MISTAKE} is open again; a redrive would move {}",
        mended.dry_run().redrive(&mut connection)?
    );
    let redriven = mended.redrive(&mut connection)?;
    println!("{redriven}");
    let still = refused / 2;
    let expected = Pools { waiting: still, finished: PAYMENTS - refused, refused: still };
    check(&mut connection, "some are back", expected)?;
    ensure!(i64::try_from(work()?.succeeded)? == still, "what was sent again is booked");
    check(&mut connection, "at the end", Pools { waiting: 0, finished: PAYMENTS - still, refused: still })?;
    Ok(())
}

/// How many payments are in each pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pools {
    waiting: i64,
    finished: i64,
    refused: i64,
}

impl fmt::Display for Pools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waiting, {} finished, {} refused", self.waiting, self.finished, self.refused)
    }
}

/// Compares the books with the pools: each payment is in one pool, and is booked once if it is finished.
fn check(connection: &mut SqliteConnection, when: &str, expected: Pools) -> Result<()> {
    let pools = Pools {
        waiting: payments::table.count().get_result(connection)?,
        finished: payments_finished::table.count().get_result(connection)?,
        refused: payments_refused::table.count().get_result(connection)?,
    };
    println!("{when}: {pools}");
    ensure!(pools == expected, "expected {expected}");
    let twice = "id IN (SELECT id FROM payments_finished UNION ALL SELECT id FROM payments_refused)";
    let also_elsewhere: i64 = payments::table.filter(sql::<Bool>(twice)).count().get_result(connection)?;
    ensure!(also_elsewhere == 0, "no payment is in two pools");
    let finished: Vec<(i64, i64)> = payments_finished::table
        .select((payments_finished::id, payments_finished::amount_cents))
        .order(payments_finished::id)
        .load(connection)?;
    let booked: Vec<(i64, i64)> =
        ledger::table.select((ledger::payment_id, ledger::amount_cents)).order(ledger::payment_id).load(connection)?;
    ensure!(finished == booked, "the ledger has each finished payment once, and no other");
    let balances: i64 = accounts::table.select(sql::<BigInt>("SUM(balance_cents)")).get_result(connection)?;
    ensure!(balances == booked.iter().map(|(_, amount)| amount).sum::<i64>(), "the balances are what was booked");
    Ok(())
}

/// The refusals by their texts.
fn refusals(connection: &mut SqliteConnection) -> Result<Vec<(String, i64)>> {
    let text = payments_refused::last_attempt_error_message.assume_not_null();
    Ok(payments_refused::table
        .group_by(payments_refused::last_attempt_error_message)
        .select((text, count_star()))
        .load(connection)?)
}

fn prepare(connection: &mut SqliteConnection) -> Result<()> {
    connection.batch_execute(
        "CREATE TABLE accounts (id INTEGER PRIMARY KEY NOT NULL, closed BOOLEAN NOT NULL, balance_cents BIGINT NOT NULL DEFAULT 0);
         CREATE TABLE ledger (id INTEGER PRIMARY KEY NOT NULL, payment_id BIGINT NOT NULL, amount_cents BIGINT NOT NULL);
         CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, account_id BIGINT NOT NULL, amount_cents BIGINT NOT NULL)",
    )?;
    connection.run_pending_migrations(Migrations::new().entity::<Payment>()).map_err(anyhow::Error::from_boxed)?;
    connection.transaction(|connection| {
        for account in 1..=ACCOUNTS {
            let account = (accounts::id.eq(account), accounts::closed.eq(CLOSED.contains(&account)));
            diesel::insert_into(accounts::table).values(account).execute(connection)?;
        }
        for number in 0..PAYMENTS {
            let payment = (payments::account_id.eq(1 + number % ACCOUNTS), payments::amount_cents.eq(100 + number));
            diesel::insert_into(payments::table).values((payment, Payment::due_now())).execute(connection)?;
        }
        Ok(())
    })
}
