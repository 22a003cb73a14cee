use diesel::prelude::*;
use queueable::Queueable;

diesel::table! {
    payments (id) {
        id -> BigInt,
        company_id -> BigInt,
    }
}

#[derive(Queryable, Selectable, Queueable)]
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
struct Payment {
    id: i64,
    company_id: i64,
}

fn main() {}
