//! Closures whose types the poller knows, for entities of another mode, and of other arguments.

use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use queueable::{Outcome, Poller, Queueable};

diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }

#[derive(Queryable, Selectable, Queueable)]
struct Payment {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(lease = "60s")]
struct Slow {
    id: i64,
}

fn main() {
    let pool = Pool::new(ConnectionManager::<SqliteConnection>::new(":memory:")).unwrap();
    let _ = Slow::poller_with(pool.clone(), |_, _| Ok(Outcome::Done));
    let _ = Poller::new(pool.clone()).serve_lease_with::<Payment, _>(|_, _| Ok(()), |_, _, _| Ok(Outcome::Done));
    let _ = Payment::poller_with(pool.clone(), |_| Ok(Outcome::Done));
    let _ = Payment::poller_with(pool, |payment, _| println!("{}", payment.id));
}
