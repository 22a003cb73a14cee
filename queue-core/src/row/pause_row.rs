//! A row of the control table, as it is loaded.

use diesel::sql_types::{BigInt, Nullable, Text};

/// A pause as it is loaded: the queue, the scope, who and why; whether it has an end; and the times of its beginning
/// and its end and the current time, in microseconds since 1970, null if they are odd.
pub(crate) type PauseRow =
    (String, String, Option<String>, Option<String>, i64, (Option<i64>, Option<i64>, Option<i64>));

/// The SQL type of a [`PauseRow`].
pub(crate) type PauseType =
    (Text, Text, Nullable<Text>, Nullable<Text>, BigInt, (Nullable<BigInt>, Nullable<BigInt>, Nullable<BigInt>));
