//! Two queues on one table: a payment is charged, and then a receipt is sent. Each queue is a struct with a prefix of its
//! own, so each has its columns, retries and handler.
//!
//! `cargo run --example two_queues_on_one_table`

use anyhow::{Result, ensure};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_migrations::MigrationHarness;
use queueable::{Failure, HandlerResult, Message, Migrations, Outcome, Poller, Queueable, Status};

use self::schema::payments;

mod schema {
    diesel::table! {
        payments (id) {
            id -> BigInt,
            amount_cents -> BigInt,
            email -> Nullable<Text>,
        }
    }
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(prefix = "charge_", max_tries = 10)]
struct Charge {
    id: i64,
    amount_cents: i64,
}

/// The same rows, as the part that sends mail sees them: other fields, and other queue columns.
#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(prefix = "receipt_", max_tries = 3)]
struct Receipt {
    id: i64,
    email: Option<String>,
}

fn charge(charge: &Charge, message: &mut Message<'_, SqliteConnection>) -> HandlerResult {
    if charge.amount_cents <= 0 {
        return Err(Failure::fatal("the amount is not positive"));
    }
    println!("payment {}: {} cents charged", charge.id, charge.amount_cents);
    // The receipt becomes due in the transaction that makes the charge a success, so there is never one without the
    // other.
    diesel::update(payments::table.find(charge.id)).set(Receipt::due_now()).execute(message.connection())?;
    Ok(Outcome::Done)
}

fn send(receipt: &Receipt, _: &mut Message<'_, SqliteConnection>) -> HandlerResult {
    let Some(email) = &receipt.email else { return Ok(Outcome::Skip) };
    println!("payment {}: receipt sent to {email}", receipt.id);
    Ok(Outcome::Done)
}

fn main() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let url = directory.path().join("payments.sqlite").display().to_string();
    let mut connection = SqliteConnection::establish(&url)?;
    connection.batch_execute(
        "CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, amount_cents BIGINT NOT NULL, email TEXT)",
    )?;
    connection
        .run_pending_migrations(Migrations::new().entity::<Charge>().entity::<Receipt>())
        .map_err(anyhow::Error::from_boxed)?;

    for (amount, email) in [(1250, Some("ada@example.com")), (700, None), (0, Some("grace@example.com"))] {
        diesel::insert_into(payments::table)
            .values((payments::amount_cents.eq(amount), payments::email.eq(email), Charge::due_now()))
            .execute(&mut connection)?;
    }

    // One pool and one set of workers serve both.
    let pool = Pool::builder().max_size(3).build(ConnectionManager::<SqliteConnection>::new(&url))?;
    Poller::new(pool).serve::<Charge>(charge).serve::<Receipt>(send).workers(2).run_until_idle()?;

    // The columns of both queues in one query.
    let states: Vec<(i64, Status, Status)> = payments::table
        .order(payments::id)
        .select((payments::id, charge_queue::status, receipt_queue::status))
        .load(&mut connection)?;
    for (id, charge, receipt) in &states {
        println!("payment {id}: charge {charge}, receipt {receipt}");
    }
    ensure!(
        states
            == [
                (1, Status::Success, Status::Success),
                (2, Status::Success, Status::Skipped),
                (3, Status::Failed, Status::NotAttempted),
            ]
    );
    ensure!(Receipt::queue().pending().count(&mut connection)? == 0);
    Ok(())
}
