use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use queueable::{HandlerResult, Message, Outcome, Queueable};

diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }

#[derive(Queryable, Selectable, Queueable)]
struct Payment {
    id: i64,
    amount_cents: i64,
}

async fn book(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult {
    Ok(Outcome::Done)
}

fn main() {
    let pool = Pool::new(ConnectionManager::<SqliteConnection>::new(":memory:")).unwrap();
    let _ = Payment::poller(pool.clone(), book);
    let _ = Payment::poller(pool, async |_: &Payment, _: &mut Message<'_, SqliteConnection>| Ok(Outcome::Done));
}
