use std::time::Duration;

use diesel::prelude::*;
use queueable::Queueable;

diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }

#[derive(Queryable, Selectable, Queueable)]
struct Payment {
    id: i64,
    amount_cents: i64,
}

fn main() {
    let connection = &mut SqliteConnection::establish(":memory:").unwrap();
    let _ = Payment::queue().failed().retry_now(connection);
    let _ = Payment::queue().purge(connection, Duration::from_secs(1));
    let _ = Payment::queue().enqueue_existing();
    let _ = Payment::queue().dry_run().skip(connection);
}
