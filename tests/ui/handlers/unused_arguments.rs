//! Closures without the types of their arguments, and which use none of them.

use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use queueable::{Outcome, Poller, Queueable};

diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }

#[derive(Queryable, Selectable, Queueable)]
struct Payment {
    id: i64,
    amount_cents: i64,
}

fn main() {
    let pool = Pool::new(ConnectionManager::<SqliteConnection>::new(":memory:")).unwrap();
    // No mistakes.
    let _ = Payment::poller_with(pool.clone(), |_, _| Ok(Outcome::Done));
    let _ = Poller::new(pool.clone()).serve_with::<Payment>(|payment, message| {
        println!("payment {}, try {}", payment.id, message.try_number());
        Ok(Outcome::Done)
    });
    // A mistake.
    let _ = Payment::poller(pool, |_, _| Ok(Outcome::Done));
}
