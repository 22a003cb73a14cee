use diesel::prelude::*;
use queueable::Queueable;

diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }
diesel::table! { invoices (id) { id -> BigInt, total -> BigInt, } }
diesel::table! { companies (id) { id -> BigInt, } }
diesel::allow_tables_to_appear_in_same_query!(payments, invoices);

#[derive(Queryable, Selectable, Queueable)]
struct Payment {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
struct Invoice {
    id: i64,
    total: i64,
}

fn main() {
    let connection = &mut SqliteConnection::establish(":memory:").unwrap();
    let _ = Payment::queue().filter(invoices::total.eq(1)).retry_now(connection);
    let _ = Payment::queue().filter(companies::id.eq(1)).load(connection);
    let _ = Payment::queue().filter(payments::id.gt(1)).filter(invoice_queue::try_count.gt(3)).load(connection);
    let _ = Payment::queue().filter(payments::id).count(connection);
    let _ = Payment::queue().filter(diesel::dsl::max(payments::id).eq(Some(3))).count(connection);
}
