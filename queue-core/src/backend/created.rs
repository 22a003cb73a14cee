//! The default that gives an inserted row its time, on databases that can add a default to a column without giving it
//! to the existing rows.

use super::schema::{LiveColumn, find, finding};
use super::target::Target;
use crate::error::Finding;

/// Returns the column of the insert time, if the live table has it and gives it no default.
pub(crate) fn without_default(target: &Target, live: &[LiveColumn]) -> Option<&'static str> {
    // MariaDB returns the text `NULL` if a column has none.
    let is_none = |default: &Option<String>| default.as_ref().is_none_or(|text| text.eq_ignore_ascii_case("NULL"));
    let created = target.options.timestamps.created;
    created.filter(|created| find(live, created).is_some_and(|column| is_none(&column.default_value)))
}

/// Makes the finding for it.
pub(crate) fn no_default(target: &Target, created: &str, mend: String) -> Finding {
    finding(target, format!("the column {created} has no default, so an insert leaves no time in it"), mend)
}
