//! What Diesel refuses for a column of `table!`, it refuses for a queue column.

use diesel::dsl::count_star;
use diesel::prelude::*;
use queueable::Queueable;

diesel::table! {
    companies (id) {
        id -> BigInt,
    }
}

diesel::table! {
    payments (id) {
        id -> BigInt,
        company_id -> BigInt,
    }
}

diesel::joinable!(payments -> companies (company_id));
diesel::allow_tables_to_appear_in_same_query!(companies, payments);

#[derive(Queryable, Selectable, Queueable)]
struct Payment {
    id: i64,
    company_id: i64,
}

fn not_nullable_after_an_outer_join() {
    let _ = companies::table.left_join(payments::table).select(payment_queue::try_count);
}

fn not_in_the_group() {
    let _ = payments::table.group_by(payments::company_id).select((payment_queue::status, count_star()));
}

fn main() {}
