//! What `diesel print-schema` writes on MySQL and MariaDB once the payments are a queue.

use chrono::NaiveDateTime;

diesel::table! {
    payments (id) {
        id -> Bigint,
        company_id -> Bigint,
        amount_cents -> Bigint,
        #[max_length = 20]
        status -> Varchar,
        next_attempt_time -> Nullable<Datetime>,
        try_count -> Integer,
        last_attempt_time -> Nullable<Datetime>,
        last_attempt_error_message -> Nullable<Mediumtext>,
    }
}

/// The key in such a table.
pub(crate) type Key = i64;

/// What Diesel reads from its columns of times.
pub(crate) type Time = NaiveDateTime;
