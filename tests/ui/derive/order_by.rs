use diesel::prelude::*;
use queueable::Queueable;

diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }

#[derive(Queryable, Selectable, Queueable)]
#[queue(order_by = amount_cents.descending())]
struct First {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(order_by(amount_cents.desc(), amount_cents))]
struct Second {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(order_by = amount_cents.desc)]
struct Third {
    id: i64,
}

fn main() {}
