//! What `diesel print-schema` writes on SQLite once the payments are a queue.

diesel::table! {
    payments (id) {
        id -> Integer,
        company_id -> BigInt,
        amount_cents -> BigInt,
        status -> Text,
        next_attempt_time -> Nullable<Text>,
        try_count -> Integer,
        last_attempt_time -> Nullable<Text>,
        last_attempt_error_message -> Nullable<Text>,
    }
}

/// The key in such a table.
pub(crate) type Key = i32;

/// What Diesel reads from its columns of times.
pub(crate) type Time = String;
