//! What `diesel print-schema` writes on PostgreSQL once the payments are a queue.

use chrono::{DateTime, Utc};

diesel::table! {
    payments (id) {
        id -> Int8,
        company_id -> Int8,
        amount_cents -> Int8,
        status -> Text,
        next_attempt_time -> Nullable<Timestamptz>,
        try_count -> Int4,
        last_attempt_time -> Nullable<Timestamptz>,
        last_attempt_error_message -> Nullable<Text>,
    }
}

/// The key in such a table.
pub(crate) type Key = i64;

/// What Diesel reads from its columns of times.
pub(crate) type Time = DateTime<Utc>;
