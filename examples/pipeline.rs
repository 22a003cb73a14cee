//! Invoices pass three stages: they are rendered, sent, and booked. Each step commits together with the stage that comes
//! next, so no invoice is sent twice or forgotten between two stages. A poller may serve some stages only, for example on the
//! machine that has the fonts.
//!
//! `cargo run --example pipeline`

use std::time::Duration;

use anyhow::{Result, ensure};
use diesel::connection::SimpleConnection;
use diesel::deserialize::FromSqlRow;
use diesel::dsl::count_star;
use diesel::expression::AsExpression;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::sql_types::Text;
use diesel_migrations::MigrationHarness;
use queueable::{Failure, HandlerResult, Message, Migrations, Outcome, Poller, Queueable, Stage, Status};

use self::schema::{bookings, documents, invoices, mails};

mod schema {
    diesel::table! { invoices (id) { id -> BigInt, customer -> Text, amount_cents -> BigInt, } }
    diesel::table! { documents (invoice_id) { invoice_id -> BigInt, content -> Text, } }
    // There is no key on the invoice, because it would hide a mail that was sent twice. The same holds for the
    // bookings.
    diesel::table! { mails (id) { id -> BigInt, invoice_id -> BigInt, content -> Text, } }
    diesel::table! { bookings (id) { id -> BigInt, invoice_id -> BigInt, amount_cents -> BigInt, } }
}

const INVOICES: i64 = 210;

/// The stages, in their order: the first is where an invoice begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, AsExpression, FromSqlRow, Stage)]
#[diesel(sql_type = Text)]
enum InvoiceStage {
    Render,
    Send,
    Book,
}

#[derive(Queryable, Selectable, Queueable)]
#[queue(stage = InvoiceStage, timeout = "30s")]
struct Invoice {
    id: i64,
    customer: String,
    amount_cents: i64,
}

/// A stage without an arm does not compile. The last one answers `Done`.
fn work(invoice: &Invoice, message: &mut Message<'_, SqliteConnection>) -> HandlerResult {
    match message.stage() {
        InvoiceStage::Render => {
            let euros = format!("{}.{:02}", invoice.amount_cents / 100, invoice.amount_cents % 100);
            let content = format!("Invoice {}\n{}, please pay {euros} EUR.\n", invoice.id, invoice.customer);
            diesel::insert_into(documents::table)
                .values((documents::invoice_id.eq(invoice.id), documents::content.eq(content)))
                .execute(message.connection())?;
            Ok(Outcome::next(InvoiceStage::Send))
        }
        InvoiceStage::Send => {
            let document = documents::table.find(invoice.id).select(documents::content);
            let content: String = document.get_result(message.connection())?;
            diesel::insert_into(mails::table)
                .values((mails::invoice_id.eq(invoice.id), mails::content.eq(content)))
                .execute(message.connection())?;
            // The failure comes after the mail was written; the worker undoes the mail. The stage is the same at the
            // next try.
            if invoice.id % 7 == 0 && message.try_number() == 1 {
                return Err(Failure::retry_after(Duration::ZERO, "the mail server is busy"));
            }
            Ok(Outcome::next(InvoiceStage::Book))
        }
        InvoiceStage::Book => {
            // A new stage has its tries from the start.
            if message.try_number() > 1 {
                return Err(Failure::fatal("an earlier stage's tries are counted"));
            }
            diesel::insert_into(bookings::table)
                .values((bookings::invoice_id.eq(invoice.id), bookings::amount_cents.eq(invoice.amount_cents)))
                .execute(message.connection())?;
            Ok(Outcome::Done)
        }
    }
}

