//! Tests of the language. The table and its columns are here.

mod accepted;
mod refused;

use chrono::{DateTime, Utc};
use queue_core::internals::backend::Holds;

use super::refused::Refused;
use super::{Column, Columns, Condition, parse};

diesel::table! {
    payments (id) {
        id -> BigInt,
    }
}

/// A table with a column of each kind.
fn columns() -> Columns {
    let column = |(name, holds): (&str, Holds)| Column { name: name.to_owned(), nullable: true, holds, values: None };
    let mut list: Vec<_> = [
        ("id", Holds::Integers(8)),
        ("company_id", Holds::Integers(4)),
        ("tiny", Holds::Integers(1)),
        ("visits", Holds::Unsigned(8)),
        ("ratio", Holds::Floats),
        ("amount", Holds::Decimals),
        ("name", Holds::Texts),
        ("is_paid", Holds::Booleans),
        ("booked_on", Holds::Dates),
        ("opens_at", Holds::TimesOfDay),
        ("created", Holds::Timestamps),
        ("next_attempt_time", Holds::Instants),
        ("reference", Holds::Uuids),
        ("hash", Holds::Bytes),
        ("details", Holds::Json),
        ("kind", Holds::Others),
        ("Größe \"x\"", Holds::Integers(4)),
        ("like", Holds::Texts),
        ("Mixed", Holds::Integers(2)),
    ]
    .map(column)
    .into();
    let statuses = ["NOT_ATTEMPTED", "IN_PROGRESS", "TO_RETRY", "SUCCESS", "FAILED", "SKIPPED"];
    list.push(column(("status", Holds::Texts)).of_values(statuses));
    Columns { table: "payments".to_owned(), list }
}

fn now() -> DateTime<Utc> {
    "2026-03-01T12:00:00Z".parse().expect("a time")
}

fn read(text: &str) -> Result<Condition, Refused> {
    parse(text, &columns(), now())
}
