//! One build of an application for three databases, as docs/into-your-application.md advises it: the URL chooses the
//! database when the program starts, and Diesel's `MultiConnection` stands for its connection.

#[allow(unused, reason = "the suite needs more of it")]
#[allow(clippy::duplicate_mod, reason = "each server is the `super` of the files that it shares with the other")]
mod db {
    #[path = "mysql.rs"]
    pub(crate) mod mysql;
    #[path = "postgres.rs"]
    pub(crate) mod postgres;
    #[path = "sqlite.rs"]
    pub(crate) mod sqlite;
}

use std::error::Error;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_migrations::MigrationHarness;
use queueable::bounds::{QueueConnection, QueueOn, StoredIn};
use queueable::{Handler, HandlerResult, Message, Migrations, Outcome, Poller, Queueable, Status};

use self::connection::AnyConnection;
use self::schema::{ledger, payments};

mod schema {
    diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }
    diesel::table! { ledger (payment_id) { payment_id -> BigInt, amount_cents -> BigInt, } }
}

mod connection {
    use diesel::{MysqlConnection, PgConnection, SqliteConnection};

    #[derive(diesel::MultiConnection)]
    pub(crate) enum AnyConnection {
        Postgres(PgConnection),
        Mysql(MysqlConnection),
        Sqlite(SqliteConnection),
    }
}

#[derive(Queryable, Selectable, Queueable)]
// The default on SQLite is one second.
#[queue(timeout = "30s")]
struct Payment {
    id: i64,
    amount_cents: i64,
}

/// Runs code on the connection behind an `AnyConnection`. The code is compiled for each database.
macro_rules! on_its_database {
    ($any:expr, $connection:ident => $code:expr) => {
        match $any {
            AnyConnection::Postgres($connection) => $code,
            AnyConnection::Mysql($connection) => $code,
            AnyConnection::Sqlite($connection) => $code,
        }
    };
}

struct Book;

/// Writes a handler for each database.
macro_rules! handler_on {
    ($($connection:ty),*) => {$(
        impl Handler<Payment, $connection> for Book {
            fn handle(&self, payment: &Payment, message: &mut Message<'_, $connection>) -> HandlerResult {
                diesel::insert_into(ledger::table)
                    .values((ledger::payment_id.eq(payment.id), ledger::amount_cents.eq(payment.amount_cents)))
                    .execute(message.connection())?;
                Ok(Outcome::Done)
            }
        }
    )*};
}
handler_on!(PgConnection, MysqlConnection, SqliteConnection);

/// Adds the queue on any database, and returns its poller.
fn poller_on<C>(url: &str) -> Result<Poller<C>, Box<dyn Error + Send + Sync>>
where
    C: QueueConnection + MigrationHarness<<C as Connection>::Backend>,
    Payment: QueueOn<C> + StoredIn<C::Backend>,
    Book: Handler<Payment, C>,
{
    let pool = Pool::builder().max_size(2).build(ConnectionManager::<C>::new(url))?;
    pool.get()?.run_pending_migrations(Migrations::new().entity::<Payment>())?;
    Ok(Payment::poller(pool, Book).workers(1))
}

/// Processes what is due, on the database of the URL.
fn run_until_idle(url: &str) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let tally = match url.split_once("://").map(|(scheme, _)| scheme) {
        Some("postgres") => poller_on::<PgConnection>(url)?.run_until_idle()?,
        Some("mysql") => poller_on::<MysqlConnection>(url)?.run_until_idle()?,
        _ => poller_on::<SqliteConnection>(url)?.run_until_idle()?,
    };
    Ok(tally.succeeded)
}

/// Enqueues a payment in a transaction of the application's.
fn enqueue(any: &mut AnyConnection, id: i64) -> QueryResult<usize> {
    any.transaction(|any| {
        on_its_database!(any, connection => diesel::insert_into(payments::table)
            .values((payments::id.eq(id), payments::amount_cents.eq(100), Payment::due_now()))
            .execute(connection))
    })
}

fn goes_through(url: &str) {
    let mut any = AnyConnection::establish(url).unwrap();
    any.batch_execute("CREATE TABLE payments (id BIGINT PRIMARY KEY NOT NULL, amount_cents BIGINT NOT NULL)").unwrap();
    any.batch_execute("CREATE TABLE ledger (payment_id BIGINT NOT NULL, amount_cents BIGINT NOT NULL)").unwrap();
    assert_eq!(run_until_idle(url).unwrap(), 0);
    enqueue(&mut any, 7).unwrap();
    enqueue(&mut any, 8).unwrap();
    assert_eq!(run_until_idle(url).unwrap(), 2);

    let booked = ledger::table.order(ledger::payment_id).select(ledger::payment_id).load::<i64>(&mut any).unwrap();
    assert_eq!(booked, [7, 8]);
    // States and numbers are read like any column; only the queue's times have a type of their own.
    let states = payments::table
        .filter(payment_queue::status.eq(Status::Success))
        .select((payments::id, payment_queue::try_count, payment_queue::last_attempt_error_message))
        .order(payments::id)
        .load::<(i64, i32, Option<String>)>(&mut any)
        .unwrap();
    assert_eq!(states, [(7, 1, None), (8, 1, None)]);
    let status = payments::table.find(7).select(payment_queue::status).first::<Status>(&mut any).unwrap();
    assert_eq!(status, Status::Success);
    let rerun = on_its_database!(&mut any, connection => Payment::queue().filter(payments::id.eq(8)).rerun(connection));
    assert_eq!(rerun.unwrap(), 1);
    assert_eq!(run_until_idle(url).unwrap(), 1);
}

#[test]
fn one_build_works_on_postgresql() {
    goes_through(db::postgres::Database::new().url());
}

#[test]
fn one_build_works_on_mysql() {
    goes_through(db::mysql::Database::new().url());
}

#[test]
fn one_build_works_on_sqlite() {
    goes_through(db::sqlite::Database::new().url());
}
