//! Closures without the types of their arguments, where a struct could be a handler too.

use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use queueable::{Outcome, Queueable};

diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }

#[derive(Queryable, Selectable, Queueable)]
struct Payment {
    id: i64,
    amount_cents: i64,
}

fn main() {
    let pool = Pool::new(ConnectionManager::<SqliteConnection>::new(":memory:")).unwrap();
    let _ = Payment::poller(pool, |payment, message| {
        println!("payment {}, try {}", payment.id, message.try_number());
        Ok(Outcome::Done)
    });
}
