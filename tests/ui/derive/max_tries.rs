//! `max_tries`.

use diesel::prelude::*;
use queueable::Queueable;

diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, status -> Text, } }

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(max_tries = "10")]
struct MaxTriesAsText {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(max_tries = -1)]
struct MaxTriesNegative {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(max_tries = 0)]
struct MaxTriesOfZero {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(max_tries = 2147483648)]
struct MaxTriesTooLarge {
    id: i64,
    amount_cents: i64,
}

fn main() {
    // The rest of the user's code is not accused.
    let _ = (max_tries_as_text_queue::try_count, MaxTriesAsText::queue_state());
    let _ = (max_tries_negative_queue::try_count, MaxTriesNegative::queue_state());
    let _ = (max_tries_of_zero_queue::try_count, MaxTriesOfZero::queue_state());
    let _ = (max_tries_too_large_queue::try_count, MaxTriesTooLarge::queue_state());
}
