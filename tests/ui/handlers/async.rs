//! Async code where the poller takes none.

use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use queueable::{AsyncCalls, HandlerResult, Lease, Message, Outcome, Queueable};

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

async fn book(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult {
    Ok(Outcome::Done)
}

fn apply(_: &Slow, _: &i64, _: &mut Message<'_, SqliteConnection>) -> HandlerResult {
    Ok(Outcome::Done)
}

fn main() {
    let pool = Pool::new(ConnectionManager::<SqliteConnection>::new(":memory:")).unwrap();
    let _ = Payment::poller(pool.clone(), book);
    let _ = Payment::poller(pool.clone(), async |_: &Payment, _: &mut Message<'_, SqliteConnection>| Ok(Outcome::Done));
    let _ = Payment::poller_with(pool.clone(), |payment, _| async move {
        println!("{}", payment.id);
        Ok(Outcome::Done)
    });
    let _ = Slow::poller(pool.clone(), AsyncCalls::of(|slow: &Slow, _: &Lease| async move { Ok(slow.id) }, apply));
    let _ = Slow::poller(pool, AsyncCalls::of(async |slow: &Slow, _: &Lease| Ok(slow.id), apply));
}
