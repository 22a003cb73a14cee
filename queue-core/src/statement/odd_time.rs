//! Reads times, including odd ones: values in a time column that cannot be read as times, such as `infinity`, a zero
//! date, or any text on SQLite. One of them must not make a report fail for all others.

use diesel::result::QueryResult;

use super::writer::Writer;
use crate::backend::QueueBackend;

/// Writes the microseconds from 1970 until a time; null if the time is odd.
pub(crate) fn push_microseconds<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>, time: &str) -> QueryResult<()> {
    sql.push_around(DB::MICROSECONDS_SINCE_1970, time, &[])
}

/// Writes the database's text of an odd time; null if there is no time, and if the time is not odd.
pub(crate) fn push_odd_text<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>, time: &str) -> QueryResult<()> {
    sql.within(("CASE WHEN ", " IS NULL THEN "), |sql| push_microseconds(sql, time))?;
    sql.push_within(DB::AS_TEXT, time)?;
    sql.push(" END")
}
