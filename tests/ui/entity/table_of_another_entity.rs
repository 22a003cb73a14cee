use diesel::prelude::*;
use queueable::Queueable;

diesel::table! { invoices (number) { number -> Text, total -> BigInt, } }

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = invoices, primary_key(payment_number))]
struct Payment {
    payment_number: i64,
    amount_cents: i64,
}

fn main() {}
