//! `retry`.

use diesel::prelude::*;
use queueable::Queueable;

diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, status -> Text, } }

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(retry = "none")]
struct RetryPolicyAsText {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(retry = exponentail("10s"))]
struct UnknownRetryPolicy {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(retry = fixed)]
struct RetryPolicyWithoutArgument {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(retry = none("10s"))]
struct RetryNoneWithArguments {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(retry = fixed("10s", max = "1m"))]
struct FixedWithOptions {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(retry = linear("5m", max = "1m"))]
struct LinearMaxBelowStep {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(retry = exponential("10m", max = "90s"))]
struct ExponentialMaxBelowFirst {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(retry = exponential("2h"))]
struct ExponentialAboveDefaultMax {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(retry = exponential("10s", jitter = 101))]
struct JitterAbove100 {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(retry = linear("10s", jitter = 5))]
struct UnknownRetryArgument {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(retry = exponential("10s", max = "1m", max = "2m"))]
struct RepeatedRetryArgument {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(retry = exponential("10s", max))]
struct RetryArgumentWithoutValue {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(retry = custom())]
struct CustomWithoutPolicy {
    id: i64,
    amount_cents: i64,
}

fn main() {
    // The rest of the user's code is not accused.
    let _ = (retry_policy_as_text_queue::try_count, RetryPolicyAsText::queue_state());
    let _ = (unknown_retry_policy_queue::try_count, UnknownRetryPolicy::queue_state());
    let _ = (retry_policy_without_argument_queue::try_count, RetryPolicyWithoutArgument::queue_state());
    let _ = (retry_none_with_arguments_queue::try_count, RetryNoneWithArguments::queue_state());
    let _ = (fixed_with_options_queue::try_count, FixedWithOptions::queue_state());
    let _ = (linear_max_below_step_queue::try_count, LinearMaxBelowStep::queue_state());
    let _ = (exponential_max_below_first_queue::try_count, ExponentialMaxBelowFirst::queue_state());
    let _ = (exponential_above_default_max_queue::try_count, ExponentialAboveDefaultMax::queue_state());
    let _ = (jitter_above_100_queue::try_count, JitterAbove100::queue_state());
    let _ = (unknown_retry_argument_queue::try_count, UnknownRetryArgument::queue_state());
    let _ = (repeated_retry_argument_queue::try_count, RepeatedRetryArgument::queue_state());
    let _ = (retry_argument_without_value_queue::try_count, RetryArgumentWithoutValue::queue_state());
    let _ = (custom_without_policy_queue::try_count, CustomWithoutPolicy::queue_state());
}
