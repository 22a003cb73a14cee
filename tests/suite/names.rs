//! Tables and columns whose names need quoting, and tables in another schema.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_migrations::MigrationHarness;
use queueable::{Failure, HandlerResult, Message, Migrations, Outcome, Queueable, Status};

use crate::db::{AUTO_KEY, BIGINT, Conn, Database, quote};

diesel::table! {
    #[sql_name = "Customer's `\"Invoice\"."]
    invoices (id) {
        #[sql_name = "InvoiceId"]
        id -> BigInt,
        #[sql_name = "Total \"gross\"`"]
        total -> BigInt,
    }
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = invoices)]
#[queue(prefix = "Queue", timeout = "30s")]
struct Invoice {
    id: i64,
    total: i64,
}

diesel::table! {
    order (id) {
        id -> BigInt,
        group -> BigInt,
    }
}

/// A reserved word as the table, and reserved words as queue columns.
#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = order)]
#[queue(status = "select", next_attempt_time = "from", try_count = "where", last_attempt_time = "limit")]
#[queue(last_attempt_error_message = "table", timeout = "30s")]
struct Order {
    id: i64,
    group: i64,
}

#[test]
fn names_of_any_characters_work() {
    let table = quote("Customer's `\"Invoice\".");
    let database = Database::new();
    let mut connection = database.connect();
    connection
        .batch_execute(&format!(
            "CREATE TABLE {table} ({} {AUTO_KEY} NOT NULL, {} {BIGINT} NOT NULL)",
            quote("InvoiceId"),
            quote("Total \"gross\"`")
        ))
        .unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Invoice>()).unwrap();
    let row = |total: i64| (invoices::total.eq(total), Invoice::due_now());
    diesel::insert_into(invoices::table).values(vec![row(1), row(2)]).execute(&mut connection).unwrap();
    let handler = |invoice: &Invoice, _: &mut Message<'_, Conn>| -> HandlerResult {
        assert_eq!(invoice.id, invoice.total);
        if invoice.total == 2 { Err(Failure::retry("refused")) } else { Ok(Outcome::Done) }
    };
    let tally = Invoice::poller(database.pool(3), handler).workers(1).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.retried), (1, 1));
    let loaded = Invoice::queue().filter(invoice_queue::status.eq(Status::Error)).load(&mut connection).unwrap();
    assert_eq!(loaded[0].0.total, 2);
    assert_eq!(Invoice::queue().filter(invoices::total.gt(0)).skip(&mut connection).unwrap(), 1);
    connection.revert_last_migration(Migrations::new().entity::<Invoice>()).unwrap();
}

#[test]
fn reserved_words_are_names_like_any_other() {
    let database = Database::new();
    let mut connection = database.connect();
    let (table, group) = (quote("order"), quote("group"));
    connection
        .batch_execute(&format!("CREATE TABLE {table} (id {AUTO_KEY} NOT NULL, {group} {BIGINT} NOT NULL)"))
        .unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Order>()).unwrap();
    diesel::insert_into(order::table).values((order::group.eq(1), Order::due_now())).execute(&mut connection).unwrap();
    let handler = |order: &Order, _: &mut Message<'_, Conn>| {
        assert_eq!(order.id, order.group);
        Ok(Outcome::Done)
    };
    let tally = Order::poller(database.pool(3), handler).workers(1).run_until_idle().unwrap();
    assert_eq!(tally.succeeded, 1);
    let counts = Order::queue().counts_by_status(&mut connection).unwrap();
    assert_eq!(counts.of(Status::Success), 1);
    connection.revert_last_migration(Migrations::new().entity::<Order>()).unwrap();
}

diesel::table! {
    queueable_elsewhere.invoice (id) {
        id -> BigInt,
        total -> BigInt,
    }
}

/// An invoice in a schema of its own. Each root defines how its database makes one.
#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = invoice)]
#[queue(module = elsewhere_queue, timeout = "30s")]
struct Elsewhere {
    #[allow(dead_code)]
    id: i64,
    total: i64,
}

/// Adds a queue to the table `queueable_elsewhere.invoice`, processes its rows, and removes the queue again.
pub(crate) fn a_table_elsewhere_works(pool: &Pool<ConnectionManager<Conn>>) {
    let queue = || Migrations::new().entity::<Elsewhere>();
    let mut connection = pool.get().unwrap();
    connection
        .batch_execute(&format!(
            "CREATE TABLE queueable_elsewhere.invoice (id {AUTO_KEY} NOT NULL, total {BIGINT} NOT NULL)"
        ))
        .unwrap();
    diesel::insert_into(invoice::table).values(invoice::total.eq(1)).execute(&mut connection).unwrap();
    connection.run_pending_migrations(queue()).unwrap();
    connection.batch_execute("DELETE FROM __diesel_schema_migrations").unwrap();
    connection.run_pending_migrations(queue()).unwrap();
    let row = (invoice::total.eq(7), Elsewhere::due_now());
    diesel::insert_into(invoice::table).values(row).execute(&mut connection).unwrap();
    drop(connection);

    let handler = |invoice: &Elsewhere, message: &mut Message<'_, Conn>| {
        assert_eq!(message.idempotency_key(), "queueable_elsewhere.invoice.status:2");
        assert_eq!(invoice.total, 7);
        Ok(Outcome::Done)
    };
    let tally = Elsewhere::poller(pool.clone(), handler).workers(1).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.retried), (1, 0));

    let mut connection = pool.get().unwrap();
    let succeeded = Elsewhere::queue().filter(invoice::total.eq(7)).finished();
    assert_eq!(succeeded.rerun(&mut *connection).unwrap(), 1);
    connection.revert_last_migration(queue()).unwrap();
    assert!(Elsewhere::poller(pool.clone(), handler).workers(1).start().is_err());
    let left: i64 = invoice::table.count().get_result(&mut connection).unwrap();
    assert_eq!(left, 2);
}
