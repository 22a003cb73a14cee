//! Diesel's old attributes, which its derives still take.

use diesel::prelude::*;
use queueable::Queueable;

diesel::table! { billing (number) { number -> BigInt, amount_cents -> BigInt, } }
diesel::table! { payments (id) { id -> BigInt, number -> BigInt, amount_cents -> BigInt, } }

#[derive(Identifiable, Queryable, Selectable, Queueable)]
#[table_name = "billing"]
#[diesel(primary_key(number))]
struct OldTableName {
    number: i64,
    amount_cents: i64,
}

#[derive(Identifiable, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[primary_key(number)]
struct OldPrimaryKey {
    number: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
struct OldColumnName {
    id: i64,
    #[column_name = "amount_cents"]
    amount: i64,
}

fn main() {
    // The rest of the user's code is not accused.
    let _ = (old_table_name_queue::try_count, OldTableName::queue_state());
    let _ = (old_primary_key_queue::try_count, OldPrimaryKey::queue_state());
    let _ = (old_column_name_queue::try_count, OldColumnName::queue_state());
}
