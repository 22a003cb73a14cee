use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use queueable::{Failure, HandlerResult, Lease, LeaseHandler, Message, Outcome, Queueable};

diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }

#[derive(Queryable, Selectable, Queueable)]
struct Payment {
    id: i64,
    amount_cents: i64,
}

struct Charge;

impl LeaseHandler<Payment, SqliteConnection> for Charge {
    type Answer = ();

    fn call(&self, _: &Payment, _: &Lease) -> Result<(), Failure> {
        Ok(())
    }

    fn apply(&self, _: &Payment, _: &(), _: &mut Message<'_, SqliteConnection>) -> HandlerResult {
        Ok(Outcome::Done)
    }
}

fn main() {
    let pool = Pool::new(ConnectionManager::<SqliteConnection>::new(":memory:")).unwrap();
    Payment::poller(pool, Charge);
}
