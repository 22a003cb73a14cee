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
    let _ = Payment::queue().all_rows().set_priority(connection, 1);
    let _ = Payment::queue().all_rows().archive(connection);
    let _ = Payment::queue().expired().count(connection);
}
