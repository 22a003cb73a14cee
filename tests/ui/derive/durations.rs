//! Durations.

use diesel::prelude::*;
use queueable::Queueable;

diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, status -> Text, } }

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(timeout = 30)]
struct DurationAsNumber {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(retry = fixed("1h30m"))]
struct DurationOfTwoUnits {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(timeout = "1.5h")]
struct DurationThatIsNoDuration {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(retry = fixed("36501d"))]
struct DurationTooLong {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(timeout = "30min")]
struct DurationWithUnknownUnit {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(timeout = "30")]
struct DurationWithoutUnit {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(timeout = "0s")]
struct TimeoutOfZero {
    id: i64,
    amount_cents: i64,
}

fn main() {
    // The rest of the user's code is not accused.
    let _ = (duration_as_number_queue::try_count, DurationAsNumber::queue_state());
    let _ = (duration_of_two_units_queue::try_count, DurationOfTwoUnits::queue_state());
    let _ = (duration_that_is_no_duration_queue::try_count, DurationThatIsNoDuration::queue_state());
    let _ = (duration_too_long_queue::try_count, DurationTooLong::queue_state());
    let _ = (duration_with_unknown_unit_queue::try_count, DurationWithUnknownUnit::queue_state());
    let _ = (duration_without_unit_queue::try_count, DurationWithoutUnit::queue_state());
    let _ = (timeout_of_zero_queue::try_count, TimeoutOfZero::queue_state());
}
