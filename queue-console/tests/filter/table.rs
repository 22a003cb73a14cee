//! A table with a column of each kind, for tests that ask no database.

use chrono::{DateTime, Utc};
use queue_core::internals::backend::Holds;

use crate::filter::{Column, Columns, Condition, Refused, parse};

diesel::table! {
    payments (id) {
        id -> BigInt,
    }
}

/// A table with a column of each kind.
pub(crate) fn columns() -> Columns {
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
        ("last_attempt_time", Holds::Instants),
        ("try_count", Holds::Integers(4)),
        ("reference", Holds::Uuids),
        ("hash", Holds::Bytes),
        ("details", Holds::Json),
        ("kind", Holds::Others),
        ("address", Holds::Printed),
        ("seen", Holds::InstantsWithOffset),
        ("Größe \"x\"", Holds::Integers(4)),
        ("like", Holds::Texts),
        ("Mixed", Holds::Integers(2)),
    ]
    .map(column)
    .into();
    let statuses = ["NOT_ATTEMPTED", "IN_PROGRESS", "ERROR", "SUCCESS", "FAILED", "SKIPPED"];
    list.push(column(("status", Holds::Texts)).of_values(statuses));
    Columns { table: "payments".to_owned(), list }
}

pub(crate) fn now() -> DateTime<Utc> {
    "2026-03-01T12:00:00Z".parse().expect("a time")
}

pub(crate) fn read(text: &str) -> Result<Condition, Refused> {
    parse(text, &columns(), now())
}
