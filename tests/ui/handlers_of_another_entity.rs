use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use queueable::{HandlerResult, Message, Outcome, Queueable};

diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }
diesel::table! { invoices (id) { id -> BigInt, total -> BigInt, } }

#[derive(Queryable, Selectable, Queueable)]
struct Payment {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
struct Invoice {
    id: i64,
    total: i64,
}

struct Book;

impl queueable::Handler<Invoice, SqliteConnection> for Book {
    fn handle(&self, _: &Invoice, _: &mut Message<'_, SqliteConnection>) -> HandlerResult {
        Ok(Outcome::Done)
    }
}

fn book(_: &Invoice, _: &mut Message<'_, SqliteConnection>) -> HandlerResult {
    Ok(Outcome::Done)
}

fn main() {
    let pool = Pool::new(ConnectionManager::<SqliteConnection>::new(":memory:")).unwrap();
    let _ = Payment::poller(pool.clone(), Book);
    let _ = Payment::poller(pool.clone(), book);
    let _ = Payment::poller(pool, |_: &Invoice, _: &mut Message<'_, SqliteConnection>| Ok(Outcome::Done));
}
