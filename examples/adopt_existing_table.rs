//! Turns a table that has been in use for years into a queue. Its history stays out of the queue, until the application
//! enqueues some of it.
//!
//! `cargo run --example adopt_existing_table`

use anyhow::{Result, ensure};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_migrations::MigrationHarness;
use queueable::{HandlerResult, Message, Migrations, Outcome, Queueable, Status};

use self::schema::invoices;

mod schema {
    // As `diesel print-schema` wrote it long ago. It needs no new lines.
    diesel::table! {
        invoices (number) {
            number -> BigInt,
            customer -> Text,
        }
    }
}

#[derive(Debug, PartialEq, Queryable, Selectable, Identifiable, Queueable)]
#[diesel(table_name = invoices, primary_key(number))]
struct Invoice {
    number: i64,
    customer: String,
}

/// Stands for sending the invoice by mail.
fn send(invoice: &Invoice, _: &mut Message<'_, SqliteConnection>) -> HandlerResult {
    println!("invoice {} goes to {}", invoice.number, invoice.customer);
    Ok(Outcome::Done)
}

fn main() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let url = directory.path().join("invoices.sqlite").display().to_string();
    let pool = Pool::builder().max_size(3).build(ConnectionManager::<SqliteConnection>::new(&url))?;
    let mut connection = SqliteConnection::establish(&url)?;
    connection.batch_execute(
        "CREATE TABLE invoices (number INTEGER PRIMARY KEY NOT NULL, customer TEXT NOT NULL);
         INSERT INTO invoices (customer) VALUES ('Ada'), ('Grace'), ('Edsger')",
    )?;
    let before: Vec<Invoice> = invoices::table.select(Invoice::as_select()).load(&mut connection)?;

    // One line adds the columns and the index. Old rows are not queued, so a poller that starts now does nothing.
    let migrations = || Migrations::new().entity::<Invoice>();
    connection.run_pending_migrations(migrations()).map_err(anyhow::Error::from_boxed)?;
    let tally = Invoice::poller(pool.clone(), send).workers(1).run_until_idle()?;
    ensure!(tally.succeeded == 0);
    let history = Invoice::queue().load(&mut connection)?;
    ensure!(history.iter().map(|(invoice, _)| invoice).eq(&before));
    ensure!(history.iter().all(|(_, state)| {
        (state.status, state.try_count) == (Status::NotAttempted, 0) && state.next_attempt_time.is_none()
    }));

    // The insert of a new row enqueues it; an insert that does not mention the queue works as before.
    diesel::insert_into(invoices::table)
        .values((invoices::customer.eq("Barbara"), Invoice::due_now()))
        .execute(&mut connection)?;
    diesel::insert_into(invoices::table).values(invoices::customer.eq("Alan")).execute(&mut connection)?;
    let tally = Invoice::poller(pool.clone(), send).workers(1).run_until_idle()?;
    ensure!(tally.succeeded == 1);

    // Enqueues some of the history: an ordinary update.
    diesel::update(invoices::table.filter(invoices::customer.eq("Grace")))
        .set(Invoice::due_now())
        .execute(&mut connection)?;
    let tally = Invoice::poller(pool.clone(), send).workers(1).run_until_idle()?;
    ensure!(tally.succeeded == 1);

    let counts = Invoice::queue().counts_by_status(&mut connection)?;
    print!("{counts}");
    ensure!((counts.of(Status::Success), counts.of(Status::NotAttempted)) == (2, 3));

    // Reverts the migration: the table is as it was, with the new rows in it.
    connection.revert_all_migrations(migrations()).map_err(anyhow::Error::from_boxed)?;
    let columns: Vec<String> =
        diesel::dsl::sql::<diesel::sql_types::Text>("SELECT name FROM pragma_table_info('invoices')")
            .load(&mut connection)?;
    println!("after the revert: {}", columns.join(", "));
    ensure!(columns == ["number", "customer"]);
    ensure!(invoices::table.count().get_result::<i64>(&mut connection)? == 5);
    Ok(())
}
