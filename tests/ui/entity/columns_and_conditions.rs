use diesel::prelude::*;
use queueable::Queueable;

diesel::table! { payments (id) { id -> BigInt, due_date -> Date, title -> Text, approved -> Bool, } }

enum Step { One, Two }

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(order_by = due)]
struct Entity1 {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(version = content_version)]
struct Entity2 {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(rerun_on_change(title, body))]
struct Entity3 {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(claim_if = "payments::title")]
struct Entity5 {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(stage = Step)]
struct Entity6 {
    id: i64,
}

fn main() {}
