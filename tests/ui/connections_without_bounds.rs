use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use queueable::{Message, Outcome, Queueable};

diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }

#[derive(Queryable, Selectable, Queueable)]
struct Payment {
    id: i64,
    amount_cents: i64,
}

fn serve<C: diesel::r2d2::R2D2Connection + 'static>(pool: Pool<ConnectionManager<C>>) {
    let _ = Payment::poller(pool, |_: &Payment, _: &mut Message<'_, C>| Ok(Outcome::Done));
}

fn count<C: diesel::Connection>(connection: &mut C) {
    let _ = Payment::queue().count(connection);
}

fn main() {}
