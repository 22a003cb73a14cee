//! A method whose feature is off.

use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use queueable::{Outcome, Queueable};

diesel::table! { payments (id) { id -> BigInt, } }

#[derive(Queryable, Selectable, Queueable)]
struct Payment {
    id: i64,
}

fn main() {
    let pool = Pool::new(ConnectionManager::<SqliteConnection>::new(":memory:")).unwrap();
    let _ = Payment::poller_with(pool, |_, _| Ok(Outcome::Done)).metrics().start();
}
