//! Reads times, including odd ones: values in a time column that cannot be read as times, such as `infinity`, a zero
//! date, or any text on SQLite. One of them must not make a report fail for all others.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::names::push_within;
use crate::backend::QueueBackend;

/// Writes the microseconds from 1970 until a time; null if the time is odd.
pub(crate) fn push_microseconds<'a, 'b, DB: QueueBackend>(
    out: &mut AstPass<'a, 'b, DB>,
    push_time: &dyn Fn(&mut AstPass<'a, 'b, DB>) -> QueryResult<()>,
) -> QueryResult<()> {
    for (i, part) in DB::MICROSECONDS_SINCE_1970.iter().enumerate() {
        if i > 0 {
            push_time(out)?;
        }
        out.push_sql(part);
    }
    Ok(())
}

/// Writes the database's text of an odd time; null if there is no time, and if the time is not odd.
pub(crate) fn push_odd_text<'a, 'b, DB: QueueBackend>(
    out: &mut AstPass<'a, 'b, DB>,
    push_time: &dyn Fn(&mut AstPass<'a, 'b, DB>) -> QueryResult<()>,
) -> QueryResult<()> {
    out.push_sql("CASE WHEN ");
    push_microseconds(out, push_time)?;
    out.push_sql(" IS NULL THEN ");
    push_within(out, DB::AS_TEXT, push_time)?;
    out.push_sql(" END");
    Ok(())
}
