use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use queueable::{Lease, Message, Outcome, Queueable};

diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }

#[derive(Queryable, Selectable, Queueable)]
struct Payment {
    id: i64,
    amount_cents: i64,
}

fn main() {
    let pool = Pool::new(ConnectionManager::<SqliteConnection>::new(":memory:")).unwrap();
    let call = |_: &Payment, _: &Lease| Ok(());
    let apply = |_: &Payment, _: &(), _: &mut Message<'_, SqliteConnection>| Ok(Outcome::Done);
    Payment::poller(pool, (call, apply));
}
