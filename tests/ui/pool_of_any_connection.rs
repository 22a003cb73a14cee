use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use queueable::{HandlerResult, Message, Outcome, Queueable};

diesel::table! { payments (id) { id -> BigInt, } }

#[derive(Queryable, Selectable, Queueable)]
struct Payment {
    id: i64,
}

#[derive(diesel::MultiConnection)]
enum AnyConnection {
    Postgres(PgConnection),
    Sqlite(SqliteConnection),
}

fn charge(_: &Payment, _: &mut Message<'_, AnyConnection>) -> HandlerResult {
    Ok(Outcome::Done)
}

fn main() {
    let pool = Pool::new(ConnectionManager::<AnyConnection>::new("sqlite.db")).unwrap();
    let _ = Payment::poller(pool, charge).start();
}