fn main() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let url = directory.path().join("invoices.sqlite").display().to_string();
    let mut connection = SqliteConnection::establish(&url)?;
    prepare(&mut connection)?;
    let pool = || Pool::builder().max_size(3).build(ConnectionManager::<SqliteConnection>::new(&url));

    // The machine that has the fonts renders, and leaves the other stages to other machines.
    let renderer = Poller::new(pool()?).serve_stages::<Invoice>(&[InvoiceStage::Render], work);
    let rendered = renderer.workers(2).run_until_idle()?;
    println!("{} invoices are rendered", rendered.advanced);
    println!("{}", stages(&mut connection)?);
    ensure!(rendered.advanced == u64::try_from(INVOICES)? && rendered.succeeded == 0, "they are rendered, and no more");
    ensure!(mails::table.select(count_star()).get_result::<i64>(&mut connection)? == 0, "none is sent yet");

    let office = Poller::new(pool()?).serve_stages::<Invoice>(&[InvoiceStage::Send, InvoiceStage::Book], work);
    let done = office.workers(2).run_until_idle()?;
    println!("{} invoices are sent, {} at the second try; {} are booked", done.advanced, done.retried, done.succeeded);
    println!("{}", stages(&mut connection)?);
    check(&mut connection)?;
    ensure!(done.retried == u64::try_from(INVOICES / 7)?, "the mail server was busy once for every seventh invoice");
    println!("check: every invoice was sent once and booked once");
    Ok(())
}

/// How many invoices are in each stage.
fn stages(connection: &mut SqliteConnection) -> Result<String> {
    let mut said = Vec::new();
    for stage in InvoiceStage::ALL {
        // A queue column is a column: you can filter by it like by any other.
        let there = invoices::table.filter(invoice_queue::stage.eq(stage));
        let finished = there.filter(invoice_queue::status.eq(Status::Success)).count().get_result::<i64>(connection)?;
        said.push(format!("{}: {} ({finished} finished)", stage.name(), there.count().get_result::<i64>(connection)?));
    }
    Ok(said.join(", "))
}

fn check(connection: &mut SqliteConnection) -> Result<()> {
    let all: Vec<(i64, i64)> =
        invoices::table.select((invoices::id, invoices::amount_cents)).order(invoices::id).load(connection)?;
    let ids: Vec<i64> = all.iter().map(|(id, _)| *id).collect();
    let sent: Vec<i64> = mails::table.select(mails::invoice_id).order(mails::invoice_id).load(connection)?;
    ensure!(sent == ids, "every invoice is sent once");
    let booked = bookings::table.select((bookings::invoice_id, bookings::amount_cents)).order(bookings::invoice_id);
    ensure!(booked.load::<(i64, i64)>(connection)? == all, "every invoice is booked once, with its amount");
    let text = mails::table.filter(mails::invoice_id.eq(7)).select(mails::content).get_result::<String>(connection)?;
    ensure!(text == "Invoice 7\nCustomer 7, please pay 17.00 EUR.\n", "what is sent is what was rendered: {text}");
    let counts = Invoice::queue().all_rows().counts_by_status(connection)?;
    ensure!(counts.of(Status::Success) == INVOICES, "all are finished: {counts}");
    Ok(())
}

fn prepare(connection: &mut SqliteConnection) -> Result<()> {
    connection.batch_execute(
        "CREATE TABLE invoices (id INTEGER PRIMARY KEY NOT NULL, customer TEXT NOT NULL, amount_cents BIGINT NOT NULL);
         CREATE TABLE documents (invoice_id BIGINT PRIMARY KEY NOT NULL, content TEXT NOT NULL);
         CREATE TABLE mails (id INTEGER PRIMARY KEY NOT NULL, invoice_id BIGINT NOT NULL, content TEXT NOT NULL);
         CREATE TABLE bookings (id INTEGER PRIMARY KEY NOT NULL, invoice_id BIGINT NOT NULL, amount_cents BIGINT NOT NULL)",
    )?;
    let migrations = Migrations::new().entity::<Invoice>();
    connection.run_pending_migrations(migrations).map_err(anyhow::Error::from_boxed)?;
    connection.transaction(|connection| {
        for number in 1..=INVOICES {
            let invoice = (
                invoices::id.eq(number),
                invoices::customer.eq(format!("Customer {number}")),
                invoices::amount_cents.eq(1000 + number * 100),
            );
            diesel::insert_into(invoices::table).values((invoice, Invoice::due_now())).execute(connection)?;
        }
        Ok(())
    })
}
