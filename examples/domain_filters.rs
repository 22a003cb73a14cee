//! An operator's work in domain terms: every operation takes an ordinary Diesel condition.
//!
//! `cargo run --example domain_filters`

use std::time::Duration;

use anyhow::{Result, ensure};
use chrono::{TimeDelta, Utc};
use diesel::connection::SimpleConnection;
use diesel::dsl::count_star;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_migrations::MigrationHarness;
use queueable::report::Cursor;
use queueable::{Failure, HandlerResult, Message, Migrations, Outcome, Queueable, Status, Tally};

use self::schema::{companies, payments};

mod schema {
    diesel::table! {
        companies (id) {
            id -> BigInt,
            name -> Text,
        }
    }

    diesel::table! {
        payments (id) {
            id -> BigInt,
            company_id -> BigInt,
            amount_cents -> BigInt,
        }
    }

    diesel::joinable!(payments -> companies (company_id));
    diesel::allow_tables_to_appear_in_same_query!(companies, payments);
}

#[derive(Debug, Queryable, Selectable, Identifiable, Queueable)]
#[diesel(table_name = payments)]
#[queue(retry = fixed("1h"))]
struct Payment {
    id: i64,
    company_id: i64,
    amount_cents: i64,
}

/// The handler on a bad day: one company's bank is down, and large amounts fail for good.
fn charge(payment: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult {
    match payment {
        Payment { amount_cents: 100_000.., .. } => Err(Failure::fatal("above the limit")),
        Payment { company_id: 3345, .. } => Err(Failure::retry("the bank does not answer")),
        _ => Ok(Outcome::Done),
    }
}

/// The handler on the next day: all is well.
fn charge_well(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult {
    Ok(Outcome::Done)
}

fn main() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let url = directory.path().join("payments.sqlite").display().to_string();
    let pool = Pool::builder().max_size(3).build(ConnectionManager::<SqliteConnection>::new(&url))?;
    let run = |handler: fn(&Payment, &mut Message<'_, SqliteConnection>) -> HandlerResult| -> Result<Tally> {
        Ok(Payment::poller(pool.clone(), handler).workers(1).run_until_idle()?)
    };
    let connection = &mut SqliteConnection::establish(&url)?;
    connection.batch_execute(
        "CREATE TABLE companies (id INTEGER PRIMARY KEY NOT NULL, name TEXT NOT NULL);
         CREATE TABLE payments (
             id INTEGER PRIMARY KEY NOT NULL, company_id BIGINT NOT NULL, amount_cents BIGINT NOT NULL
         );
         INSERT INTO companies VALUES (1, 'Lovelace Ltd'), (3345, 'Hopper Inc')",
    )?;
    connection.run_pending_migrations(Migrations::new().entity::<Payment>()).map_err(anyhow::Error::from_boxed)?;
    let due: Vec<_> = [(1, 100), (1, 200), (1, 500_000), (3345, 300), (3345, 400), (3345, 600_000)]
        .map(|(company, cents)| {
            (payments::company_id.eq(company), payments::amount_cents.eq(cents), Payment::due_now())
        })
        .into();
    diesel::insert_into(payments::table).values(&due).execute(connection)?;
    run(charge)?;

    // Search and count. `hopper` is a value like any other: it is cloned, narrowed and used again.
    let hopper = Payment::queue().filter(payments::company_id.eq(3345));
    let (pending, failed) = (hopper.clone().pending().count(connection)?, hopper.clone().failed().count(connection)?);
    println!("Hopper Inc: {pending} pending, {failed} failed");
    ensure!((pending, failed) == (2, 1));
    for (payment, state) in hopper.clone().pending().load(connection)? {
        println!("  {payment:?}: {} after try {}", state.status, state.try_count);
    }
    // Page by page, the latest failure first.
    let page = hopper.clone().failed().page(connection, &Cursor::latest_attempt(), 50)?;
    for row in &page.rows {
        println!("  payment {}: {row}", row.key);
    }
    ensure!(page.rows.len() == 1 && page.next.is_none());

    // The queue's columns in your own query: select, group, order.
    let errors: Vec<(Option<String>, i64)> = payments::table
        .filter(payment_queue::last_attempt_error_message.is_not_null())
        .group_by(payment_queue::last_attempt_error_message)
        .select((payment_queue::last_attempt_error_message, count_star()))
        .order(payment_queue::last_attempt_error_message)
        .load(connection)?;
    for (error, count) in &errors {
        println!("  {count} x {}", error.as_deref().unwrap_or_default());
    }
    ensure!(errors == [(Some("above the limit".into()), 2), (Some("the bank does not answer".into()), 2)]);

    // And in a join, beside the columns of the other table.
    let troubled: Vec<(String, i64, Status)> = payments::table
        .inner_join(companies::table)
        .filter(payment_queue::status.eq_any([Status::Error, Status::Failed]))
        .order((companies::name, payments::id))
        .select((companies::name, payments::id, payment_queue::status))
        .load(connection)?;
    for (company, payment, status) in &troubled {
        println!("  {company}, payment {payment}: {status}");
    }
    ensure!(troubled.len() == 4);

    // Postpone: the bank says that it is back tomorrow. Stop and restart: nobody knows when the bank is back.
    ensure!(hopper.clone().postpone_until(connection, Utc::now() + TimeDelta::days(1))? == 2);
    ensure!(hopper.clone().scheduled().count(connection)? == 2);
    ensure!(hopper.stop(connection)? == 2);
    ensure!(hopper.clone().pending().count(connection)? == 0);
    ensure!(hopper.restart(connection)? == 2);
    ensure!(hopper.clone().due().count(connection)? == 2);

    // Skip rows that the queue should not process, by domain and queue columns together.
    let refused =
        payments::amount_cents.gt(550_000).and(payment_queue::last_attempt_error_message.eq("above the limit"));
    ensure!(Payment::queue().filter(refused).skip(connection)? == 1);

    // Retry: the pending rows and those that have failed for good. The skipped row stays as it is.
    let large = Payment::queue().filter(payments::amount_cents.ge(100_000));
    ensure!(large.retry_now(connection)? == 1);
    let tally = run(charge_well)?;
    ensure!(tally.succeeded == 3);

    // Rerun: rows that have succeeded run once more. An update does the same for a time of your choice.
    ensure!(Payment::queue().filter(payments::id.eq(1)).rerun(connection)? == 1);
    ensure!(run(charge_well)?.succeeded == 1);
    diesel::update(payments::table.find(2)).set(Payment::due_in(Duration::from_secs(3600))).execute(connection)?;
    ensure!(Payment::queue().scheduled().count(connection)? == 1);

    // Delete: whole rows, but only those that the filter and the states allow. `all_rows` says that there is no filter
    // on purpose.
    ensure!(Payment::queue().all_rows().finished().delete(connection)? == 5);

    let left = Payment::queue().counts_by_status(connection)?;
    print!("{left}");
    ensure!((left.total(), left.of(Status::NotAttempted)) == (1, 1));
    Ok(())
}
