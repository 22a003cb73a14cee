//! Keys.

use diesel::prelude::*;
use queueable::{Queueable, Stage};

diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, status -> Text, } }

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue("retry" = none)]
struct KeyThatIsNoName {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(max_tries)]
#[queue(retry = , timeout("30s"))]
struct KeyWithoutValue {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(retyr = none)]
#[queue(priority = 3, max_tries = 5)]
struct UnknownKey {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(
    max_attempts = 3,
    budget = "30s",
    batch = 50,
    group_by = company_id,
    when = "payments::company_id.eq(1)",
    rerun_on(company_id),
    metrics,
    backoff = fixed("1s"),
    singleton
)]
struct OtherWordsForKeys {
    id: i64,
    company_id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(max_tries = 5, prefix = "a_")]
#[queue(max_tries = 6)]
struct RepeatedKey {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(prefix = "a_" max_tries = 5)]
struct MissingComma {
    id: i64,
    amount_cents: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(max_tries = 0, retry = fixed("10"), timeout = "1w")]
struct SeveralMistakes {
    id: i64,
    amount_cents: i64,
    status: String,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(crate = "my_app::queueable")]
struct CratePathAsText {
    id: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Stage)]
#[stage(crate = 5)]
enum First {
    Only,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Stage)]
#[stage(name = "only")]
enum Second {
    Only,
}

fn main() {
    // The rest of the user's code is not accused.
    let _ = (key_that_is_no_name_queue::try_count, KeyThatIsNoName::queue_state());
    let _ = (key_without_value_queue::try_count, KeyWithoutValue::queue_state());
    let _ = (unknown_key_queue::try_count, UnknownKey::queue_state());
    let _ = (repeated_key_queue::try_count, RepeatedKey::queue_state());
    let _ = (missing_comma_queue::try_count, MissingComma::queue_state());
    let _ = (several_mistakes_queue::try_count, SeveralMistakes::queue_state());
}
