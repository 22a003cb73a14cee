//! `lease`.

use diesel::prelude::*;
use queueable::Queueable;

diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, status -> Text, } }

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(lease)]
struct LeaseWithoutValue {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(lease = 60)]
struct LeaseAsNumber {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(lease("60s"))]
struct LeaseAsList {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(lease = "60")]
struct LeaseWithoutUnit {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(lease = "60s" heartbeat)]
struct LeaseWithTrailingWord {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(lease = "99ms")]
struct LeaseTooShort {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(lease = "25h")]
struct LeaseTooLong {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(lease = "60s", lease = "30s")]
struct LeaseTwice {
    id: i64,
    amount_cents: i64,
}

fn main() {
    // The rest of the user's code is not accused.
    let _ = (lease_without_value_queue::try_count, LeaseWithoutValue::queue_state());
    let _ = (lease_as_number_queue::try_count, LeaseAsNumber::queue_state());
    let _ = (lease_as_list_queue::try_count, LeaseAsList::queue_state());
    let _ = (lease_without_unit_queue::try_count, LeaseWithoutUnit::queue_state());
    let _ = (lease_with_trailing_word_queue::try_count, LeaseWithTrailingWord::queue_state());
    let _ = (lease_too_short_queue::try_count, LeaseTooShort::queue_state());
    let _ = (lease_too_long_queue::try_count, LeaseTooLong::queue_state());
    let _ = (lease_twice_queue::try_count, LeaseTwice::queue_state());
}
