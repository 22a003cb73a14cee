use diesel::prelude::*;
use queueable::Queueable;

diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }

#[derive(Queryable, Selectable, Queueable)]
struct Payment {
    id: i64,
    amount_cents: i64,
}

#[derive(diesel::MultiConnection)]
enum AnyConnection {
    Sqlite(SqliteConnection),
}

fn main() {
    let connection = &mut AnyConnection::establish(":memory:").unwrap();
    let company = Payment::queue().filter(payments::amount_cents.gt(100));
    let _ = company.retry_now(connection);
    let _ = company.load(connection);
    let _ = Payment::explain(connection, &1);
}
